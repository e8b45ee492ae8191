// Which tile of C, batch and part of K a block works on. Blocks walk through all of them with the
// number of blocks as step, so that every number of blocks is right.
#pragma once

#include "families/arguments.cuh"
#include "families/config.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

struct Tile {
  i32 batch, split;
  i32 row, column;  // first of the tile, in C
  u32 index;        // among the tiles of all batches
};

// The host sees to it that there are fewer than 2^31 items: divisions of 64 bits would take longer
// than the product of a small tile.
struct TileGrid {
  u32 rows, columns;  // tiles
  u32 batch, splits, raster;

  PTX_FN u32 tiles() const { return rows * columns * batch; }
  PTX_FN u32 items() const { return tiles() * splits; }
};

template <Config C>
PTX_FN TileGrid tile_grid(const GemmArguments& arguments, i32 n) {
  constexpr i32 kColumns = C.output_columns(C.block_n);
  const i32 columns = C.swiglu() ? n / 2 : n;
  TileGrid grid;
  grid.rows = static_cast<u32>(arguments.m + C.block_m - 1) / C.block_m;
  grid.columns = static_cast<u32>(columns + kColumns - 1) / kColumns;
  grid.batch = static_cast<u32>(arguments.batch);
  grid.splits = C.split ? static_cast<u32>(arguments.splits) : 1;
  grid.raster = static_cast<u32>(arguments.raster);
  return grid;
}

// Batches one after the other, in each the parts of K, in each the tiles: groups of `raster` rows
// of tiles, columns within a group one after the other. Blocks that run together then share rows
// of A and columns of B in the second-level cache.
template <Config C>
PTX_FN Tile tile_at(const TileGrid& grid, u32 item) {
  const u32 plane = grid.rows * grid.columns;
  const u32 outer = item / plane;
  const u32 inside = item - outer * plane;
  Tile tile;
  tile.split = 0;
  u32 batch = outer;
  if constexpr (C.split) {
    batch = outer / grid.splits;
    tile.split = static_cast<i32>(outer - batch * grid.splits);
  }
  const u32 group_size = grid.raster * grid.columns;
  const u32 group = inside / group_size;
  const u32 rest = inside - group * group_size;
  const u32 first = group * grid.raster;
  const u32 height = grid.rows - first < grid.raster ? grid.rows - first : grid.raster;
  const u32 column = rest / height;
  tile.batch = static_cast<i32>(batch);
  tile.row = static_cast<i32>(first + rest - column * height) * C.block_m;
  tile.column = static_cast<i32>(column) * C.output_columns(C.block_n);
  tile.index = batch * plane + inside;
  return tile;
}

// Blocks of block_k values of k: [first, last) are the part `split` of all. A part is a multiple
// of the promotion interval.
struct KRange {
  i32 first, last;
};

template <Config C>
PTX_FN KRange k_range(i32 k, const TileGrid& grid, i32 split) {
  const i32 blocks = k / C.block_k + (k % C.block_k != 0);
  if constexpr (!C.split) return {0, blocks};
  constexpr i32 kGranule = C.promote > C.block_k ? C.promote / C.block_k : 1;
  const i32 granules = blocks / kGranule + (blocks % kGranule != 0);
  const i32 splits = static_cast<i32>(grid.splits);
  const i32 each = (granules / splits + (granules % splits != 0)) * kGranule;
  const i64 first = static_cast<i64>(each) * split;
  if (first >= blocks) return {blocks, blocks};
  const i32 begin = static_cast<i32>(first);
  return {begin, begin + smaller(blocks - begin, each)};
}

}  // namespace deepgemm::kernel
