// Special registers, barriers, shuffles and the order of dependent grids (PTX ISA 8.x: "Special
// Registers", "Parallel Synchronization and Communication Instructions").
#pragma once

#include "ptx/types.cuh"

namespace deepgemm::ptx {

inline constexpr u32 kAllLanes = 0xFFFFFFFF;

PTX_FN u32 thread() { return threadIdx.x; }
PTX_FN u32 lane() { return threadIdx.x & 31; }
PTX_FN u32 block() { return blockIdx.x; }
PTX_FN u32 blocks() { return gridDim.x; }

// The same value in all lanes of a warp: the compiler may then keep it in a uniform register.
PTX_FN u32 warp_uniform(u32 value) { return __shfl_sync(kAllLanes, value, 0); }
PTX_FN u32 warp() { return warp_uniform(threadIdx.x / 32); }

PTX_FN void block_sync() { asm volatile("barrier.sync.aligned 0;" ::: "memory"); }
// True in all threads when it is in one of them. All threads of the block take part.
PTX_FN bool block_any(bool value) { return __syncthreads_or(value) != 0; }
PTX_FN void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// Programmatic dependent launch, sm_90 on: waits until the grids before this one in the stream have
// ended and their writes are seen. Without that launch attribute there is nothing to wait for.
PTX_FN void wait_for_previous_grid() {
  if constexpr (kArch >= 90) asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace deepgemm::ptx
