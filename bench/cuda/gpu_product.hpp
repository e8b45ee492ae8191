// A product on a GPU: our plan and the peer, checked and timed on the same operands.
#pragma once

#include <map>
#include <string>

#include "cublaslt.hpp"
#include "gpu_timing.hpp"
#include "operands.hpp"

namespace deepgemm::bench {

struct GpuRow {
  Product product;
  std::string line;
  double bytes = 0, flops = 0;  // least bytes of operands and result; operations
  GpuTime ours;                 // 0 us: not timed
  std::map<std::string, GpuTime> peers;
  std::map<std::string, ResultError> wrong_peers;  // results beyond the plan's bound; not timed
  std::string path, family, config;
  double bound_relative = 0;  // of the plan
  ResultError error;
  std::string refused;  // why there is no plan; else empty
  std::string failed;   // what went wrong in a launch; else empty

  // Neither failed nor wrong.
  bool fine() const { return failed.empty() && (!refused.empty() || error.of_bound <= 1); }
};

// What the rows share.
struct BenchContext {
  BenchGpu& gpu;
  CublasLt* peer;  // null: none
  std::string device;
  double seconds;  // of replays for each implementation
};

// Checks and times the product. Replays of ours and of the peer take turns. What cannot be planned
// or launched is a row; errors are those of the GPU.
base::Result<GpuRow> measure_product(const BenchContext& context, const Product& product);

}  // namespace deepgemm::bench
