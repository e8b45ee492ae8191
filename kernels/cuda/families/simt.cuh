// Products on CUDA cores: every architecture, shape, stride and format. The right answer of last
// resort, and the strict FP32 path.
//
// A block makes block_m x block_n elements; a lane kLaneM x kLaneN of its warp's, in groups of up
// to four neighbours. Operands are widened when they are loaded and lie in shared memory as
// [k][row]; two stages take turns, the next one passing through registers meanwhile.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/partials.cuh"
#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/operand.cuh"
#include "memory/totals.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"
#include "schedule/tiles.cuh"

namespace deepgemm::kernel {

template <Config C>
struct SimtShape {
  using Value = SumType<C>;
  using Total = TotalType<C>;
  static constexpr i32 kSize = static_cast<i32>(sizeof(Value));
  static constexpr i32 kLaneN = simt_lane_n(C);
  static constexpr i32 kLaneM = simt_lane_m(C);
  static constexpr i32 kLanesM = C.warp_m / kLaneM;
  static constexpr i32 kLanesN = C.warp_n / kLaneN;
  static constexpr i32 kGroupM = smaller(kLaneM, 4);
  static constexpr i32 kGroupN = 4;
  static constexpr i32 kRows = simt_staged_rows(C);
  static constexpr i32 kStageBytes = simt_stage_bytes(C);
  static constexpr i32 kSharedBytes = simt_shared_bytes(C);
  static_assert(kLanesM * kLanesN == 32, "a warp's tile is 32 equal parts");
  static_assert((C.warp_m & (C.warp_m - 1)) == 0 && (C.warp_n & (C.warp_n - 1)) == 0);
  static_assert(kLaneM % kGroupM == 0 && C.block_k % 4 == 0 && C.stages == 2);
};

// One operand's way from global to shared memory. kExtent: its rows in a tile.
template <Config C, Operand kOperand, i32 kExtent>
struct SimtOperand {
  using Value = typename SimtShape<C>::Value;
  static constexpr i32 kSize = SimtShape<C>::kSize;
  static constexpr bool kAlongRows = along_rows(kOperand.access);
  static constexpr i32 kQuads = kExtent * C.block_k / 4;
  static constexpr i32 kCount = (kQuads + C.threads() - 1) / C.threads();
  static constexpr bool kWhole = kQuads % C.threads() == 0;

  // Lanes write block_k values of k, four each, for neighbouring rows: they then reach 32 different
  // banks. Four rows stay together.
  static constexpr i32 kUnit = larger(128 / C.block_k, 4);
  static constexpr i32 kSwizzle = ((kExtent % 32 == 0   ? 32
                                    : kExtent % 16 == 0 ? 16
                                                        : 8) -
                                   1) &
                                  ~(kUnit - 1);
  PTX_FN static i32 swizzle(i32 k) { return (k >> 2) * kUnit & kSwizzle; }
  PTX_FN static u32 address(u32 base, i32 k, i32 row) {
    return base + static_cast<u32>((k * kExtent + (row ^ swizzle(k))) * kSize);
  }

  // Where the quad i of this thread lies in the tile.
  struct Position {
    i32 row, k;
  };
  static constexpr i32 kAcross = (kAlongRows ? kExtent : C.block_k) / 4;  // quads of a line
  static constexpr i32 kLine = C.threads() / kAcross;  // lines from one quad to the next
  PTX_FN static Position position(i32 i) {
    const i32 thread = static_cast<i32>(ptx::thread());
    i32 line = thread / kAcross + i * kLine;
    i32 inside = thread % kAcross * 4;
    if constexpr (C.threads() % kAcross != 0) {
      line = (thread + i * C.threads()) / kAcross;
      inside = (thread + i * C.threads()) % kAcross * 4;
    }
    if constexpr (kAlongRows) return {inside, line};
    return {line, inside};
  }
  PTX_FN static bool exists(i32 i) {
    return kWhole || static_cast<i32>(ptx::thread()) + i * C.threads() < kQuads;
  }

  // `row_of` turns a row of the tile into one of the operand.
  template <class RowOf>
  PTX_FN static void load(const Panel& panel, i32 k, RowOf row_of, Value (&to)[kCount][4]) {
    PTX_UNROLL for (i32 i = 0; i < kCount; ++i) {
      if (!exists(i)) break;
      const Position at = position(i);
      load_run<kOperand, kAlongRows>(panel, row_of(at.row), k + at.k, to[i]);
    }
  }

  // A thread's quads of one block of k after the other. Where their places advance evenly, those of
  // a block that exists as a whole are loaded without looking for them again.
  template <bool kEvenRows>
  class Walk {
   public:
    template <class RowOf>
    PTX_FN Walk(const Panel& panel, i32 k, RowOf row_of)
        : row_(row_of(position(0).row)), k_(k), at_(element_at<kOperand>(panel, row_, first_k())) {}

    // Behind the last value of k: zeros.
    template <class RowOf>
    PTX_FN void load_block(const Panel& panel, RowOf row_of, Value (&to)[kCount][4]) {
      if constexpr (kWalks) {
        constexpr i32 kLast = (kCount - 1) * kLine;
        const i32 rows_left = panel.rows - row_, k_left = panel.k - first_k();
        if (kAlongRows ? rows_left >= 4 && k_left > kLast : rows_left > kLast && k_left >= 4) {
          const i64 line = (kAlongRows ? panel.k_step : panel.row_step) * (kLine * kBytes / 4);
          PTX_UNROLL for (i32 i = 0; i < kCount; ++i) {
            const auto words = ptx::load_global<kBytes, kCache>(ptx::advance(at_, i * line));
            PTX_UNROLL for (i32 j = 0; j < 4; ++j) {
              to[i][j] = decode<kOperand.format, Value>(element_of<kOperand.format>(words, j));
            }
          }
          return advance(panel);
        }
      }
      load(panel, k_, row_of, to);
      advance(panel);
    }

   private:
    static constexpr i32 kBytes = smaller(4 * format_bytes(kOperand.format), 16);
    static constexpr bool kWalks =
        kEvenRows && kWhole && C.threads() % kAcross == 0 && kOperand.width >= kBytes &&
        kBytes == 4 * format_bytes(kOperand.format) &&
        (kOperand.access == Access::kAlongK || kOperand.access == Access::kAlongRows);
    static constexpr ptx::Cache kCache =
        kOperand.streaming ? ptx::Cache::kStreaming : ptx::Cache::kReadOnly;

    PTX_FN i32 first_k() const { return k_ + position(0).k; }
    PTX_FN void advance(const Panel& panel) {
      k_ += C.block_k;
      const i64 step = kAlongRows ? panel.k_step : 1;
      at_ = ptx::advance(at_, step * (C.block_k * format_bytes(kOperand.format)));
    }

    i32 row_, k_;
    const void* at_;
  };

  PTX_FN static void store(u32 base, const Value (&from)[kCount][4]) {
    PTX_UNROLL for (i32 i = 0; i < kCount; ++i) {
      if (!exists(i)) break;
      const Position at = position(i);
      if constexpr (kAlongRows) {
        store_quad(address(base, at.k, at.row), from[i]);
      } else {
        PTX_UNROLL for (i32 j = 0; j < 4; ++j) {
          ptx::store_shared(address(base, at.k + j, at.row), words_of(from[i][j]));
        }
      }
    }
  }

  // kGroup neighbouring rows from `row` + `after` on. The bits of `after` below 32 are clear in
  // `row`, so that all groups and steps share a few addresses.
  template <i32 kGroup>
  PTX_FN static void read(u32 base, i32 k, i32 row, i32 after, Value* to) {
    constexpr i32 kBytes = smaller(kGroup * kSize, 16);
    constexpr i32 kTogether = kBytes / kSize;
    const i32 low = after % 32;
    const u32 from = base + static_cast<u32>((row ^ swizzle(k) ^ low) * kSize) +
                     static_cast<u32>((k * kExtent + after - low) * kSize);
    PTX_UNROLL for (i32 i = 0; i < kGroup; i += kTogether) {
      const auto words = ptx::load_shared<kBytes>(from + static_cast<u32>(i * kSize));
      PTX_UNROLL for (i32 j = 0; j < kTogether; ++j) to[i + j] = value_of<Value>(words, j);
    }
  }
};

template <Config C>
struct Simt {
  using Shape = SimtShape<C>;
  using Value = typename Shape::Value;
  using Total = typename Shape::Total;
  using OperandA = SimtOperand<C, C.a, C.block_m>;
  using OperandB = SimtOperand<C, C.b, C.block_n>;
  static constexpr i32 kLaneM = Shape::kLaneM, kLaneN = Shape::kLaneN;
  static constexpr i32 kQuadsN = kLaneN / kQuad;
  static constexpr i32 kQuads = kLaneM * kQuadsN;  // of sums: row by row

  const GemmArguments& arguments;
  u32 shared;
  i32 warp_row, warp_column;  // of the block's tile
  i32 lane_row, lane_column;  // of the warp's tile
  i32 n, k;

  PTX_FN explicit Simt(const GemmArguments& given)
      : arguments(given), shared(ptx::shared_memory()) {
    const i32 warp = static_cast<i32>(ptx::warp());
    const i32 lane = static_cast<i32>(ptx::lane());
    warp_row = warp / C.warps_n() * C.warp_m;
    warp_column = warp % C.warps_n() * C.warp_n;
    lane_row = lane / Shape::kLanesN * Shape::kGroupM;
    lane_column = lane % Shape::kLanesN * Shape::kGroupN;
    n = C.fixed_n > 0 ? C.fixed_n : arguments.n;
    k = arguments.alpha == 0 ? 0 : C.fixed_k > 0 ? C.fixed_k : arguments.k;
  }

  // Row of group `group` within the warp's tile.
  PTX_FN i32 group_row(i32 group) const { return group * Shape::kRows + lane_row; }
  PTX_FN i32 group_column(i32 group) const {
    return group * Shape::kLanesN * Shape::kGroupN + lane_column;
  }

  PTX_FN void multiply_stage(u32 stage, Value (&sums)[kQuads][kQuad]) const {
    const u32 stage_b = stage + C.block_k * C.block_m * Shape::kSize;
    PTX_UNROLL for (i32 step = 0; step < C.block_k; ++step) {
      Value a[kLaneM], b[kLaneN];
      PTX_UNROLL for (i32 i = 0; i < kLaneM; i += Shape::kGroupM) {
        OperandA::template read<Shape::kGroupM>(stage, step, warp_row + lane_row,
                                                i * Shape::kLanesM, a + i);
      }
      PTX_UNROLL for (i32 j = 0; j < kLaneN; j += Shape::kGroupN) {
        OperandB::template read<Shape::kGroupN>(stage_b, step, warp_column + lane_column,
                                                j * Shape::kLanesN, b + j);
      }
      PTX_UNROLL for (i32 i = 0; i < kLaneM; ++i) {
        PTX_UNROLL for (i32 j = 0; j < kLaneN; ++j) {
          Value& sum = sums[i * kQuadsN + j / kQuad][j % kQuad];
          sum = ptx::fused_multiply_add(a[i], b[j], sum);
        }
      }
    }
  }

  // Adds the sums to the totals, with the factors of the group of k that ends with this block.
  PTX_FN void promote(const Tile& tile, i32 block, Value (&sums)[kQuads][kQuad],
                      Total (&totals)[kQuads][kQuad]) const {
    const i32 group = C.promote > 0 ? block * C.block_k / larger(C.promote, 1) : 0;
    Total factors[kLaneN];
    PTX_UNROLL for (i32 j = 0; j < kLaneN; ++j) {
      const i32 column = warp_column + group_column(j / Shape::kGroupN) + j % Shape::kGroupN;
      const i32 row = row_of_b<C>(tile.column, column, n);
      factors[j] = C.scaled && row < n ? Total(scale_at(arguments.scale_b, row, group)) : Total(1);
    }
    PTX_UNROLL for (i32 i = 0; i < kLaneM; ++i) {
      const i32 row = tile.row + warp_row + group_row(i / Shape::kGroupM) + i % Shape::kGroupM;
      const Total factor =
          C.scaled && row < arguments.m ? Total(scale_at(arguments.scale_a, row, group)) : Total(1);
      PTX_UNROLL for (i32 j = 0; j < kLaneN; ++j) {
        Value& sum = sums[i * kQuadsN + j / kQuad][j % kQuad];
        totals[i * kQuadsN + j / kQuad][j % kQuad] +=
            static_cast<Total>(sum) * (factor * factors[j]);
        sum = Value(0);
      }
    }
  }

  PTX_FN void multiply(const Tile& tile, const KRange& range, Value (&sums)[kQuads][kQuad],
                       Total (&totals)[kQuads][kQuad]) const {
    const Panel a = panel_of<C.a>(arguments.a, tile.batch, arguments.m, k);
    const Panel b = panel_of<C.b>(arguments.b, tile.batch, n, k);
    const auto row_a = [&](i32 row) { return tile.row + row; };
    const auto row_b = [&](i32 row) { return row_of_b<C>(tile.column, row, n); };
    Value next_a[OperandA::kCount][4], next_b[OperandB::kCount][4];
    typename OperandA::template Walk<true> walk_a(a, range.first * C.block_k, row_a);
    typename OperandB::template Walk<!C.swiglu()> walk_b(b, range.first * C.block_k, row_b);
    const auto store = [&](i32 block) {
      const u32 stage = shared + static_cast<u32>(block & 1) * Shape::kStageBytes;
      OperandA::store(stage, next_a);
      OperandB::store(stage + C.block_k * C.block_m * Shape::kSize, next_b);
    };
    // One round more than there are blocks, so that loads and stores stand here once.
    PTX_ROLLED for (i32 block = range.first - 1; block < range.last; ++block) {
      const bool more = block + 1 < range.last;
      if (more) {
        walk_a.load_block(a, row_a, next_a);
        walk_b.load_block(b, row_b, next_b);
      }
      if (block >= range.first) {
        multiply_stage(shared + static_cast<u32>(block & 1) * Shape::kStageBytes, sums);
        if constexpr (C.promote > 0) {
          if (total_due<C>(block, range.last)) promote(tile, block, sums, totals);
        }
      }
      if (more) store(block + 1);
      ptx::block_sync();
    }
  }

  PTX_FN void finish(const Tile& tile, const Total (&totals)[kQuads][kQuad]) const {
    const Finish<C, Total> finish{arguments, n, tile.batch};
    const u32 staged = shared + ptx::warp() * (Shape::kRows * staging_pitch(C));
    const i32 column = tile.column + C.output_columns(warp_column);
    PTX_ROLLED for (i32 group = 0; group < kLaneM / Shape::kGroupM; ++group) {
      PTX_UNROLL for (i32 i = 0; i < kLaneM; ++i) {
        if (i / Shape::kGroupM != group) continue;
        PTX_UNROLL for (i32 j = 0; j < kQuadsN; ++j) {
          store_quad(staged_address<C>(staged, lane_row + i % Shape::kGroupM, group_column(j)),
                     totals[i * kQuadsN + j]);
        }
      }
      ptx::warp_sync();
      finish.template finish_rows<Shape::kRows>(staged, tile.row + warp_row + group * Shape::kRows,
                                                column);
      ptx::warp_sync();
    }
  }

  PTX_FN void run_item(u32 item) const {
    const TileGrid grid = tile_grid<C>(arguments, n);
    const Tile tile = tile_at<C>(grid, item);
    Value sums[kQuads][kQuad] = {};
    Total totals[kQuads][kQuad] = {};
    multiply(tile, k_range<C>(k, grid, tile.split), sums, totals);
    if constexpr (C.promote == 0) {
      PTX_UNROLL for (i32 i = 0; i < kQuads; ++i) {
        PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) totals[i][j] = sums[i][j];
      }
    }
    if constexpr (C.split) {
      if (!Partials<C, Total, kQuads>::combine(arguments, tile, totals)) return;
    }
    finish(tile, totals);
  }
};

template <Config C>
PTX_FN void simt(const GemmArguments& arguments) {
  ptx::wait_for_previous_grid();
  const Simt<C> kernel(arguments);
  const u32 items = tile_grid<C>(arguments, kernel.n).items();
  PTX_ROLLED for (u32 item = ptx::block(); item < items; item += ptx::blocks()) {
    kernel.run_item(item);
    ptx::block_sync();
  }
}

}  // namespace deepgemm::kernel
