// Products of small matrices by one warp, and the loads that prepare their operands (PTX ISA:
// "Warp Level Matrix Multiply-Accumulate Instructions", which has the pictures of the fragments).
// d[16][8] += a[16][k] * b[8][k], with g = lane / 4, t = lane % 4, and E elements to a word:
//   a[0], a[2]: row g,  a[1], a[3]: row g + 8;  a[0], a[1]: elements E*t ..., a[2], a[3]: k/2 later
//   b0: row g of b, elements E*t ...;  b1: k/2 later
//   d[0], d[1]: row g, columns 2t, 2t+1;  d[2], d[3]: row g + 8
#pragma once

#include "ptx/convert.cuh"
#include "ptx/types.cuh"

namespace deepgemm::ptx {

// Four 8x8 matrices of 16-bit elements. Lanes 8i ... 8i+7 give the addresses of the rows of matrix
// i; to[i] has the elements 2*(lane%4), 2*(lane%4)+1 of row lane/4 of it.
PTX_FN void load_matrices(u32 (&to)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// The same of the transposed matrices.
PTX_FN void load_matrices_transposed(u32 (&to)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// What the multiplier sees.
enum class Multiplicand : u8 { kFp64, kFp32, kFp16, kBf16, kTf32, kInt8, kE4m3, kE5m2 };

#define PTX_MMA_32_BYTES(shape, types, constraint)                                 \
  asm volatile("mma.sync.aligned." shape ".row.col." types                         \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"  \
               : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), \
                 "+" constraint(d[3])                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

// FP32 sums. k: 16 elements of 16 bits, 8 of TF32, 32 of FP8.
template <Multiplicand kA, Multiplicand kB>
PTX_FN void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (kA == Multiplicand::kFp16 && kArch >= 80) {
    PTX_MMA_32_BYTES("m16n8k16", "f32.f16.f16.f32", "f");
  } else if constexpr (kA == Multiplicand::kFp16) {
    // sm_75 has half of the instruction: k = 8, of which a[0], a[1], b0 are the first.
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%7, %8}, {%9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0), "r"(a[2]), "r"(a[3]), "r"(b1));
  } else if constexpr (kA == Multiplicand::kBf16) {
    PTX_MMA_32_BYTES("m16n8k16", "f32.bf16.bf16.f32", "f");
  } else if constexpr (kA == Multiplicand::kTf32) {
    PTX_MMA_32_BYTES("m16n8k8", "f32.tf32.tf32.f32", "f");
  } else if constexpr (kA == Multiplicand::kE4m3 && kB == Multiplicand::kE4m3) {
    PTX_MMA_32_BYTES("m16n8k32", "f32.e4m3.e4m3.f32", "f");
  } else if constexpr (kA == Multiplicand::kE4m3 && kB == Multiplicand::kE5m2) {
    PTX_MMA_32_BYTES("m16n8k32", "f32.e4m3.e5m2.f32", "f");
  } else if constexpr (kA == Multiplicand::kE5m2 && kB == Multiplicand::kE4m3) {
    PTX_MMA_32_BYTES("m16n8k32", "f32.e5m2.e4m3.f32", "f");
  } else {
    static_assert(kA == Multiplicand::kE5m2 && kB == Multiplicand::kE5m2);
    PTX_MMA_32_BYTES("m16n8k32", "f32.e5m2.e5m2.f32", "f");
  }
}

// INT32 sums, which wrap; k = 32.
template <Multiplicand kA, Multiplicand kB>
PTX_FN void multiply(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(kA == Multiplicand::kInt8 && kB == Multiplicand::kInt8);
  PTX_MMA_32_BYTES("m16n8k32", "s32.s8.s8.s32", "r");
}

// FP64 sums, each product fused with its addition.
PTX_FN void multiply_doubles(double (&d)[4], double upper, double lower, double b) {
  if constexpr (kArch >= 90) {
    asm volatile(
        "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(upper), "d"(lower), "d"(b));
  } else {
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%4}, {%6}, {%0, %1};"
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%2, %3}, {%5}, {%6}, {%2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(upper), "d"(lower), "d"(b));
  }
}

// FP64: k = 4; a[0], a[1] are the halves of the value of row g, a[2], a[3] of row g + 8; b0, b1 of
// that of b. FP32, widened: k = 8, as for TF32.
template <Multiplicand kA, Multiplicand kB>
PTX_FN void multiply(double (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (kA == Multiplicand::kFp64) {
    static_assert(kB == Multiplicand::kFp64);
    multiply_doubles(d, double_of(a[1], a[0]), double_of(a[3], a[2]), double_of(b1, b0));
  } else {
    static_assert(kA == Multiplicand::kFp32 && kB == Multiplicand::kFp32);
    const auto wide = [](u32 bits) { return static_cast<double>(float_of(bits)); };
    if constexpr (kArch >= 90) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
          : "d"(wide(a[0])), "d"(wide(a[1])), "d"(wide(a[2])), "d"(wide(a[3])), "d"(wide(b0)),
            "d"(wide(b1)));
    } else {
      multiply_doubles(d, wide(a[0]), wide(a[1]), wide(b0));
      multiply_doubles(d, wide(a[2]), wide(a[3]), wide(b1));
    }
  }
}

#undef PTX_MMA_32_BYTES

}  // namespace deepgemm::ptx
