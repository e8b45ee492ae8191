// Layouts outside a plan: sizes of buffers and conversion from one to another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::runtime {

// Bytes of a matrix whose layout states its shape; a batch of 0 counts as 1.
base::Result<size_t> layout_bytes(const gemm_layout_t& layout, gemm_precision_t precision);

// Copies between layouts of one shape. INVALID_ARGUMENT for null or overlapping buffers.
base::Result<void> convert_layout(void* destination, const gemm_layout_t& to, const void* source,
                                  const gemm_layout_t& from, gemm_precision_t precision);

// Bytes that an operand of an intent may need: for a layout declared ANY as many as any choice of
// the planner takes. UNSUPPORTED for INT4 weights, which have no dense form.
base::Result<size_t> operand_bytes(const gemm_intent_t& intent, deepgemm_operand_t operand,
                                   int64_t m, int64_t n, int64_t k);

}  // namespace deepgemm::runtime
