// Dense operands and their scales as a product reads them: by (row, column) of op(X).
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cpu/kernels.hpp"
#include "deepgemm/types.h"
#include "layout/matrix_layout.hpp"

namespace deepgemm::cpu {

// The widening loop of a format; none for formats that are never read as a dense matrix (INT4).
std::optional<Source> source_of(gemm_precision_t precision);
int64_t source_bytes(Source source);

// op(X) of a stored matrix. `transposed`: row and column of op(X) are column and row as stored.
struct MatrixView {
  const void* base = nullptr;
  Source source = Source::kFp32;
  layout::MatrixLayout layout;
  bool transposed = false;
};

struct Block {
  int64_t row = 0, rows = 0;
  int64_t column = 0, columns = 0;
};

// to[i * to_stride + j] = element (block.row + i, block.column + j) of matrix `batch`, widened to
// T.
template <class T>
void load_block(const Kernels<T>& kernels, const MatrixView& view, int64_t batch,
                const Block& block, T* to, int64_t to_stride);

// Calls run(offset, stride, start, count) for the pieces of a stored row that have one stride:
// columns start ... start+count-1 of the range lie at offset, offset + stride, ...
template <class Run>
void for_each_run(const layout::MatrixLayout& layout, int64_t batch, int64_t row, int64_t column,
                  int64_t columns, Run run) {
  if (!layout.blocked) {
    run(layout::element_offset(layout, batch, row, column), layout.col_stride, int64_t{0}, columns);
    return;
  }
  for (int64_t start = 0; start < columns;) {
    const int64_t in_tile = (column + start) % layout::kBlockedTile;
    const int64_t left = layout::kBlockedTile - in_tile;
    const int64_t count = left < columns - start ? left : columns - start;
    run(layout::element_offset(layout, batch, row, column + start), int64_t{1}, start, count);
    start += count;
  }
}

// Scales of a dense operand: one per `outer_block` rows of op(A) or columns of op(B) and `k_block`
// values of k. base null: no scales.
struct ScaleView {
  const float* base = nullptr;
  int64_t outer_block = 1;
  int64_t outer_stride = 0;
  int64_t k_block = 1;

  float at(int64_t outer, int64_t k) const {
    return base[outer / outer_block * outer_stride + k / k_block];
  }
};

// The granularity of gemm_dequant_strategy_t for op(A) (is_b false) or op(B) with k values of k.
ScaleView scale_view(gemm_dequant_strategy_t strategy, const float* base, bool is_b,
                     int64_t group_size, int64_t k);

}  // namespace deepgemm::cpu
