// Products on tensor cores with mma.sync: Ampere, Ada, Blackwell for consumers, and Hopper without
// its own instructions; FP16 on Turing too.
//
// A block makes block_m x block_n elements, a warp warp_m x warp_n of them. Copies run `stages` - 1
// blocks of k ahead; fragments of the next step are loaded while the present one is multiplied.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/partials.cuh"
#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/operand.cuh"
#include "memory/tile.cuh"
#include "memory/totals.cuh"
#include "mma/fragments.cuh"
#include "mma/products.cuh"
#include "pipeline/ring.cuh"
#include "ptx/ptx.cuh"
#include "schedule/tiles.cuh"

namespace deepgemm::kernel {

template <Config C>
struct Sm80Shape {
  using Sum = SumType<C>;
  using Total = TotalType<C>;
  static constexpr i32 kBytes = multiplicand_bytes(C.math);
  static constexpr i32 kStepK = sm80_step_k(C.math);
  static constexpr i32 kSteps = C.block_k / kStepK;
  static constexpr i32 kTilesM = C.warp_m / 16;  // of sums of a warp, 16x8 each
  static constexpr i32 kTilesN = C.warp_n / 8;
  static constexpr i32 kRows = kSm80StagedRows;
  using TileA = OperandTile<C, C.a, C.block_m, kBytes, needs_conversion(C.math, C.a.format)>;
  using TileB = OperandTile<C, C.b, C.block_n, kBytes, needs_conversion(C.math, C.b.format)>;
  static constexpr i32 kStageBytes = TileA::kTileBytes + TileB::kTileBytes;
  static constexpr i32 kSharedBytes = sm80_shared_bytes(C);
  static_assert(C.block_k % kStepK == 0 && C.warp_m % 16 == 0 && C.warp_n % 16 == 0);
  static_assert((C.warp_m & (C.warp_m - 1)) == 0 && (C.warp_n & (C.warp_n - 1)) == 0);
  static_assert(C.promote % kStepK == 0);
};

// One operand's blocks of k in [k, end), one after the other, then zeros.
template <class Tile, bool kEvenRows, bool kWalks = Tile::template kWalks<kEvenRows>>
struct Source {
  Panel panel;
  i32 k;
  template <class RowOf>
  PTX_FN Source(const Panel& given, i32 first, i32 end, RowOf) : panel(given), k(first) {
    panel.k = smaller(panel.k, end);
  }
  template <class RowOf, class Convert>
  PTX_FN void copy_block(u32 base, const Panel&, RowOf row_of, Convert convert, u64 policy) {
    Tile::load(base, panel, k, row_of, convert, policy);
    k += Tile::kBlock;
  }
};
template <class Tile, bool kEvenRows>
struct Source<Tile, kEvenRows, true> {
  typename Tile::Walk walk;
  template <class RowOf>
  PTX_FN Source(const Panel& panel, i32 first, i32 end, RowOf row_of)
      : walk(panel, first, smaller(panel.k, end), row_of) {}
  template <class RowOf, class Convert>
  PTX_FN void copy_block(u32 base, const Panel& panel, RowOf, Convert, u64 policy) {
    walk.copy_block(base, panel, policy);
  }
};

template <Config C>
struct Sm80 {
  using Shape = Sm80Shape<C>;
  using Sum = typename Shape::Sum;
  using Total = typename Shape::Total;
  using TileA = typename Shape::TileA;
  using TileB = typename Shape::TileB;
  static constexpr i32 kTilesM = Shape::kTilesM, kTilesN = Shape::kTilesN;
  static constexpr i32 kQuads = kTilesM * kTilesN;
  static constexpr i32 kSteps = Shape::kSteps;
  // Fragments are loaded before the copies of a block are made: both take the same way, and copies
  // would hold up the loads. Only where there are registers for it: copies that find their sizes,
  // many copies, or more than products and sums take them.
  static constexpr bool kLoadsFirst = C.a.whole && C.b.whole && kSteps > 1 && C.promote == 0 &&
                                      C.math != Math::kTf32x3&& TileA::kCount + TileB::kCount <= 12;
  using Step = Fragments<kTilesM, kTilesN>;
  using Products = kernel::Products<C, Sum, kTilesM, kTilesN>;

  const GemmArguments& arguments;
  u32 shared;
  i32 warp_row, warp_column;  // of the block's tile
  i32 n, k;

  PTX_FN explicit Sm80(const GemmArguments& given)
      : arguments(given), shared(ptx::shared_memory()) {
    const i32 warp = static_cast<i32>(ptx::warp());
    warp_row = warp / C.warps_n() * C.warp_m;
    warp_column = warp % C.warps_n() * C.warp_n;
    n = C.fixed_n > 0 ? C.fixed_n : arguments.n;
    k = arguments.alpha == 0 ? 0 : C.fixed_k > 0 ? C.fixed_k : arguments.k;
  }

  // Of each 16x8 tile of sums the lane has rows lane_row() and lane_row() + 8, and of them columns
  // lane_column() and lane_column() + 1.
  PTX_FN static i32 lane_row() { return static_cast<i32>(ptx::lane()) >> 2; }
  PTX_FN static i32 lane_column() { return (static_cast<i32>(ptx::lane()) & 3) * 2; }

  PTX_FN void load_fragments(u32 stage, i32 step, Step& to) const {
    PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
      load_fragment<TileA, Shape::kBytes, true>(stage, warp_row, i * 16, step, to.a[i]);
    }
    PTX_UNROLL for (i32 j = 0; j < kTilesN / 2; ++j) {
      load_fragment<TileB, Shape::kBytes, false>(stage + TileA::kTileBytes, warp_column, j * 16,
                                                 step, to.b[j]);
    }
  }

  // Adds the sums to the totals, with the factors of the group of k.
  PTX_FN void promote(const Tile& tile, i32 group, Sum (&sums)[kQuads][4],
                      Total (&totals)[kQuads][4]) const {
    Total rows[kTilesM][2];
    PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
      PTX_UNROLL for (i32 e = 0; e < 2; ++e) {
        const i32 row = tile.row + warp_row + i * 16 + lane_row() + e * 8;
        rows[i][e] = C.scaled && row < arguments.m
                         ? static_cast<Total>(scale_at(arguments.scale_a, row, group))
                         : Total(1);
      }
    }
    PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
      Total columns[2];
      PTX_UNROLL for (i32 e = 0; e < 2; ++e) {
        const i32 row = row_of_b<C>(tile.column, warp_column + j * 8 + lane_column() + e, n);
        columns[e] = C.scaled && row < n
                         ? static_cast<Total>(scale_at(arguments.scale_b, row, group))
                         : Total(1);
      }
      PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
        PTX_UNROLL for (i32 e = 0; e < 4; ++e) {
          Sum& sum = sums[i * kTilesN + j][e];
          totals[i * kTilesN + j][e] += static_cast<Total>(sum) * (rows[i][e / 2] * columns[e % 2]);
          sum = Sum(0);
        }
      }
    }
  }

  PTX_FN void promote_if_due(const Tile& tile, i32 block, i32 step, bool last,
                             Sum (&sums)[kQuads][4], Total (&totals)[kQuads][4]) const {
    if constexpr (C.promote > 0) {
      constexpr i32 kInterval = C.promote / Shape::kStepK;
      const i32 done = block * kSteps + step + 1;
      const i32 group = (done - 1) / kInterval;
      // The last block may reach beyond the last group: nothing was multiplied there.
      const bool exists = C.promote >= C.block_k || group * C.promote < k;
      if (exists && (done % kInterval == 0 || (last && step + 1 == kSteps))) {
        promote(tile, group, sums, totals);
      }
    }
  }

  PTX_FN void multiply(const Tile& tile, const KRange& range, Sum (&sums)[kQuads][4],
                       Total (&totals)[kQuads][4]) const {
    const Panel a = panel_of<C.a>(arguments.a, tile.batch, arguments.m, k);
    const Panel b = panel_of<C.b>(arguments.b, tile.batch, n, k);
    const u64 policy = C.a.streaming || C.b.streaming ? ptx::evict_first_policy() : 0;
    const auto row_a = [&](i32 row) { return tile.row + row; };
    const auto row_b = [&](i32 row) { return row_of_b<C>(tile.column, row, n); };
    const auto convert = [](float value) { return multiplicand_of<C.math>(value); };
    const i32 begin = range.first * C.block_k, end = range.last * C.block_k;
    Source<TileA, true> source_a(a, begin, end, row_a);
    Source<TileB, !C.swiglu()> source_b(b, begin, end, row_b);
    const auto fill = [&](u32 stage) {
      source_a.copy_block(stage, a, row_a, convert, policy);
      source_b.copy_block(stage + TileA::kTileBytes, b, row_b, convert, policy);
    };
    Ring<C.stages, Shape::kStageBytes, decltype(fill)> ring{shared, fill};
    ring.start();
    if constexpr (C.math == Math::kTf32Bf16) {
      multiply_pairs_of_steps(ring, range, sums);
    } else {
      multiply_steps(ring, tile, range, sums, totals);
    }
    ring.stop();
  }

  template <class Ring>
  PTX_FN void multiply_steps(Ring& ring, const Tile& tile, const KRange& range,
                             Sum (&sums)[kQuads][4], Total (&totals)[kQuads][4]) const {
    Step fragments[2];
    load_fragments(ring.stage(), 0, fragments[0]);
    PTX_ROLLED for (i32 block = range.first; block < range.last; ++block) {
      const bool last = block + 1 == range.last;
      if constexpr (!kLoadsFirst) ring.refill();
      PTX_UNROLL for (i32 step = 0; step + 1 < kSteps; ++step) {
        load_fragments(ring.stage(), step + 1, fragments[(step + 1) % 2]);
        if (kLoadsFirst && step == 0) ring.refill();
        Products::add_step(fragments[step % 2], sums);
        promote_if_due(tile, block, step, last, sums, totals);
      }
      ring.wait();
      Step& next = fragments[kSteps % 2];
      load_fragments(ring.stage(), 0, next);
      Products::add_step(fragments[(kSteps - 1) % 2], sums);
      promote_if_due(tile, block, kSteps - 1, last, sums, totals);
      if constexpr (kSteps % 2 != 0) fragments[0] = next;
    }
  }

  // There are no registers to load ahead: other warps multiply meanwhile.
  template <class Ring>
  PTX_FN void multiply_pairs_of_steps(Ring& ring, const KRange& range,
                                      Sum (&sums)[kQuads][4]) const {
    static_assert(kSteps % 2 == 0 && C.promote == 0);
    PTX_ROLLED for (i32 block = range.first; block < range.last; ++block) {
      ring.refill();
      PTX_UNROLL for (i32 step = 0; step < kSteps; step += 2) {
        Step fragments[2];
        load_fragments(ring.stage(), step, fragments[0]);
        load_fragments(ring.stage(), step + 1, fragments[1]);
        Products::add_tf32_bf16(fragments, sums);
      }
      ring.wait();
    }
  }

  PTX_FN void finish(const Tile& tile, const Total (&totals)[kQuads][4]) const {
    const Finish<C, Total> finish{arguments, n, tile.batch};
    const u32 staged = shared + ptx::warp() * (Shape::kRows * staging_pitch(C));
    const i32 column = tile.column + C.output_columns(warp_column);
    PTX_ROLLED for (i32 group = 0; group < kTilesM; ++group) {
      PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
        if (i != group) continue;
        PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
          const Total(&quad)[4] = totals[i * kTilesN + j];
          const i32 at = j * 8 + lane_column();
          ptx::store_shared(staged_address<C>(staged, lane_row(), at), pack<2>(quad));
          ptx::store_shared(staged_address<C>(staged, lane_row() + 8, at), pack<2>(quad + 2));
        }
      }
      ptx::warp_sync();
      finish.template finish_rows<Shape::kRows>(staged, tile.row + warp_row + group * 16, column);
      ptx::warp_sync();
    }
  }

  PTX_FN void run_item(u32 item) const {
    const TileGrid grid = tile_grid<C>(arguments, n);
    const Tile tile = tile_at<C>(grid, item);
    Sum sums[kQuads][4] = {};
    Total totals[kQuads][4] = {};
    multiply(tile, k_range<C>(k, grid, tile.split), sums, totals);
    if constexpr (C.promote == 0) {
      PTX_UNROLL for (i32 i = 0; i < kQuads; ++i) {
        PTX_UNROLL for (i32 e = 0; e < 4; ++e) totals[i][e] = sums[i][e];
      }
    }
    if constexpr (C.split) {
      if (!Partials<C, Total, kQuads>::combine(arguments, tile, totals)) return;
    }
    finish(tile, totals);
  }
};

template <Config C>
PTX_FN void sm80(const GemmArguments& arguments) {
  ptx::wait_for_previous_grid();
  const Sm80<C> kernel(arguments);
  const u32 items = tile_grid<C>(arguments, kernel.n).items();
  PTX_ROLLED for (u32 item = ptx::block(); item < items; item += ptx::blocks()) {
    kernel.run_item(item);
    ptx::block_sync();
  }
}

}  // namespace deepgemm::kernel
