// Sums that are added to totals after every so many products: narrow accumulators stay short, and
// factors of groups of k apply to the sums of each group.
#pragma once

#include "families/arguments.cuh"
#include "families/config.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

// The type that sums of one multiplication take.
template <Config C>
using SumType = SelectType<sum_bytes(C) == 8, double, SelectType<is_integer(C.math), i32, float>>;

// What they are added to. INT32 sums without factors go to FP64, where they stay exact.
template <Config C>
using TotalType = SelectType<C.promote == 0, SumType<C>, SelectType<wide_totals(C), double, float>>;

// True when a total is due after the block `block` of K.
template <Config C>
PTX_FN bool total_due(i32 block, i32 last) {
  if constexpr (C.promote <= C.block_k) return true;
  constexpr i32 kBlocks = C.promote / C.block_k;
  return (block + 1) % kBlocks == 0 || block + 1 == last;
}

}  // namespace deepgemm::kernel
