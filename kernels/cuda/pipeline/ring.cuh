// A ring of stages in shared memory that asynchronous copies fill ahead of the multiplication.
#pragma once

#include "families/config.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

// Blocks of k [first, last) pass through kStages stages, kStages - 1 of them ahead. All threads of
// the block call refill(block) for block = first + 1 - kStages ... last - 1, and wait() after each
// from first - 1 on. Between refill(block) and the wait() after it a warp may read the stage of
// `block`; what it reads of the next one comes after that wait().
template <i32 kStages, i32 kStageBytes, class Fill>
struct Ring {
  static_assert(kStages >= 2);
  u32 base;
  i32 first, last;
  const Fill& fill;  // fill(address, block) makes this thread's copies of one block

  PTX_FN u32 stage(i32 block) const {
    return base + static_cast<u32>(block - first) % kStages * kStageBytes;
  }

  // Overwrites the stage of the block before `block`, which all warps have left.
  PTX_FN void refill(i32 block) const {
    const i32 next = block + kStages - 1;
    if (next < last) fill(stage(next), next);
    ptx::commit_copies();
  }

  // The next block's stage is complete, and all warps are done with the one before.
  PTX_FN void wait() const {
    ptx::wait_for_copies<kStages - 2>();
    ptx::block_sync();
  }
};

}  // namespace deepgemm::kernel
