#include "backend/cpu/operand_view.hpp"

#include <algorithm>
#include <cstring>

#include "layout/matrix_layout.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int64_t kTransposeRows = 64;  // values of a stored column that are widened at a time
constexpr int64_t kTransposeColumns = 16;
constexpr int64_t kBlockScale = 128;  // edge of a BLOCK_128 scale block

// A strided rectangle in memory.
struct Rectangle {
  const uint8_t* base;
  Source source;
  int64_t row_stride, column_stride;  // elements
  int64_t rows, columns;

  const uint8_t* at(int64_t row, int64_t column) const {
    return base + (row * row_stride + column * column_stride) * source_bytes(source);
  }
};

template <class T>
void load_rows(const Kernels<T>& kernels, const Rectangle& from, T* to, int64_t to_stride) {
  kernels.widen(from.source, from.base, from.row_stride * source_bytes(from.source), to, to_stride,
                from.rows, from.columns);
}

// Stored columns are contiguous: widens pieces of them, then transposes.
template <class T>
void load_columns(const Kernels<T>& kernels, const Rectangle& from, T* to, int64_t to_stride) {
  constexpr Source kAsItIs = sizeof(T) == sizeof(float) ? Source::kFp32 : Source::kFp64;
  alignas(64) T piece[kTransposeColumns * kTransposeRows];
  const int64_t column_bytes = from.column_stride * source_bytes(from.source);
  for (int64_t i = 0; i < from.rows; i += kTransposeRows) {
    const int64_t rows = std::min(kTransposeRows, from.rows - i);
    for (int64_t j = 0; j < from.columns; j += kTransposeColumns) {
      const int64_t columns = std::min(kTransposeColumns, from.columns - j);
      const void* source = from.at(i, j);
      T* const target = to + i * to_stride + j;
      if (from.source == kAsItIs) {
        kernels.transpose(static_cast<const T*>(source), from.column_stride, target, to_stride,
                          rows, columns);
        continue;
      }
      kernels.widen(from.source, source, column_bytes, piece, kTransposeRows, columns, rows);
      kernels.transpose(piece, kTransposeRows, target, to_stride, rows, columns);
    }
  }
}

// Any strides, zero and negative ones included: collects elements, then widens them.
template <class T>
void load_scattered(const Kernels<T>& kernels, const Rectangle& from, T* to, int64_t to_stride) {
  constexpr int64_t kCollected = 128;
  alignas(64) uint8_t collected[kCollected * sizeof(double)];
  const auto size = static_cast<size_t>(source_bytes(from.source));
  for (int64_t i = 0; i < from.rows; ++i) {
    for (int64_t j = 0; j < from.columns; j += kCollected) {
      const int64_t count = std::min(kCollected, from.columns - j);
      for (int64_t c = 0; c < count; ++c) {
        std::memcpy(collected + static_cast<size_t>(c) * size, from.at(i, j + c), size);
      }
      kernels.widen(from.source, collected, 0, to + i * to_stride + j, 0, 1, count);
    }
  }
}

template <class T>
void load_rectangle(const Kernels<T>& kernels, const Rectangle& from, T* to, int64_t to_stride) {
  if (from.column_stride == 1 || from.columns == 1) {
    load_rows(kernels, from, to, to_stride);
  } else if (from.row_stride == 1) {
    load_columns(kernels, from, to, to_stride);
  } else {
    load_scattered(kernels, from, to, to_stride);
  }
}

// End of the 16-wide tile that `index` lies in, but not beyond `end`.
int64_t tile_end(int64_t index, int64_t end) {
  return std::min(end, (index / layout::kBlockedTile + 1) * layout::kBlockedTile);
}

}  // namespace

std::optional<Source> source_of(gemm_precision_t precision) {
  switch (precision) {
    case PRECISION_FP64:
      return Source::kFp64;
    case PRECISION_FP32:
    case PRECISION_TF32:
      return Source::kFp32;
    case PRECISION_FP16:
      return Source::kFp16;
    case PRECISION_BF16:
      return Source::kBf16;
    case PRECISION_FP8_E4M3:
      return Source::kE4m3;
    case PRECISION_FP8_E5M2:
      return Source::kE5m2;
    case PRECISION_INT8:
      return Source::kInt8;
    default:
      return std::nullopt;
  }
}

int64_t source_bytes(Source source) {
  switch (source) {
    case Source::kFp64:
      return 8;
    case Source::kFp32:
      return 4;
    case Source::kFp16:
    case Source::kBf16:
      return 2;
    case Source::kE4m3:
    case Source::kE5m2:
    case Source::kInt8:
      break;
  }
  return 1;
}

template <class T>
void load_block(const Kernels<T>& kernels, const MatrixView& view, int64_t batch,
                const Block& block, T* to, int64_t to_stride) {
  const layout::MatrixLayout& layout = view.layout;
  const auto load = [&](const Block& part) {
    const int64_t offset = view.transposed
                               ? layout::element_offset(layout, batch, part.column, part.row)
                               : layout::element_offset(layout, batch, part.row, part.column);
    const int64_t row_stride = layout.blocked ? layout::kBlockedTile : layout.row_stride;
    const int64_t column_stride = layout.blocked ? 1 : layout.col_stride;
    Rectangle from{static_cast<const uint8_t*>(view.base) + offset * source_bytes(view.source),
                   view.source,
                   row_stride,
                   column_stride,
                   part.rows,
                   part.columns};
    if (view.transposed) std::swap(from.row_stride, from.column_stride);
    load_rectangle(kernels, from,
                   to + (part.row - block.row) * to_stride + part.column - block.column, to_stride);
  };
  if (!layout.blocked) return load(block);
  const int64_t row_end = block.row + block.rows;
  const int64_t column_end = block.column + block.columns;
  for (int64_t i = block.row; i < row_end; i = tile_end(i, row_end)) {
    for (int64_t j = block.column; j < column_end; j = tile_end(j, column_end)) {
      load({i, tile_end(i, row_end) - i, j, tile_end(j, column_end) - j});
    }
  }
}

template void load_block(const Kernels<float>&, const MatrixView&, int64_t, const Block&, float*,
                         int64_t);
template void load_block(const Kernels<double>&, const MatrixView&, int64_t, const Block&, double*,
                         int64_t);

ScaleView scale_view(gemm_dequant_strategy_t strategy, const float* base, bool is_b,
                     int64_t group_size, int64_t k) {
  const int64_t whole_k = std::max<int64_t>(k, 1);
  const int64_t group = group_size > 0 ? group_size : whole_k;
  switch (strategy) {
    case DEQUANT_STRATEGY_PER_TENSOR:
      return {base, 1, 0, whole_k};
    case DEQUANT_STRATEGY_PER_GROUP:
      return {base, 1, (whole_k + group - 1) / group, group};
    case DEQUANT_STRATEGY_BLOCK_128:
      return {base, is_b ? kBlockScale : 1, (whole_k + kBlockScale - 1) / kBlockScale, kBlockScale};
    case DEQUANT_STRATEGY_DEFAULT:
    case DEQUANT_STRATEGY_PER_CHANNEL:
    case DEQUANT_STRATEGY_PER_CHANNEL_DYNAMIC:
      break;
  }
  return {base, 1, 1, whole_k};
}

}  // namespace deepgemm::cpu
