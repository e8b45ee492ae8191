// Fixed-width types and the words that declare device functions. Device code includes no header of
// a toolkit or of the C++ library.
#pragma once

#define PTX_KERNEL extern "C" __global__
#define PTX_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define PTX_PARAMETER const __grid_constant__
#define PTX_FN __device__ __forceinline__
#define PTX_UNROLL _Pragma("unroll")
#define PTX_ROLLED _Pragma("unroll 1")

namespace deepgemm::ptx {

using i8 = signed char;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
static_assert(sizeof(i32) == 4 && sizeof(i64) == 8 && sizeof(u16) == 2);

// A register image of kBytes bytes of memory; below 4 bytes the upper bits are zero.
template <i32 kBytes>
struct Words {
  u32 word[(kBytes + 3) / 4];
};

// Compute capability * 10 of this compilation: 75, 80, 90, ...
#ifdef __CUDA_ARCH__
inline constexpr i32 kArch = __CUDA_ARCH__ / 10;
#else
inline constexpr i32 kArch = 0;
#endif

}  // namespace deepgemm::ptx
