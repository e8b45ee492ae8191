// A product on the GPU with everything that is timed: operands, our plan, the peer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cublaslt.hpp"
#include "deepgemm/deepgemm.h"
#include "gpu_timing.hpp"

namespace deepgemm::bench {

struct GpuRow {
  std::string line, row_class;
  int64_t m = 0, n = 0, k = 0;
  double us = 0, spread = 0;
  double bytes = 0, flops = 0;
  std::map<std::string, double> peers;
  std::string path, family, config;
  double worst_error = 0;  // of some elements, as a share of the plan's bound
  std::string refused;     // why there is no plan; else empty
};

// What the rows share.
struct BenchContext {
  BenchGpu& gpu;
  CublasLt* peer;  // null: none
  std::string device;
  double seconds;  // of replays for each implementation
};

// Times C[m][n] = A[m][k] * B[n][k]^T. Errors are those of the GPU; what cannot be planned is a
// row.
base::Result<GpuRow> measure_product(const BenchContext& context, const PeerProduct& product);

}  // namespace deepgemm::bench
