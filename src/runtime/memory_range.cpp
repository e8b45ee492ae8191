#include "runtime/memory_range.hpp"

#include <algorithm>

#include "base/formats.hpp"

namespace deepgemm::runtime {
namespace {

// Row width and pitch of a matrix whose rows (or columns) are runs of adjacent elements. A batch
// keeps them when its matrices lie a whole number of pitches apart.
void set_rows(MemoryRange& range, const layout::MatrixLayout& layout, int64_t element_bytes) {
  if (layout.blocked) return;
  const bool row_runs = layout.col_stride == 1 || layout.cols == 1;
  if (!row_runs && layout.row_stride != 1 && layout.rows != 1) return;
  const int64_t run = row_runs ? layout.cols : layout.rows;
  const int64_t pitch = row_runs ? layout.row_stride : layout.col_stride;
  if (pitch < run) return;
  if (layout.batch > 1 && layout.batch_stride % pitch != 0) return;
  range.row_bytes = static_cast<uintptr_t>(run * element_bytes);
  range.pitch = static_cast<uintptr_t>(pitch * element_bytes);
}

}  // namespace

MemoryRange contiguous_range(const void* data, int64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  return {first, first + static_cast<uintptr_t>(std::max<int64_t>(bytes, 0)), 0, 0};
}

base::Result<MemoryRange> matrix_range(const void* data, const layout::MatrixLayout& layout,
                                       gemm_precision_t precision) {
  DEEPGEMM_TRY_ASSIGN(extent, layout::extent(layout));
  if (extent.last < extent.first) return MemoryRange{};
  // Offsets may be negative; unsigned arithmetic wraps to the right address.
  const auto base = reinterpret_cast<uintptr_t>(data);
  const int64_t element_bytes = base::storage_bytes(precision, 1);
  const auto at = [&](int64_t elements) {
    return base + static_cast<uintptr_t>(elements) * static_cast<uintptr_t>(element_bytes);
  };
  MemoryRange range{at(extent.first), at(extent.last + 1), 0, 0};
  set_rows(range, layout, element_bytes);
  return range;
}

bool may_overlap(const MemoryRange& left, const MemoryRange& right) {
  if (left.empty() || right.empty()) return false;
  if (left.last <= right.first || right.last <= left.first) return false;
  if (left.pitch == 0 || left.pitch != right.pitch) return true;
  // Both touch [offset, offset + width) modulo the pitch only: on that circle the right run begins
  // `ahead` after the left one.
  const uintptr_t pitch = left.pitch;
  const uintptr_t ahead = (right.first % pitch + pitch - left.first % pitch) % pitch;
  return ahead < left.row_bytes || ahead + right.row_bytes > pitch;
}

}  // namespace deepgemm::runtime
