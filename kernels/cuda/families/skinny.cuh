// Products of few rows (M up to 16 a tile): the weights stream through once, and nothing else
// counts. A block owns block_n columns of op(B); its warps share K among them, in interleaved
// pieces, and add their sums in a fixed order in the end.
//
// The 16 bytes that a lane loads of a row of B, and of A, are its fragments as they are: lane t of
// a row has the values 16 * t ... of 64 bytes, which is another order of k than the multiplier's,
// but the same for A and B. So nothing passes through shared memory.
#pragma once

#include "epilogue/finish.cuh"
#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/operand.cuh"
#include "memory/totals.cuh"
#include "mma/fragments.cuh"
#include "ptx/ptx.cuh"
#include "schedule/tiles.cuh"

namespace deepgemm::kernel {

template <Config C>
struct Skinny {
  using Sum = SumType<C>;
  using Total = TotalType<C>;
  using Chunk = ptx::Words<16>;
  static constexpr i32 kBytes = multiplicand_bytes(C.math);
  static constexpr i32 kEach = 16 / kBytes;  // values of a chunk
  static constexpr i32 kLine = 4 * kEach;    // of the chunks of a row that are loaded together
  static constexpr i32 kPiece = C.block_k / C.warps_k;  // of a warp in a block of k
  static constexpr i32 kLines = kPiece / kLine;
  static constexpr i32 kTilesM = C.block_m / 8;
  static constexpr i32 kTilesN = C.block_n / 8;
  static constexpr i32 kSharedBytes = skinny_shared_bytes(C);
  static constexpr ptx::Multiplicand kA = multiplicand(C.math, C.a.format);
  static constexpr ptx::Multiplicand kB = multiplicand(C.math, C.b.format);
  static_assert(kTilesM == 1 || kTilesM == 2);
  static_assert(C.block_n == C.warp_n && C.block_m == C.warp_m && kLines * kLine == kPiece);
  static_assert(C.promote % kPiece == 0 && !C.split);
  static_assert(C.a.access == Access::kAlongK && C.b.access == Access::kAlongK);

  // What a lane has of one line of k.
  struct Line {
    Chunk a[kTilesM], b[kTilesN];
  };

  const GemmArguments& arguments;
  u32 shared;
  i32 warp, group_row, group_lane;  // lane = 4 * group_row + group_lane
  i32 n, k;

  PTX_FN explicit Skinny(const GemmArguments& given)
      : arguments(given), shared(ptx::shared_memory()), warp(static_cast<i32>(ptx::warp())) {
    group_row = static_cast<i32>(ptx::lane()) >> 2;
    group_lane = static_cast<i32>(ptx::lane()) & 3;
    n = C.fixed_n > 0 ? C.fixed_n : arguments.n;
    k = arguments.alpha == 0 ? 0 : C.fixed_k > 0 ? C.fixed_k : arguments.k;
  }

  template <Operand kOperand>
  PTX_FN static Chunk load_whole(const Panel& panel, i32 row, i32 at) {
    constexpr ptx::Cache kCache =
        kOperand.streaming ? ptx::Cache::kStreaming : ptx::Cache::kReadOnly;
    const bool exists = row < panel.rows && panel.k - at >= kEach;
    return ptx::load_global_if<16, kCache>(element_at<kOperand>(panel, row, at), exists);
  }

  // The last values of a row, fewer than a chunk.
  template <Operand kOperand>
  PTX_FN static Chunk load_rest(const Panel& panel, i32 row, i32 at, bool wanted) {
    Chunk chunk = {};
    PTX_UNROLL for (i32 i = 0; i < kEach; ++i) {
      const bool exists = wanted && row < panel.rows && at + i < panel.k;
      const void* from = element_at<kOperand>(panel, row, at + i);
      chunk.word[i * kBytes / 4] |= ptx::load_global_if<kBytes>(from, exists).word[0]
                                    << (i * kBytes % 4 * 8);
    }
    return chunk;
  }

  PTX_FN static void multiply_line(const Line& line, Sum (&sums)[kTilesN][4]) {
    PTX_UNROLL for (i32 half = 0; half < 2; ++half) {
      u32 a[4] = {};
      PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
        a[i] = line.a[i].word[2 * half];
        a[i + 2] = line.a[i].word[2 * half + 1];
      }
      PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
        ptx::multiply<kA, kB>(sums[j], a, line.b[j].word[2 * half], line.b[j].word[2 * half + 1]);
      }
    }
  }

  // Adds the sums of values of k from `at` on to the totals, with their factors.
  PTX_FN void promote(const Tile& tile, i32 at, Sum (&sums)[kTilesN][4],
                      Total (&totals)[kTilesN][4]) const {
    const i32 group = at / larger(C.promote, 1);
    Total rows[2] = {Total(1), Total(1)};
    if constexpr (C.scaled) {
      PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
        const i32 row = tile.row + group_row + i * 8;
        const bool exists = at < k && row < arguments.m;
        rows[i] = exists ? static_cast<Total>(scale_at(arguments.scale_a, row, group)) : Total(1);
      }
    }
    PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
      Total columns[2] = {Total(1), Total(1)};
      if constexpr (C.scaled) {
        PTX_UNROLL for (i32 e = 0; e < 2; ++e) {
          const i32 column = row_of_b<C>(tile.column, j * 8 + group_lane * 2 + e, n);
          const bool exists = at < k && column < n;
          columns[e] =
              exists ? static_cast<Total>(scale_at(arguments.scale_b, column, group)) : Total(1);
        }
      }
      PTX_UNROLL for (i32 e = 0; e < 4; ++e) {
        totals[j][e] += static_cast<Total>(sums[j][e]) * (rows[e / 2] * columns[e % 2]);
        sums[j][e] = Sum(0);
      }
    }
  }

  PTX_FN void multiply(const Tile& tile, Sum (&sums)[kTilesN][4],
                       Total (&totals)[kTilesN][4]) const {
    const Panel a = panel_of<C.a>(arguments.a, tile.batch, arguments.m, k);
    const Panel b = panel_of<C.b>(arguments.b, tile.batch, n, k);
    const auto row_a = [&](i32 i) { return tile.row + i * 8 + group_row; };
    const auto row_b = [&](i32 j) { return row_of_b<C>(tile.column, j * 8 + group_row, n); };
    const i32 first = warp * kPiece + group_lane * kEach;
    PTX_ROLLED for (i32 block = 0; block < k; block += C.stages * C.block_k) {
      Line lines[C.stages][kLines];
      PTX_UNROLL for (i32 stage = 0; stage < C.stages; ++stage) {
        PTX_UNROLL for (i32 line = 0; line < kLines; ++line) {
          const i32 at = block + stage * C.block_k + first + line * kLine;
          PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
            lines[stage][line].b[j] = load_whole<C.b>(b, row_b(j), at);
          }
          PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
            lines[stage][line].a[i] = load_whole<C.a>(a, row_a(i), at);
          }
        }
      }
      PTX_UNROLL for (i32 stage = 0; stage < C.stages; ++stage) {
        PTX_UNROLL for (i32 line = 0; line < kLines; ++line) {
          multiply_line(lines[stage][line], sums);
        }
        if constexpr (C.promote > 0) {
          promote(tile, block + stage * C.block_k + warp * kPiece, sums, totals);
        }
      }
    }
    const i32 rest = k - k % kEach;
    if (rest < k && warp == 0) {
      Line line;
      const bool wanted = group_lane == 0;
      PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
        line.b[j] = load_rest<C.b>(b, row_b(j), rest, wanted);
      }
      PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
        line.a[i] = load_rest<C.a>(a, row_a(i), rest, wanted);
      }
      multiply_line(line, sums);
      if constexpr (C.promote > 0) promote(tile, rest, sums, totals);
    }
  }

  PTX_FN u32 staged_warp(i32 of) const {
    return shared + static_cast<u32>(of * C.block_m * staging_pitch(C));
  }

  PTX_FN void finish(const Tile& tile, const Total (&totals)[kTilesN][4]) const {
    using Value = typename Finish<C, Total>::Value;
    constexpr i32 kColumns = C.output_columns(C.block_n);
    PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
      const i32 column = j * 8 + group_lane * 2;
      PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
        ptx::store_shared(staged_address<C>(staged_warp(warp), group_row + i * 8, column),
                          pack<2>(totals[j] + 2 * i));
      }
    }
    ptx::block_sync();
    const Finish<C, Total> finish{arguments, n, tile.batch};
    const i32 columns = C.swiglu() ? n / 2 : n;
    constexpr i32 kQuads = kColumns / kQuad;
    PTX_ROLLED for (i32 at = static_cast<i32>(ptx::thread()); at < C.block_m * kQuads;
                    at += C.threads()) {
      const i32 row = at / kQuads, column = at % kQuads * kQuad;
      if (tile.row + row >= arguments.m || tile.column + column >= columns) continue;
      Value values[kQuad] = {}, up[kQuad] = {};
      PTX_UNROLL for (i32 of = 0; of < C.warps_k; ++of) {
        add_quad(staged_address<C>(staged_warp(of), row, column), values);
        if constexpr (C.swiglu()) {
          add_quad(staged_address<C>(staged_warp(of), row, column + kColumns), up);
        }
      }
      finish.finish(tile.row + row, tile.column + column, values, up);
    }
    ptx::warp_sync();
  }

  template <class Value>
  PTX_FN static void add_quad(u32 address, Value (&to)[kQuad]) {
    Value terms[kQuad];
    read_quad<Total>(address, terms);
    PTX_UNROLL for (i32 i = 0; i < kQuad; ++i) to[i] += terms[i];
  }

  PTX_FN void run_item(u32 item) const {
    const Tile tile = tile_at<C>(tile_grid<C>(arguments, n), item);
    Sum sums[kTilesN][4] = {};
    Total totals[kTilesN][4] = {};
    multiply(tile, sums, totals);
    if constexpr (C.promote == 0) {
      PTX_UNROLL for (i32 j = 0; j < kTilesN; ++j) {
        PTX_UNROLL for (i32 e = 0; e < 4; ++e) totals[j][e] = sums[j][e];
      }
    }
    finish(tile, totals);
  }
};

template <Config C>
PTX_FN void skinny(const GemmArguments& arguments) {
  ptx::wait_for_previous_grid();
  const Skinny<C> kernel(arguments);
  const u32 items = tile_grid<C>(arguments, kernel.n).items();
  PTX_ROLLED for (u32 item = ptx::block(); item < items; item += ptx::blocks()) {
    kernel.run_item(item);
    ptx::block_sync();
  }
}

}  // namespace deepgemm::kernel
