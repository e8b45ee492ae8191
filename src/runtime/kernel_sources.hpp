// What ahead-of-time packs hold.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "jit/source.hpp"

namespace deepgemm::runtime {

// Sources of all kernels that plans of `intent` for (shape.n, shape.k) and every M up to
// shape.max_m launch on the device ("cuda:0", or a profile such as "h200"), each once; empty for
// the CPU, whose kernels were compiled ahead of time or need no compiler. Compiles nothing. Errors
// of planning, for the first M that has none.
base::Result<std::vector<jit::Source>> kernel_sources(const gemm_intent_t& intent,
                                                      const deepgemm_shape_t& shape,
                                                      const std::string& device);

}  // namespace deepgemm::runtime
