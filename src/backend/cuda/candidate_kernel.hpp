// The kernel of a candidate of the planner. Pure: no device is needed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/generate.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::cuda {

// "sm_90a" for 90. From compute capability 9.0 on, code is made for the very chip.
std::string arch_name(int sm);

// Which addresses a kernel is made for.
enum class Addresses {
  kAligned,  // to 16 bytes, as allocators give them
  kAny,      // to the elements
};

// The kernel of a choice on a chip with compute capability sm / 10. UNSUPPORTED as kernel_spec.
base::Result<KernelSpec> choice_kernel(const intent::Problem& problem,
                                       const schedule::Choice& choice, int sm, Addresses addresses);

// May the kernel be launched with these addresses?
bool suits(const KernelSpec& spec, const intent::Problem& problem, const LaunchOperands& operands);

// The first operand whose address is no multiple of its elements, for which there is no kernel;
// INVALID_ARGUMENT names it.
base::Result<void> check_elements(const intent::Problem& problem, const LaunchOperands& operands);

// What the planner is told of a candidate: why there is no kernel for it, or nothing.
std::optional<std::string> missing_kernel(const intent::Problem& problem,
                                          const schedule::Candidate& candidate, int sm,
                                          int64_t shared_bytes_per_block, Addresses addresses);

// Sources of the kernels of a choice: for aligned addresses, and, where that is another one, for
// any.
base::Result<std::vector<jit::Source>> choice_sources(const intent::Problem& problem,
                                                      const schedule::Choice& choice, int sm);

}  // namespace deepgemm::cuda
