// Tiles of operands in shared memory, in the form that ldmatrix reads: lines of 16-byte chunks,
// whose order within a line depends on the line, so that eight lines of one chunk, and eight chunks
// of one line, reach all banks.
#pragma once

#include "families/config.cuh"
#include "memory/operand.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

inline constexpr i32 kChunk = 16;  // bytes

// kBytes of the multiplicand; kExtent rows of the operand in a tile.
template <Config C, Operand kOperand, i32 kExtent, i32 kBytes, bool kConvert>
struct OperandTile {
  // Only ldmatrix of 16-bit elements can transpose, and TF32 can be read word by word; others are
  // turned while they are copied, which then goes through registers.
  static constexpr bool kAcross =
      along_rows(kOperand.access) && kBytes >= 2 && !kConvert && kOperand.width >= 4;
  static constexpr bool kAsync =
      !kConvert && kOperand.width >= 4 && (kAcross || along_k(kOperand.access));
  static constexpr i32 kEach = kChunk / kBytes;  // elements of a chunk
  static constexpr i32 kBlock = C.block_k;

  // kAcross: a line is a value of k with all rows; otherwise a row with all values of k.
  static constexpr i32 kLines = kAcross ? C.block_k : kExtent;
  static constexpr i32 kLineChunks = (kAcross ? kExtent : C.block_k) / kEach;
  static constexpr i32 kChunks = kLines * kLineChunks;
  static constexpr i32 kTileBytes = kChunks * kChunk;
  static_assert((kLineChunks & (kLineChunks - 1)) == 0);

  PTX_FN static i32 swizzle(i32 line) {
    constexpr i32 kShort = smaller(kLineChunks, 8);
    if constexpr (kAcross && kBytes == 4) return (line & 3) * 2 & (kShort - 1);
    // FP64 is read in pairs of chunks.
    if constexpr (kBytes == 8) return line / (8 / kShort) * 2 & (kShort - 1);
    return line / (8 / kShort) & (kShort - 1);
  }
  // Chunk `chunk` ^ `flip` of line `line` + `after`: `after` is a multiple of the swizzle's period,
  // and the bits of `flip` are clear in `chunk`, so that neighbours differ by constants.
  PTX_FN static u32 address(u32 base, i32 line, i32 after, i32 chunk, i32 flip) {
    const u32 first =
        static_cast<u32>((line * kLineChunks + (chunk ^ swizzle(line) ^ flip)) * kChunk);
    return base + first + static_cast<u32>(after * kLineChunks * kChunk);
  }

  static constexpr i32 kCount = (kChunks + C.threads() - 1) / C.threads();
  static constexpr bool kWhole = kChunks % C.threads() == 0;
  // Lanes run along what lies together in global memory.
  static constexpr bool kLanesAlongLines = !kAsync && along_rows(kOperand.access);

  // Copies of 16 bytes whose places advance evenly, from one copy of a thread to its next and from
  // block to block: SwiGLU's columns of B do not. Before sm_80 copies pass through registers, which
  // are then too few for this.
  template <bool kEvenRows>
  static constexpr bool kWalks =
      ptx::kArch >= 80 &&
      (kOperand.width >= kChunk) && kAsync&& kWhole&& C.threads() % kLineChunks == 0 &&
      (kEvenRows || kAcross) &&
      (kOperand.access == Access::kAlongK || kOperand.access == Access::kAlongRows);

  // A thread's copies of one block of k after the other: what does not change is found once.
  class Walk {
   public:
    // Values of k from `k` to `end`; what follows is zero.
    template <class RowOf>
    PTX_FN Walk(const Panel& panel, i32 k, i32 end, RowOf row_of)
        : row_(row_of(kAcross ? inner() * kEach : first())),
          k_left_(end - k - (kAcross ? first() : inner() * kEach)),
          at_(element_at<kOperand>(panel, row_, end - k_left_)) {}

    // The next block, to the tile at `base`.
    PTX_FN void copy_block(u32 base, const Panel& panel, u64 policy) {
      const i32 rows_left = panel.rows - row_;
      const i32 lines_left = kAcross ? k_left_ : rows_left;
      const i32 along = (kAcross ? rows_left : k_left_) * kBytes;
      const u32 inside = static_cast<u32>(along < 0 ? 0 : smaller(along, kChunk));
      const i64 step = (kAcross ? panel.k_step : panel.row_step) * (kStep * kBytes);
      const void* from = at_;
      PTX_UNROLL for (i32 i = 0; i < kCount; ++i) {
        const i32 line = i * kStep;
        const u32 to = kStep % 8 == 0 ? address(base, first(), line, inner(), 0)
                                      : address(base, first() + line, 0, inner(), 0);
        const u32 bytes = line < lines_left ? inside : 0;
        if constexpr (kOperand.whole && kOperand.streaming) {
          ptx::copy_async_if(to, from, line < lines_left && along > 0, policy);
        } else if constexpr (kOperand.whole) {
          ptx::copy_async_if(to, from, line < lines_left && along > 0);
        } else if constexpr (kOperand.streaming) {
          ptx::copy_async<kChunk>(to, from, bytes, policy);
        } else {
          ptx::copy_async<kChunk>(to, from, bytes);
        }
        from = ptx::advance(from, step);
      }
      at_ = ptx::advance(at_, kAcross ? panel.k_step * (C.block_k * kBytes) : C.block_k * kBytes);
      k_left_ -= C.block_k;
    }

   private:
    static constexpr i32 kStep = C.threads() / kLineChunks;  // lines from one copy to the next
    PTX_FN static i32 first() { return static_cast<i32>(ptx::thread()) / kLineChunks; }
    PTX_FN static i32 inner() { return static_cast<i32>(ptx::thread()) % kLineChunks; }

    i32 row_, k_left_;
    const void* at_;
  };

  // Brings the values k ... of all rows; those that do not exist become zero.
  template <class RowOf, class Convert>
  PTX_FN static void load(u32 base, const Panel& panel, i32 k, RowOf row_of, Convert convert,
                          u64 policy) {
    if constexpr (kAsync && kOperand.width >= kChunk) {
      PTX_UNROLL for (i32 i = 0; i < kCount; ++i) {
        load_chunk(base, panel, k, row_of, convert, policy, i);
      }
    } else {
      PTX_ROLLED for (i32 i = 0; i < kCount; ++i) {
        load_chunk(base, panel, k, row_of, convert, policy, i);
      }
    }
  }

 private:
  // Chunk number i of this thread.
  template <class RowOf, class Convert>
  PTX_FN static void load_chunk(u32 base, const Panel& panel, i32 k, RowOf row_of, Convert convert,
                                u64 policy, i32 i) {
    constexpr i32 kRun = kLanesAlongLines ? kLines : kLineChunks;
    constexpr i32 kStep = C.threads() / kRun;  // in lines, or chunks, from one copy to the next
    constexpr bool kRegular = C.threads() % kRun == 0;
    const i32 thread = static_cast<i32>(ptx::thread());
    const i32 index = thread + i * C.threads();
    if (!kWhole && index >= kChunks) return;
    const i32 first = kRegular ? thread / kRun : index / kRun;
    const i32 after = kRegular ? i * kStep : 0;
    const i32 inner = kRegular ? thread % kRun : index % kRun;
    const i32 line = kLanesAlongLines ? inner : first + after;
    const i32 chunk = kLanesAlongLines ? first + after : inner;
    const bool periodic = !kLanesAlongLines && after % 8 == 0;
    const u32 to =
        periodic ? address(base, first, after, chunk, 0) : address(base, line, 0, chunk, 0);
    if constexpr (kAcross) {
      copy(to, panel, row_of(chunk * kEach), k + line, policy);
    } else if constexpr (kAsync) {
      copy(to, panel, row_of(line), k + chunk * kEach, policy);
    } else {
      gather(to, panel, row_of(line), k + chunk * kEach, convert);
    }
  }

  PTX_FN static void copy(u32 to, const Panel& panel, i32 row, i32 k, u64 policy) {
    const i32 count =
        kAcross ? (k < panel.k ? panel.rows - row : 0) : (row < panel.rows ? panel.k - k : 0);
    const void* from = element_at<kOperand>(panel, row, k);
    constexpr i32 kStep = smaller(kOperand.width, kChunk);
    PTX_UNROLL for (i32 at = 0; at < kChunk; at += kStep) {
      const i32 left = count * kBytes - at;
      const u32 bytes = static_cast<u32>(left < 0 ? 0 : smaller(left, kStep));
      const void* source = bytes > 0 ? ptx::advance(from, at) : panel.base;
      if constexpr (kOperand.streaming) {
        ptx::copy_async<kStep>(to + static_cast<u32>(at), source, bytes, policy);
      } else {
        ptx::copy_async<kStep>(to + static_cast<u32>(at), source, bytes);
      }
    }
  }

  template <class Convert>
  PTX_FN static void gather(u32 to, const Panel& panel, i32 row, i32 k, Convert convert) {
    ptx::Words<kChunk> words = {};
    if constexpr (kConvert && kBytes == 8) {
      double values[kEach];
      load_run<kOperand, false>(panel, row, k, values);
      words = pack<kEach>(values);
    } else if constexpr (kConvert) {
      float values[kEach];
      load_run<kOperand, false>(panel, row, k, values);
      PTX_UNROLL for (i32 i = 0; i < kEach; ++i) {
        words.word[i * kBytes / 4] |= convert(values[i]) << (i * kBytes % 4 * 8);
      }
    } else {
      const i32 count = row < panel.rows ? panel.k - k : 0;
      PTX_UNROLL for (i32 i = 0; i < kEach; ++i) {
        const void* from = element_at<kOperand>(panel, row, k + i);
        const ptx::Words<kBytes> value = ptx::load_global_if<kBytes>(from, i < count);
        PTX_UNROLL for (i32 w = 0; w < (kBytes + 3) / 4; ++w) {
          words.word[i * kBytes / 4 + w] |= value.word[w] << (i * kBytes % 4 * 8);
        }
      }
    }
    ptx::store_shared(to, words);
  }
};

}  // namespace deepgemm::kernel
