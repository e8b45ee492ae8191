// Third pass of tile skipping: the blocks of k that each tile of C keeps. A warp takes a tile.
// Every rounding errs on the side of keeping.
#pragma once

#include "skip/merge.cuh"
#include "skip/sizes.cuh"

namespace deepgemm::kernel {

template <Config C>
struct TileDecision {
  const SkipSizes<C>& sizes;
  i32 tile_a, tile_b;  // numbers of the tiles of vectors

  PTX_FN MergedNorm norm(i32 tile, i32 granule) const {
    const auto words = ptx::load_global<16>(sizes.merged(tile, granule));
    return {words.word[0], words.word[1], words.word[2], words.word[3]};
  }

  // Largest sum of |a||b| that an element can have within the granule, by Hoelder's inequality.
  PTX_FN float most(i32 granule) const {
    const MergedNorm a = norm(tile_a, granule), b = norm(tile_b, granule);
    if (a.sum >= kInfinityBits || b.sum >= kInfinityBits) return ptx::float_of(kInfinityBits);
    const float first = ptx::multiply_up(ptx::float_of(a.sum), ptx::float_of(b.largest));
    const float second = ptx::multiply_up(ptx::float_of(a.largest), ptx::float_of(b.sum));
    return first < second ? first : second;
  }

  // Least sum of |a||b|: of the values that reach a threshold, this many meet one that does.
  PTX_FN float least(i32 granule) const {
    const MergedNorm a = norm(tile_a, granule), b = norm(tile_b, granule);
    const i32 count = smaller(kSkipGranule, sizes.k - granule * kSkipGranule);
    const float meet = ptx::float_of(a.above) + ptx::float_of(b.above) - static_cast<float>(count);
    if (!(meet > 0) || !is_finite(meet)) return 0;
    const float threshold =
        ptx::multiply_down(ptx::float_of(a.threshold), ptx::float_of(b.threshold));
    return ptx::multiply_down(threshold, meet);
  }

  // What all blocks together may be charged. All lanes take part.
  PTX_FN float budget(double alpha) const {
    const SkipArguments& given = sizes.places;
    float sum = 0;
    for (i32 granule = static_cast<i32>(ptx::lane()); granule < sizes.granules; granule += 32) {
      sum = ptx::add_down(sum, least(granule));
    }
    PTX_UNROLL for (i32 mask = 16; mask > 0; mask /= 2) {
      sum = ptx::add_down(sum, ptx::float_of(ptx::exchange(ptx::bits_of(sum), mask)));
    }
    if (given.relative > 0) return ptx::multiply_down(ptx::float_below(given.relative), sum);
    const double a = value_of<float>(ptx::load_global<4>(given.weights + tile_a), 0);
    const double b = value_of<float>(ptx::load_global<4>(given.weights + tile_b), 0);
    const double scale = ptx::multiply_up(ptx::multiply_up(alpha < 0 ? -alpha : alpha, a), b);
    const float whole = ptx::float_below(ptx::divide_down(given.absolute, scale));
    return whole > largest_float() ? largest_float() : whole;
  }

  // Of block `block` of k: every granule that it touches.
  PTX_FN float charge(i32 block) const {
    const i32 begin = block * C.block_k;
    const i32 end = begin + smaller(C.block_k, sizes.k - begin);
    float charge = 0;
    for (i32 granule = begin / kSkipGranule; granule * kSkipGranule < end; ++granule) {
      charge = ptx::add_up(charge, most(granule));
    }
    return charge;
  }

  PTX_FN void run(double alpha, u32 tile) const {
    const i32 blocks = ceil_div(sizes.k, C.block_k);
    const i32 judged = smaller(blocks, kSkipMostBlocks);
    const float share = ptx::divide_down(budget(alpha), static_cast<float>(blocks));
    unsigned short* const list = sizes.places.kept + static_cast<i64>(tile) * judged;
    const u32 lower_lanes = (1U << ptx::lane()) - 1;
    i32 kept = 0;
    PTX_ROLLED for (i32 first = 0; first < judged; first += 32) {
      const i32 block = first + static_cast<i32>(ptx::lane());
      const bool keeps = block < judged && !(charge(block) <= share);
      const u32 keepers = ptx::ballot(keeps);
      if (keeps) {
        ptx::store_global(list + kept + ptx::count_ones(keepers & lower_lanes),
                          ptx::Words<2>{{static_cast<u32>(block)}});
      }
      kept += ptx::count_ones(keepers);
    }
    if (ptx::lane() == 0) {
      ptx::store_global(sizes.places.counts + tile, ptx::Words<4>{{static_cast<u32>(kept)}});
    }
  }
};

template <Config C>
PTX_FN void skip_decide(const GemmArguments& arguments) {
  ptx::wait_for_previous_grid();
  const SkipSizes<C> sizes(arguments);
  TileGrid grid = tile_grid<C>(arguments, sizes.vectors[kSideB]);
  grid.splits = 1;
  constexpr u32 kWarps = kSkipDecideThreads / 32;
  PTX_ROLLED for (u32 item = ptx::block() * kWarps + ptx::warp(); item < grid.tiles();
                  item += ptx::blocks() * kWarps) {
    const Tile tile = tile_at<C>(grid, item);
    const i32 row = tile.row / C.block_m;
    const i32 column = tile.column / C.output_columns(C.block_n);
    const i32 matrix_a = sizes.matrices[kSideA] == 1 ? 0 : tile.batch;
    const i32 matrix_b = sizes.matrices[kSideB] == 1 ? 0 : tile.batch;
    const TileDecision<C> decision{sizes, sizes.tile(kSideA, matrix_a, row),
                                   sizes.tile(kSideB, matrix_b, column)};
    decision.run(arguments.alpha, tile.index);
  }
}

}  // namespace deepgemm::kernel
