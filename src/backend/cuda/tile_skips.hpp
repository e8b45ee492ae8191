// Tile skipping on a GPU: the kernels that run before the product, and memory for what they find.
// The device's side is kernels/cuda/skip. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "contract/skip.hpp"
#include "intent/problem.hpp"
#include "kernels/cuda/families/arguments.cuh"
#include "kernels/cuda/families/config.cuh"

namespace deepgemm::cuda {

// Kernels of the product's module, in the order of their launches, each reads what the one before
// has written. All take the product's arguments.
struct SkipPass {
  const char* function;  // skip_norms<kConfig>
  const char* symbol;
  int threads;
  int shared_bytes;  // dynamic
};
constexpr int kSkipPasses = 3;
std::array<SkipPass, kSkipPasses> skip_passes(const kernel::Config& config);

// Of a launch of `m` rows; all 0 when the kernel does not skip.
struct SkipShape {
  // Blocks of threads that have work, pass by pass; fewer give the same bits.
  std::array<int64_t, kSkipPasses> items = {};
  // Bytes of workspace, each a multiple of 256, in the order of kernel::SkipArguments. No sum of
  // them falls when m rises.
  int64_t norms = 0, merged = 0, weights = 0, kept = 0, counts = 0;

  int64_t bytes() const { return norms + merged + weights + kept + counts; }
};

// UNSUPPORTED when there are more items than a GPU counts.
base::Result<SkipShape> skip_shape(const kernel::Config& config, const intent::Problem& problem,
                                   int64_t m);

// `memory`: shape.bytes() of the device, aligned to 256.
kernel::SkipArguments skip_arguments(const SkipShape& shape, void* memory,
                                     const contract::SkipAllowance& allowance);

}  // namespace deepgemm::cuda
