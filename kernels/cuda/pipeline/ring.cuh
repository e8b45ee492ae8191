// A ring of stages in shared memory that asynchronous copies fill ahead of the multiplication.
#pragma once

#include "families/config.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

// Blocks of k pass through kStages stages, kStages - 1 of them ahead: start() once, then for each
// block refill(), reading of its stage, and wait(), after which the next block may be read; stop()
// at the end. All threads of the block take part. Nothing here depends on how many blocks there
// are, so that copies and multiplications stand in one piece of code without branches: fill() is
// also called for blocks behind the last one, and writes zeros for them.
template <i32 kStages, i32 kStageBytes, class Fill>
struct Ring {
  static_assert(kStages >= 2);
  u32 base;
  Fill& fill;  // fill(address) makes this thread's copies of the next block
  u32 read = 0, write = 0;

  // The stage to read.
  PTX_FN u32 stage() const { return base + read; }

  PTX_FN void start() {
    PTX_ROLLED for (i32 i = 0; i < kStages - 1; ++i) refill();
    wait_for_stage();
  }

  // Overwrites the stage that was read before, which all warps have left.
  PTX_FN void refill() {
    fill(base + write);
    ptx::commit_copies();
    write = next(write);
  }

  // The next block's stage is complete, and all warps are done with the one before.
  PTX_FN void wait() {
    wait_for_stage();
    read = next(read);
  }

  // After the last block: the memory is free for other uses.
  PTX_FN static void stop() {
    ptx::wait_for_copies<0>();
    ptx::block_sync();
  }

 private:
  PTX_FN static void wait_for_stage() {
    ptx::wait_for_copies<kStages - 2>();
    ptx::block_sync();
  }
  PTX_FN static u32 next(u32 at) {
    return at == (kStages - 1) * kStageBytes ? 0 : at + kStageBytes;
  }
};

}  // namespace deepgemm::kernel
