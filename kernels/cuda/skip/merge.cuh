// Second pass of tile skipping: the norms of all vectors of a tile become one, each divided by the
// vector's weight, so that rows and columns of different size count alike.
#pragma once

#include "epilogue/finish.cuh"
#include "memory/operand.cuh"
#include "skip/sizes.cuh"

namespace deepgemm::kernel {

// Of a tile and granule; as bits, in whose order numbers that are not negative lie, NaN last.
struct MergedNorm {
  u32 sum = 0, largest = 0;                              // largest of its vectors
  u32 threshold = kInfinityBits, above = kInfinityBits;  // smallest

  PTX_FN void merge(const MergedNorm& other) {
    sum = other.sum > sum ? other.sum : sum;
    largest = other.largest > largest ? other.largest : largest;
    threshold = other.threshold < threshold ? other.threshold : threshold;
    above = other.above < above ? other.above : above;
  }
  PTX_FN void merge_lanes() {
    PTX_UNROLL for (i32 mask = 16; mask > 0; mask /= 2) {
      merge({ptx::exchange(sum, mask), ptx::exchange(largest, mask), ptx::exchange(threshold, mask),
             ptx::exchange(above, mask)});
    }
  }
};

template <Config C, i32 kSide>
struct TileNorms {
  static constexpr i32 kExtent = kSide == kSideA ? C.block_m : C.block_n;  // vectors of a tile
  static constexpr i32 kWarps = kSkipMergeThreads / 32;

  const SkipSizes<C>& sizes;
  u32 shared;  // a weight for each vector; then for each warp what it adds to them

  PTX_FN static i32 items(const SkipSizes<C>& sizes) {
    return sizes.matrices[kSide] * sizes.tiles[kSide];
  }

  PTX_FN void run_item(const GemmArguments& arguments, i32 item) const {
    const i32 matrix = item / sizes.tiles[kSide];
    const i32 tile = item - matrix * sizes.tiles[kSide];
    add_weights(matrix, tile);
    ptx::warp_sync();
    ptx::block_sync();
    const i32 number = sizes.tile(kSide, matrix, tile);
    finish_weights(arguments, tile, number);
    ptx::warp_sync();
    ptx::block_sync();
    merge(matrix, tile, number);
  }

  // Number of a vector of the tile; that of none is beyond the last.
  PTX_FN i32 vector(i32 tile, i32 inside) const {
    if (inside >= kExtent) return sizes.vectors[kSide];
    if constexpr (kSide == kSideA) return tile * kExtent + inside;
    return row_of_b<C>(tile * C.output_columns(kExtent), inside, sizes.vectors[kSide]);
  }
  PTX_FN u32 weight(i32 inside) const { return shared + static_cast<u32>(inside) * 4; }
  PTX_FN u32 part(i32 warp, i32 inside) const { return weight((warp + 1) * kExtent + inside); }
  PTX_FN u32 largest_weight(i32 warp) const { return part(kWarps, warp); }

  // The sums that are finite, each warp those of every kWarps-th granule, in the order of k.
  PTX_FN void add_weights(i32 matrix, i32 tile) const {
    const i32 lane = static_cast<i32>(ptx::lane()), warp = static_cast<i32>(ptx::warp());
    PTX_ROLLED for (i32 inside = lane; inside < kExtent; inside += 32) {
      const i32 v = vector(tile, inside);
      float weight = 0;
      if (v < sizes.vectors[kSide]) {
        for (i32 granule = warp; granule < sizes.granules; granule += kWarps) {
          const float sum = sizes.norm(kSide, matrix, granule, kSkipSum, v);
          weight = ptx::add_up(weight, is_finite(sum) ? sum : 0);
        }
      }
      ptx::store_shared(part(warp, inside), words_of(weight));
    }
  }

  // One factor of the vector's elements of C.
  PTX_FN static float scale(const GemmArguments& arguments, i32 v) {
    if constexpr (kSide == kSideA) {
      return C.epilogue.row_scale ? scale_at(arguments.scale_a, v, 0) : 1.0F;
    } else {
      return C.epilogue.column_scale ? scale_at(arguments.scale_b, v, 0) : 1.0F;
    }
  }

  // A factor that is not finite makes the weight NaN, and with it all norms of the tile: nothing is
  // left out. The largest weight, with its factor, is what an absolute allowance is divided by.
  PTX_FN void finish_weights(const GemmArguments& arguments, i32 tile, i32 number) const {
    const i32 thread = static_cast<i32>(ptx::thread());
    u32 largest = 0;
    PTX_ROLLED for (i32 inside = thread; inside < kExtent; inside += kSkipMergeThreads) {
      float sum = 0;
      PTX_UNROLL for (i32 w = 0; w < kWarps; ++w) {
        sum = ptx::add_up(sum, value_of<float>(ptx::load_shared<4>(part(w, inside)), 0));
      }
      if (!is_finite(sum)) sum = largest_float();
      const i32 v = vector(tile, inside);
      const float factor = v < sizes.vectors[kSide] ? scale(arguments, v) : 1.0F;
      const float magnitude = ptx::float_of(ptx::bits_of(factor) & 0x7FFFFFFF);
      const u32 scaled = ptx::bits_of(ptx::multiply_up(sum, magnitude));
      largest = scaled > largest ? scaled : largest;
      const u32 weighs = is_finite(magnitude) ? ptx::bits_of(sum) : kInfinityBits + 1;
      ptx::store_shared(weight(inside), ptx::Words<4>{{weighs}});
    }
    PTX_UNROLL for (i32 mask = 16; mask > 0; mask /= 2) {
      const u32 other = ptx::exchange(largest, mask);
      largest = other > largest ? other : largest;
    }
    if (ptx::lane() == 0) {
      ptx::store_shared(largest_weight(static_cast<i32>(ptx::warp())), ptx::Words<4>{{largest}});
    }
    ptx::warp_sync();
    ptx::block_sync();
    if (thread != 0) return;
    PTX_UNROLL for (i32 w = 0; w < kWarps; ++w) {
      const u32 other = ptx::load_shared<4>(largest_weight(w)).word[0];
      largest = other > largest ? other : largest;
    }
    ptx::store_global(sizes.places.weights + number, ptx::Words<4>{{largest}});
  }

  PTX_FN MergedNorm of_vector(i32 matrix, i32 granule, i32 inside, i32 v) const {
    MergedNorm norm;
    if (v >= sizes.vectors[kSide]) return norm;
    const float weighs = value_of<float>(ptx::load_shared<4>(weight(inside)), 0);
    const float sum = sizes.norm(kSide, matrix, granule, kSkipSum, v);
    if (weighs == 0 && is_finite(sum)) return norm;  // zero everywhere that it is finite
    const i32 count = smaller(kSkipGranule, sizes.k - granule * kSkipGranule);
    const float largest = sizes.norm(kSide, matrix, granule, kSkipLargest, v);
    norm.sum = ptx::bits_of(ptx::divide_up(sum, weighs));
    norm.largest = ptx::bits_of(ptx::divide_up(largest, weighs));
    norm.threshold = ptx::bits_of(ptx::divide_down(skip_threshold(sum, count), weighs));
    norm.above = ptx::bits_of(sizes.norm(kSide, matrix, granule, kSkipAbove, v));
    return norm;
  }

  // A warp takes a granule, its lanes the vectors.
  PTX_FN void merge(i32 matrix, i32 tile, i32 number) const {
    const i32 lane = static_cast<i32>(ptx::lane()), warp = static_cast<i32>(ptx::warp());
    PTX_ROLLED for (i32 granule = warp; granule < sizes.granules; granule += kWarps) {
      MergedNorm merged;
      PTX_ROLLED for (i32 inside = lane; inside < kExtent; inside += 32) {
        merged.merge(of_vector(matrix, granule, inside, vector(tile, inside)));
      }
      merged.merge_lanes();
      if (lane == 0) {
        ptx::store_global(
            sizes.merged(number, granule),
            ptx::Words<16>{{merged.sum, merged.largest, merged.threshold, merged.above}});
      }
    }
  }
};

template <Config C>
PTX_FN void skip_merge(const GemmArguments& arguments) {
  ptx::wait_for_previous_grid();
  const SkipSizes<C> sizes(arguments);
  const TileNorms<C, kSideA> a{sizes, ptx::shared_memory()};
  const TileNorms<C, kSideB> b{sizes, ptx::shared_memory()};
  const i32 items_a = a.items(sizes), items = items_a + b.items(sizes);
  const i32 step = static_cast<i32>(ptx::blocks());
  PTX_ROLLED for (i32 item = static_cast<i32>(ptx::block()); item < items; item += step) {
    if (item < items_a) {
      a.run_item(arguments, item);
    } else {
      b.run_item(arguments, item - items_a);
    }
    ptx::warp_sync();
    ptx::block_sync();
  }
}

}  // namespace deepgemm::kernel
