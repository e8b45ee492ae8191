// Global memory: loads and stores of 1 ... 16 bytes, and the counters of blocks that share a tile
// (PTX ISA: ld, st, atom, fence). An address must be a multiple of the width.
#pragma once

#include "ptx/types.cuh"

namespace deepgemm::ptx {

// How a value is cached.
enum class Cache : u8 {
  kReadOnly,   // no thread writes it while the kernel runs
  kStreaming,  // likewise, and it is read once: the first to be evicted
  kCoherent,   // other blocks may have written it
};

namespace detail {

template <i32 kBytes>
struct Scalar;
template <>
struct Scalar<1> {
  using Type = unsigned char;
};
template <>
struct Scalar<2> {
  using Type = unsigned short;
};
template <>
struct Scalar<4> {
  using Type = unsigned int;
};
template <>
struct Scalar<8> {
  using Type = uint2;
};
template <>
struct Scalar<16> {
  using Type = uint4;
};

template <class T>
PTX_FN Words<sizeof(T)> words_of(T value) {
  if constexpr (sizeof(T) == 16)
    return {{value.x, value.y, value.z, value.w}};
  else if constexpr (sizeof(T) == 8)
    return {{value.x, value.y}};
  else
    return {{value}};
}

}  // namespace detail

template <i32 kBytes, Cache kCache = Cache::kReadOnly>
PTX_FN Words<kBytes> load_global(const void* address) {
  using Type = typename detail::Scalar<kBytes>::Type;
  const Type* from = static_cast<const Type*>(address);
  if constexpr (kCache == Cache::kReadOnly)
    return detail::words_of(__ldg(from));
  else if constexpr (kCache == Cache::kStreaming)
    return detail::words_of(__ldcs(from));
  else
    return detail::words_of(__ldcg(from));
}

// Zero, and no access, when `wanted` is false.
template <i32 kBytes, Cache kCache = Cache::kReadOnly>
PTX_FN Words<kBytes> load_global_if(const void* address, bool wanted) {
  Words<kBytes> to = {};
  if (wanted) to = load_global<kBytes, kCache>(address);
  return to;
}

template <i32 kBytes>
PTX_FN void store_global(void* address, const Words<kBytes>& value) {
  using Type = typename detail::Scalar<kBytes>::Type;
  Type* to = static_cast<Type*>(address);
  if constexpr (kBytes == 16) {
    *to = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
  } else if constexpr (kBytes == 8) {
    *to = make_uint2(value.word[0], value.word[1]);
  } else {
    *to = static_cast<Type>(value.word[0]);
  }
}

// The address `bytes` after `base`.
PTX_FN const void* advance(const void* base, i64 bytes) {
  return static_cast<const char*>(base) + bytes;
}
PTX_FN void* advance(void* base, i64 bytes) { return static_cast<char*>(base) + bytes; }

// All writes of the calling thread come before what it writes next, for all threads of the device.
PTX_FN void device_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Adds one and returns the value before; a value of `last` becomes 0 instead. What the thread has
// seen and written before is seen by those who get a later value.
PTX_FN u32 count_and_wrap(u32* counter, u32 last) {
  device_fence();
  const u32 before = atomicInc(counter, last);
  device_fence();
  return before;
}

}  // namespace deepgemm::ptx
