// Split K: the blocks of a tile write their sums to the workspace; the one that comes last adds
// them in the order of k, whoever it is. The bits therefore do not depend on who comes when.
#pragma once

#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"
#include "schedule/tiles.cuh"

namespace deepgemm::kernel {

// Sums of one thread: quad q of thread t of part s of a tile is at ((tile * splits + s) * kQuads +
// q)
// * threads + t quads of sums.
template <Config C, class Sum, i32 kQuads>
struct Partials {
  static constexpr i32 kBytes = 4 * static_cast<i32>(sizeof(Sum));
  static constexpr i32 kEach = 16 / static_cast<i32>(sizeof(Sum));  // sums of one access

  PTX_FN static void* place(const GemmArguments& arguments, const Tile& tile, i32 split) {
    const i64 part = static_cast<i64>(tile.index) * arguments.splits + split;
    return ptx::advance(arguments.partials, (part * kQuads * C.threads() + ptx::thread()) * kBytes);
  }

  // False: another block finishes the tile. All threads of the block take part.
  PTX_FN static bool combine(const GemmArguments& arguments, const Tile& tile,
                             Sum (&sums)[kQuads][4]) {
    void* own = place(arguments, tile, tile.split);
    PTX_UNROLL for (i32 q = 0; q < kQuads; ++q) {
      PTX_UNROLL for (i32 i = 0; i < 4; i += kEach) {
        ptx::store_global(
            ptx::advance(own, static_cast<i64>(q) * C.threads() * kBytes + i * 16 / kEach),
            pack<kEach>(&sums[q][i]));
      }
    }
    ptx::device_fence();
    ptx::block_sync();
    bool last = false;
    if (ptx::thread() == 0) {
      const u32 final_count = static_cast<u32>(arguments.splits - 1);
      last = ptx::count_and_wrap(arguments.counters + tile.index, final_count) == final_count;
    }
    ptx::warp_sync();
    if (!ptx::block_any(last)) return false;
    ptx::device_fence();
    PTX_UNROLL for (i32 q = 0; q < kQuads; ++q) {
      PTX_UNROLL for (i32 i = 0; i < 4; ++i) sums[q][i] = Sum(0);
    }
    PTX_ROLLED for (i32 split = 0; split < arguments.splits; ++split) {
      const void* part = place(arguments, tile, split);
      PTX_UNROLL for (i32 q = 0; q < kQuads; ++q) {
        PTX_UNROLL for (i32 i = 0; i < 4; i += kEach) {
          const auto words = ptx::load_global<16, ptx::Cache::kCoherent>(
              ptx::advance(part, static_cast<i64>(q) * C.threads() * kBytes + i * 16 / kEach));
          PTX_UNROLL for (i32 j = 0; j < kEach; ++j) sums[q][i + j] += value_of<Sum>(words, j);
        }
      }
    }
    return true;
  }
};

}  // namespace deepgemm::kernel
