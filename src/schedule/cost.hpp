// Analytic cost of a launch: a roofline with the constants documented in cost.cpp. It ranks
// candidates; no accuracy is claimed beyond what docs/performance.md measures.
#pragma once

#include "intent/problem.hpp"
#include "schedule/family.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::schedule {

// What a cost is computed for. m is the number of rows to price (the problem's or its bucket's).
struct CostInput {
  const Family& family;
  contract::PathId path;
  KernelConfig config;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  gemm_precision_t a = PRECISION_FP32, b = PRECISION_FP32, c = PRECISION_FP32;
  int64_t group_size = 0;
  bool reads_c = false, residual = false;
  bool packed_b = false;
  int units = 1;  // granted
};

CostInput cost_input(const intent::Problem& problem, const Family& family, contract::PathId path,
                     const KernelConfig& config, int64_t m, int units);

CostEstimate estimate_cost(const CostInput& input, const DeviceProfile& profile,
                           const DeviceState& state);

// Bytes a launch must move at least: each operand once, scales included.
double minimal_bytes(const CostInput& input);

}  // namespace deepgemm::schedule
