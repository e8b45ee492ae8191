// Where the elements of a stored matrix (or batch of matrices) lie. Pure values.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::layout {

constexpr int64_t kBlockedTile = 16;  // edge of a LAYOUT_BLOCKED_16x16 tile

// A resolved layout: no zeros that mean "choose". Strides count elements; a stride of 0 repeats.
// Element (batch, row, col) is at batch*batch_stride + row*row_stride + col*col_stride, except when
// blocked: then tiles of 16x16 lie row-major, `row_stride` is unused (0) and edge tiles are full
// size. The base pointer is that of element (0, 0, 0), also where negative strides reach below it.
struct MatrixLayout {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  bool blocked = false;

  bool operator==(const MatrixLayout&) const = default;
};

// Offset of an element; no bounds check. 64 bits throughout.
int64_t element_offset(const MatrixLayout& layout, int64_t batch, int64_t row, int64_t col);

// Elements from the lowest to the highest address touched, as [first, last] offsets relative to the
// base pointer; empty matrices give {0, -1}. INVALID_ARGUMENT when it does not fit 63 bits.
struct Extent {
  int64_t first = 0;
  int64_t last = -1;
};
base::Result<Extent> extent(const MatrixLayout& layout);

// Resolves a declared layout for an operand stored as batch x rows x cols (each >= 0). `name` ("A")
// goes into messages. Strides of 0 become contiguous: the dimensions further in span what their
// strides reach. The declared stride of a dimension of size 0 or 1 has no effect and is replaced
// so. ANY is row-major. INVALID_ARGUMENT for shapes that contradict, unknown enum values, strides
// with BLOCKED_16x16, elements of an output that share an address, and offsets beyond 63 bits.
base::Result<MatrixLayout> resolve(const gemm_layout_t& declared, int64_t batch, int64_t rows,
                                   int64_t cols, const char* name, bool is_output);

// True when two elements of the layout share an address (broadcast or overlapping strides). Exact
// for every layout whose extent() fits 63 bits; true for others. Nested strides take constant time,
// others up to the smallest dimension (at most 2^21) times a logarithm.
bool overlaps_itself(const MatrixLayout& layout);

// The same matrix with rows and columns exchanged. Blocked layouts have no strided transpose and
// come back unchanged: check `blocked` first.
MatrixLayout transposed(const MatrixLayout& layout);

// Copies elements between layouts of equal shape. Padding of blocked edge tiles is zeroed. Buffers
// may not overlap. INVALID_ARGUMENT for null pointers, unequal shapes and a destination that
// overlaps itself, UNSUPPORTED for formats below 8 bits.
base::Result<void> convert(void* destination, const MatrixLayout& to, const void* source,
                           const MatrixLayout& from, gemm_precision_t precision);

// Bytes a buffer of this layout needs, from its lowest to its highest element (0 for an empty
// matrix).
base::Result<int64_t> buffer_bytes(const MatrixLayout& layout, gemm_precision_t precision);

}  // namespace deepgemm::layout
