// Which tilings the kernels of a family can be built with. Pure.
#pragma once

#include "base/result.hpp"
#include "kernels/cuda/families/config.cuh"
#include "schedule/family.hpp"

namespace deepgemm::cuda {

// `config` has what `tiling` says, and formats, math and promotion of the kernel. UNSUPPORTED names
// the value, the rule and a legal value.
base::Result<void> check_simt_tiling(const schedule::KernelConfig& tiling,
                                     const kernel::Config& config);
// `sm`: 90 for sm_90a.
base::Result<void> check_sm80_tiling(const schedule::KernelConfig& tiling,
                                     const kernel::Config& config, int sm);

base::Result<void> check_skinny_tiling(const schedule::KernelConfig& tiling,
                                       const kernel::Config& config);

// Blocks of a simt kernel that a multiprocessor should hold: what its registers allow without
// spilling, by tests/cuda/compile_test.cpp.
int simt_resident_blocks(const kernel::Config& config, int sm);

}  // namespace deepgemm::cuda
