// Planning ahead for every M that a set of shapes can bring.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::runtime {

// Plans each bucket of M up to max_m of each shape and counts the distinct kernels chosen. The
// first plan that fails ends it with its error. What these plans compile is in the caches
// afterwards.
base::Result<deepgemm_prepare_report_t> prepare(const gemm_intent_t& intent,
                                                std::span<const deepgemm_shape_t> shapes);

}  // namespace deepgemm::runtime
