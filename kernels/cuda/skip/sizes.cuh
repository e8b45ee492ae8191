// What the kernels of tile skipping share: how many norms there are and where they lie. The rule,
// and why it is safe, is in docs/contract.md, "Tile skipping"; src/contract/skip.hpp is the same on
// the host. A vector is a row of A or a column of op(B).
#pragma once

#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"
#include "schedule/tiles.cuh"

namespace deepgemm::kernel {

inline constexpr i32 kSideA = 0, kSideB = 1;
inline constexpr u32 kInfinityBits = 0x7F800000;

PTX_FN float largest_float() { return ptx::float_of(kInfinityBits - 1); }
PTX_FN bool is_finite(float magnitude) { return magnitude <= largest_float(); }

// Norms of a vector within a granule, in this order in memory.
enum SkipNorm : i32 {
  kSkipSum,      // of magnitudes, rounded up; infinity when a value is not finite
  kSkipLargest,  // magnitude; likewise
  kSkipAbove     // number of values that reach skip_threshold(); then 0
};

// A quarter of the mean of `count` magnitudes: what values must reach to count.
PTX_FN float skip_threshold(float sum, i32 count) {
  return ptx::multiply_down(sum, ptx::divide_down(0.25F, static_cast<float>(count)));
}

PTX_FN i32 ceil_div(i32 value, i32 by) { return value / by + (value % by != 0); }

template <Config C>
struct SkipSizes {
  const SkipArguments& places;
  i32 vectors[2];   // of a matrix of A, of B
  i32 matrices[2];  // a batch that repeats one has one
  i32 tiles[2];     // of the vectors of a matrix: rows and columns of tiles of C
  i32 k, granules;

  PTX_FN explicit SkipSizes(const GemmArguments& arguments) : places(arguments.skips) {
    const i32 n = C.fixed_n > 0 ? C.fixed_n : arguments.n;
    k = C.fixed_k > 0 ? C.fixed_k : arguments.k;
    granules = ceil_div(k, kSkipGranule);
    const TileGrid grid = tile_grid<C>(arguments, n);
    vectors[kSideA] = arguments.m;
    vectors[kSideB] = n;
    matrices[kSideA] = arguments.a.batch_step == 0 ? 1 : arguments.batch;
    matrices[kSideB] = arguments.b.batch_step == 0 ? 1 : arguments.batch;
    tiles[kSideA] = static_cast<i32>(grid.rows);
    tiles[kSideB] = static_cast<i32>(grid.columns);
  }

  // Of vector 0 of the matrix: those of the others follow.
  PTX_FN float* norms(i32 side, i32 matrix, i32 granule, SkipNorm which) const {
    const i64 of_a = static_cast<i64>(matrices[kSideA]) * granules * vectors[kSideA];
    const i64 line = static_cast<i64>(matrix) * granules + granule;
    return places.norms +
           ((side == kSideB ? of_a : 0) + line * vectors[side]) * kSkipNormsOfVector +
           which * static_cast<i64>(vectors[side]);
  }
  PTX_FN float norm(i32 side, i32 matrix, i32 granule, SkipNorm which, i32 vector) const {
    return value_of<float>(ptx::load_global<4>(norms(side, matrix, granule, which) + vector), 0);
  }

  // Number of a tile of vectors among all.
  PTX_FN i32 tile(i32 side, i32 matrix, i32 index) const {
    return (side == kSideB ? matrices[kSideA] * tiles[kSideA] : 0) + matrix * tiles[side] + index;
  }
  PTX_FN float* merged(i32 tile, i32 granule) const {
    return places.merged + (static_cast<i64>(tile) * granules + granule) * kSkipNormsOfTile;
  }
};

}  // namespace deepgemm::kernel
