// Number formats: facts and bit-exact conversions. docs/contract.md has the table of inf, NaN,
// saturation and subnormals that these functions implement.
#pragma once

#include <cstdint>

#include "deepgemm/types.h"

namespace deepgemm::base {

// Facts of a format. For integers significand_bits is the number of value bits without the sign
// (INT8 7, INT4 3), max_finite the largest value, min_normal and min_subnormal 1, and unit_roundoff
// 0.
struct FormatInfo {
  gemm_precision_t precision;
  const char* name;      // "fp32", "bf16", "fp8_e4m3", "int4_awq", ...
  int storage_bits;      // 4 for INT4*: two values a byte, low nibble first; TF32: 32
  int significand_bits;  // with the hidden bit: FP32 24, TF32 11, FP16 11, BF16 8, E4M3 4, E5M2 3
  double max_finite;     // E4M3: 448
  double min_normal;
  double min_subnormal;  // smallest positive value
  double unit_roundoff;  // 2^-significand_bits: half a unit in the last place of 1
  bool is_integer;
  bool has_infinity;
};

// Known for every precision but PRECISION_DEFAULT (returns nullptr there and for unknown values).
const FormatInfo* find_format(gemm_precision_t precision);
const FormatInfo* find_format(const char* name);

inline bool is_int4(gemm_precision_t p) {
  return p == PRECISION_INT4 || p == PRECISION_INT4_AWQ || p == PRECISION_INT4_GPTQ;
}
inline bool is_fp8(gemm_precision_t p) {
  return p == PRECISION_FP8_E4M3 || p == PRECISION_FP8_E5M2;
}

// Bytes that `count` >= 0 contiguous elements take; the caller keeps count * 8 below 2^63.
int64_t storage_bytes(gemm_precision_t precision, int64_t count);

// Conversions round to nearest, ties to even, in integer arithmetic: the rounding mode of the CPU
// does not matter. Widening is exact. NaN stays NaN: FP16 and BF16 keep its sign and the upper bits
// of its payload and set the quiet bit, as the conversion instructions of x86 do.
float fp16_to_float(uint16_t bits);
uint16_t float_to_fp16(float value);    // overflow gives infinity
uint16_t double_to_fp16(double value);  // one rounding (no detour over FP32); likewise below
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);
uint16_t double_to_bf16(double value);
float e4m3_to_float(uint8_t bits);
float e5m2_to_float(uint8_t bits);
uint8_t double_to_e4m3(double value);  // E4M3FN: saturates to +-448, also infinity; NaN is 0x7F
uint8_t double_to_e5m2(double value);  // saturates to +-57344, also infinity; NaN is 0x7F
float round_to_tf32(float value);      // 10 explicit significand bits
float e8m0_to_float(uint8_t bits);     // 2^(bits-127); 255 is NaN

// Element `index` of a contiguous array as double; encode rounds once. Integers: INT8 and INT4
// (signed, -8..7) round to nearest even and saturate; NaN becomes 0. TF32 elements are stored as
// FP32: decode returns what is stored, encode stores the value rounded to TF32. FP64 to FP32 is the
// CPU's own conversion. Encoding an INT4 element rewrites the byte that it shares with its
// neighbour: not from two threads at a time. Unknown precisions decode to NaN and encode nothing.
double decode(gemm_precision_t precision, const void* data, int64_t index);
void encode(gemm_precision_t precision, void* data, int64_t index, double value);

// The value that storing and reading back gives.
double round_to(gemm_precision_t precision, double value);

}  // namespace deepgemm::base
