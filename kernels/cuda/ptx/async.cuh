// Asynchronous copies from global to shared memory (PTX ISA: cp.async, sm_80 on). Before sm_80 a
// copy is made at once, with the same meaning.
#pragma once

#include "ptx/global.cuh"
#include "ptx/shared.cuh"
#include "ptx/types.cuh"

namespace deepgemm::ptx {

// Cache policy of data that is read once (PTX ISA: createpolicy); pass it to copy_async.
PTX_FN u64 evict_first_policy() {
  u64 policy = 0;
  if constexpr (kArch >= 80) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

namespace detail {

// The first `bytes` of kBytes bytes, then zeros.
template <i32 kBytes>
PTX_FN void copy_now(u32 to, const void* from, u32 bytes) {
  if (bytes == kBytes) return store_shared(to, load_global<kBytes>(from));
  Words<kBytes> words = {};
  PTX_UNROLL for (u32 i = 0; i < kBytes; ++i) {
    const u32 byte = load_global_if<1>(advance(from, i), i < bytes).word[0];
    words.word[i / 4] |= byte << (i % 4 * 8);
  }
  store_shared(to, words);
}

}  // namespace detail

// Copies the first `bytes` of kBytes (4, 8 or 16) bytes and writes zeros for the rest. `from` must
// be a multiple of kBytes, also when `bytes` is 0; it is then not read.
template <i32 kBytes>
PTX_FN void copy_async(u32 to, const void* from, u32 bytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kArch < 80) {
    detail::copy_now<kBytes>(to, from, bytes);
  } else if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(bytes)
                 : "memory");
  }
}

// The same with a cache policy for the second-level cache.
template <i32 kBytes>
PTX_FN void copy_async(u32 to, const void* from, u32 bytes, u64 policy) {
  if constexpr (kArch < 80) {
    detail::copy_now<kBytes>(to, from, bytes);
  } else if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
                 "l"(from), "r"(bytes), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3, %4;" ::"r"(to),
                 "l"(from), "n"(kBytes), "r"(bytes), "l"(policy)
                 : "memory");
  }
}

// Copies 16 bytes, or writes zeros without reading. The predicate (PTX ISA 8.3) costs less in the
// loops of kernels than a size that varies.
PTX_FN void copy_async_if(u32 to, const void* from, bool exists) {
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203
  if constexpr (kArch >= 80) {
    asm volatile(
        "{ .reg .pred missing; setp.eq.u32 missing, %2, 0;"
        " cp.async.cg.shared.global.L2::128B [%0], [%1], 16, missing; }" ::"r"(to),
        "l"(from), "r"(static_cast<u32>(exists))
        : "memory");
    return;
  }
#endif
  copy_async<16>(to, from, exists ? 16 : 0);
}
PTX_FN void copy_async_if(u32 to, const void* from, bool exists, u64 policy) {
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203
  if constexpr (kArch >= 80) {
    asm volatile(
        "{ .reg .pred missing; setp.eq.u32 missing, %2, 0;"
        " cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, missing, %3; }" ::"r"(to),
        "l"(from), "r"(static_cast<u32>(exists)), "l"(policy)
        : "memory");
    return;
  }
#endif
  copy_async<16>(to, from, exists ? 16 : 0, policy);
}

// Closes a group of the copies made so far; every thread does so unconditionally.
PTX_FN void commit_copies() {
  if constexpr (kArch >= 80) asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of the newest groups of this thread are under way. Other threads'
// copies are seen after a barrier.
template <i32 kPending>
PTX_FN void wait_for_copies() {
  if constexpr (kArch >= 80) asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace deepgemm::ptx
