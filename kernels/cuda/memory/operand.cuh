// Where the elements of A and B lie, and loads of runs of them that stop at the edges.
#pragma once

#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

// A or B of one batch, with the rows and values of k that exist.
struct Panel {
  const void* base;
  i64 row_step, k_step;
  i32 rows, k;
};

template <Operand kOperand>
PTX_FN Panel panel_of(const OperandArgument& operand, i64 batch, i32 rows, i32 k) {
  const i64 bytes = batch * operand.batch_step * format_bytes(kOperand.format);
  return {ptx::advance(operand.base, bytes), operand.row_step, operand.k_step, rows, k};
}

template <Operand kOperand>
PTX_FN const void* element_at(const Panel& panel, i32 row, i32 k) {
  constexpr i32 kEdge = 16, kTile = kEdge * kEdge;
  i64 offset;
  if constexpr (kOperand.access == Access::kAlongK) {
    offset = row * panel.row_step + k;
  } else if constexpr (kOperand.access == Access::kAlongRows) {
    offset = k * panel.k_step + row;
  } else if constexpr (kOperand.access == Access::kStrided) {
    offset = row * panel.row_step + k * panel.k_step;
  } else if constexpr (kOperand.access == Access::kBlocked) {
    offset = row / kEdge * panel.row_step + k / kEdge * kTile + row % kEdge * kEdge + k % kEdge;
  } else {
    offset = k / kEdge * panel.row_step + row / kEdge * kTile + k % kEdge * kEdge + row % kEdge;
  }
  return ptx::advance(panel.base, offset * format_bytes(kOperand.format));
}

// kCount elements from (row, k) on, along k or along rows; those beyond the edges are zero.
template <Operand kOperand, bool kAlongRows, i32 kCount, class Value>
PTX_FN void load_run(const Panel& panel, i32 row, i32 k, Value (&to)[kCount]) {
  constexpr i32 kSize = format_bytes(kOperand.format);
  constexpr i32 kBytes = kCount * kSize;
  constexpr bool kTogether = kAlongRows ? along_rows(kOperand.access) : along_k(kOperand.access);
  constexpr i32 kStep = smaller(kBytes, 16);  // bytes of one load
  constexpr ptx::Cache kCache = kOperand.streaming ? ptx::Cache::kStreaming : ptx::Cache::kReadOnly;
  const i32 count =
      kAlongRows ? (k < panel.k ? panel.rows - row : 0) : (row < panel.rows ? panel.k - k : 0);
  if constexpr (kTogether && kOperand.width >= kStep && kStep % kSize == 0) {
    if (count >= kCount) {
      const void* from = element_at<kOperand>(panel, row, k);
      constexpr i32 kEach = kStep / kSize;
      PTX_UNROLL for (i32 i = 0; i < kCount; i += kEach) {
        const auto words = ptx::load_global<kStep, kCache>(ptx::advance(from, i * kSize));
        PTX_UNROLL for (i32 j = 0; j < kEach; ++j) {
          to[i + j] = decode<kOperand.format, Value>(element_of<kOperand.format>(words, j));
        }
      }
      return;
    }
  }
  PTX_UNROLL for (i32 i = 0; i < kCount; ++i) {
    const void* from =
        element_at<kOperand>(panel, kAlongRows ? row + i : row, kAlongRows ? k : k + i);
    to[i] = decode<kOperand.format, Value>(ptx::load_global_if<kSize, kCache>(from, i < count));
  }
}

// Row of B (column of op(B)) of column `column` of a block's tile that starts at column `first` of
// C. With SwiGLU each warp holds columns of the gate, then the same columns of the other half. `n`
// and more: there is none.
template <Config C>
PTX_FN i32 row_of_b(i32 first, i32 column, i32 n) {
  if constexpr (!C.swiglu()) return first + column;
  constexpr i32 kHalf = C.warp_n / 2;
  const i32 inside = column % C.warp_n;
  const i32 output = first + column / C.warp_n * kHalf + inside % kHalf;
  if (output >= n / 2) return n;
  return inside < kHalf ? output : output + n / 2;
}

}  // namespace deepgemm::kernel
