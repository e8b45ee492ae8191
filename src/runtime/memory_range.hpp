// Which bytes an operand touches, and whether two operands share any.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "layout/matrix_layout.hpp"

namespace deepgemm::runtime {

// Half-open range of addresses; empty when first == last. For a matrix of evenly spaced equal rows
// also the rows' width and distance (pitch 0: none such), so that two column slices of one buffer
// can be told apart though their ranges interleave.
struct MemoryRange {
  uintptr_t first = 0;
  uintptr_t last = 0;
  uintptr_t row_bytes = 0;
  uintptr_t pitch = 0;

  bool empty() const { return first == last; }
};

// Range of contiguous memory.
MemoryRange contiguous_range(const void* data, int64_t bytes);
// Range of a matrix or batch at `data`. Refuses what layout::extent refuses.
base::Result<MemoryRange> matrix_range(const void* data, const layout::MatrixLayout& layout,
                                       gemm_precision_t precision);

// Never false when a byte is shared; true without a shared byte only for layouts whose rows are not
// evenly spaced by the same distance.
bool may_overlap(const MemoryRange& left, const MemoryRange& right);

}  // namespace deepgemm::runtime
