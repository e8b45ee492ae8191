// What the products of a launch share: its operands as they are read, and the tiles of C.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/epilogue.hpp"
#include "backend/cpu/executable.hpp"
#include "backend/cpu/launch.hpp"
#include "backend/cpu/operand_view.hpp"
#include "backend/cpu/packed_panels.hpp"
#include "backend/cpu/skip.hpp"

namespace deepgemm::cpu {

inline int64_t ceil_div(int64_t value, int64_t step) { return (value + step - 1) / step; }

// Part `part` of `parts` of what is read soon, to the L2 cache.
inline void prefetch_part(const uint8_t* from, int64_t bytes, int64_t part, int64_t parts) {
  constexpr int64_t kLine = 64;
  const int64_t lines = bytes / kLine;
  for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
    __builtin_prefetch(from + line * kLine, 0, 2);
  }
}

// Rows of one matrix of C.
struct RowTile {
  int64_t batch = 0;
  int64_t row = 0, rows = 0;
};

// Columns of op(B) whose sums start at `sums_column`.
struct Segment {
  int64_t column = 0, columns = 0;
  int64_t sums_column = 0;
};

struct Tile {
  RowTile rows;
  TileColumns columns;
  Segment segments[2];  // two with SWIGLU: gate and up
  int segment_count = 1;
};

// Operands of one launch.
struct ProductInput {
  const Executable& executable;
  const Operands& operands;
  MatrixView a, b;  // b unless the weights are packed
  ScaleView scale_a, scale_b;
  bool integers = false;  // scales wait for the epilogue
  Skipping skipping;      // after its pre-pass
};

}  // namespace deepgemm::cpu
