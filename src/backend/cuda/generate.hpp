// Kernels from choices: source text from the files in kernels/cuda, the figures of a launch, and
// its arguments. Pure: no device is needed.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "contract/path.hpp"
#include "intent/problem.hpp"
#include "jit/source.hpp"
#include "kernels/cuda/families/arguments.cuh"
#include "kernels/cuda/families/config.cuh"
#include "schedule/family.hpp"

namespace deepgemm::cuda {

// Bytes that the operands' addresses are multiples of, powers of two. What strides add is found
// from the layouts. A kernel made for 16 may not be launched with addresses that are less aligned.
struct AddressAlignment {
  int a = 16, b = 16, c = 16;  // c: C and the residual
};

// What a kernel is made for.
struct KernelRequest {
  contract::PathId path = contract::PathId::kFp32;
  std::string family;             // "simt", "sm80", "skinny"
  schedule::KernelConfig config;  // block_k counts elements as the multiplier takes them
  std::string arch;               // "sm_90a"
  AddressAlignment alignment;
  bool stochastic = false;   // rounds the output so, with the contract's seed
  bool fixed_sizes = false;  // N and K are compiled in; M never is
};

// One kernel: all that distinguishes its code. Equal specs give equal sources.
struct KernelSpec {
  std::string family;
  std::string arch;
  kernel::Config config;
};

// False for families that are planned but not written.
bool has_kernels(const std::string& family);

// UNSUPPORTED with the reason when the family has no such kernel: a path or format that it does not
// form, an architecture without the instructions, a tiling beyond its rules, a blocked C, packed
// weights. `problem` must be resolved.
base::Result<KernelSpec> kernel_spec(const intent::Problem& problem, const KernelRequest& request);

// The entry's name: "deepgemm_kernel_sm80".
std::string kernel_symbol(const KernelSpec& spec);
jit::Source kernel_source(const KernelSpec& spec);

// The figures of a launch of `m` rows. Any number of blocks from 1 on gives the same bits; more
// than `items` have nothing to do.
struct LaunchShape {
  int threads = 0;
  int shared_bytes = 0;       // dynamic
  int64_t items = 0;          // tiles times parts of K
  int64_t partial_bytes = 0;  // of workspace, 16-byte aligned; 0 without splits
  int64_t counters = 0;       // 32-bit words, zero before the first launch
};

// UNSUPPORTED when a size or the number of items is beyond 32 bits.
base::Result<LaunchShape> launch_shape(const KernelSpec& spec, const intent::Problem& problem,
                                       int64_t m, int splits);

// Addresses and run-time values of one launch; as cpu::Operands.
struct LaunchOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  double alpha = 1, beta = 0;
  int64_t m = 0;
  int splits = 1;  // above 1 only for a spec with config.split
  int raster = 8;  // rows of tiles that share columns of B in the second-level cache
  void* partials = nullptr;
  uint32_t* counters = nullptr;
};
kernel::GemmArguments launch_arguments(const KernelSpec& spec, const intent::Problem& problem,
                                       const LaunchOperands& operands);

}  // namespace deepgemm::cuda
