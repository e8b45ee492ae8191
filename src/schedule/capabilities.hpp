// What is supported on a chip, asked of the planner itself: the table cannot disagree with plans.
#pragma once

#include <string>
#include <vector>

#include "schedule/planner.hpp"

namespace deepgemm::schedule {

// One combination of formats, as the planner answers for decode (M = 1) and prefill (M = 4096) of a
// 4096 x 4096 linear layer without an error limit.
struct Capability {
  gemm_precision_t a = PRECISION_FP32;
  gemm_precision_t b = PRECISION_FP32;
  gemm_precision_t c = PRECISION_FP32;
  std::string decode, prefill;  // "fp16 on skinny", or empty
  std::string refusal;          // why not, when both are empty
};

std::vector<Capability> capabilities(const DeviceProfile& profile, const PlannerOptions& options);

// Aligned columns, one line a combination.
std::string capability_text(const std::vector<Capability>& table);

}  // namespace deepgemm::schedule
