// Number conversions. Where an architecture lacks the instruction the same bits come from integer
// arithmetic. To nearest even unless a name says otherwise.
#pragma once

#include "ptx/types.cuh"

namespace deepgemm::ptx {

PTX_FN u32 bits_of(float value) { return __float_as_uint(value); }
PTX_FN float float_of(u32 bits) { return __uint_as_float(bits); }
PTX_FN u64 bits_of(double value) { return static_cast<u64>(__double_as_longlong(value)); }
PTX_FN double double_of(u64 bits) { return __longlong_as_double(static_cast<i64>(bits)); }
PTX_FN double double_of(u32 high, u32 low) {
  return __hiloint2double(static_cast<i32>(high), static_cast<i32>(low));
}

PTX_FN float fp16_to_float(u32 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<u16>(bits)));
  return value;
}
PTX_FN float bf16_to_float(u32 bits) { return float_of(bits << 16); }
// E5M2 is the upper half of FP16.
PTX_FN float e5m2_to_float(u32 bits) { return fp16_to_float(bits << 8); }
// E4M3 is FP16 with its exponent 8 lower, but for NaN, which takes the place of infinity.
PTX_FN float e4m3_to_float(u32 bits) {
  const u32 magnitude = bits & 0x7F;
  const float value = fp16_to_float((bits & 0x80) << 8 | magnitude << 7) * 256.0F;
  return magnitude == 0x7F ? float_of(0x7FFFFFFF) : value;
}

// Overflow gives infinity.
PTX_FN u32 float_to_fp16(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

PTX_FN u32 float_to_bf16(float value) {
  if constexpr (kArch >= 90) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  const u32 bits = bits_of(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// Side by side, `first` in the low half.
PTX_FN u32 floats_to_bf16(float first, float second) {
  if constexpr (kArch >= 80) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
  }
  return float_to_bf16(first) | float_to_bf16(second) << 16;
}

namespace detail {

// To a format of 8 bits with kMantissa bits, smallest exponent kLowest and largest value kLargest,
// which all greater ones become.
template <i32 kMantissa, i32 kLowest>
PTX_FN u32 float_to_fp8(float value, u32 largest) {
  const u32 bits = bits_of(value);
  const u32 sign = bits >> 24 & 0x80;
  const u32 magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0x7F;  // NaN
  constexpr i32 kBias = 127;
  constexpr i32 kDropped = 23 - kMantissa;
  u32 code;
  if (magnitude < static_cast<u32>(kBias + kLowest) << 23) {
    // Adding a number whose unit is that of the format's subnormals rounds to them.
    constexpr u32 kUnit = static_cast<u32>(kBias + kLowest + kDropped) << 23;
    code = bits_of(float_of(magnitude) + float_of(kUnit)) - kUnit;
  } else {
    const u32 rounded = magnitude + ((1U << (kDropped - 1)) - 1) + (magnitude >> kDropped & 1);
    code = (rounded >> kDropped) - (static_cast<u32>(kBias + kLowest - 1) << kMantissa);
  }
  return sign | (code > largest ? largest : code);
}

}  // namespace detail

// Finite values beyond the largest, and infinity, become the largest; NaN becomes 0x7F.
PTX_FN u32 float_to_e4m3(float value) {
  if constexpr (kArch >= 89) {
    u16 bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0F), "f"(value));
    return bits & 0xFF;
  }
  return detail::float_to_fp8<3, -6>(value, 0x7E);
}
PTX_FN u32 float_to_e5m2(float value) {
  if constexpr (kArch >= 89) {
    u16 bits;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0F), "f"(value));
    return bits & 0xFF;
  }
  return detail::float_to_fp8<2, -14>(value, 0x7B);
}

// To TF32; the multiplier ignores the low 13 bits of what comes back.
PTX_FN u32 float_to_tf32(float value) {
  u32 bits = bits_of(value);
  if constexpr (kArch >= 90) {
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
  }
  return value != value ? bits : bits + 0xFFF + (bits >> 13 & 1);
}

// Toward zero, and an odd last bit when that is not exact: a later rounding to a format that has at
// least two bits less is then the rounding of `value`. (Boldo & Melquiond, "Emulation of a FMA and
// correctly rounded sums", IEEE Transactions on Computers 57(4), 2008.)
PTX_FN float double_to_float_odd(double value) {
  const float near_zero = __double2float_rz(value);
  const bool exact = static_cast<double>(near_zero) == value || value != value;
  return exact ? near_zero : float_of(bits_of(near_zero) | 1);
}

// Functions of the compiler's own library, without fast approximations.
PTX_FN float exponential(float x) { return ::expf(x); }
PTX_FN double exponential(double x) { return ::exp(x); }
PTX_FN float error_function_complement(float x) { return ::erfcf(x); }
PTX_FN double error_function_complement(double x) { return ::erfc(x); }
PTX_FN float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
PTX_FN double fused_multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
PTX_FN i32 fused_multiply_add(i32 a, i32 b, i32 c) { return a * b + c; }

}  // namespace deepgemm::ptx
