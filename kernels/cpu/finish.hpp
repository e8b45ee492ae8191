// The end of a product that has nothing but factors: sums to the output format, rounded once.
#pragma once

#include "kernels/cpu/vector.hpp"

namespace deepgemm::cpu {
namespace {

// Every lane all ones where the condition holds.
inline WordVector select(WordVector condition, WordVector yes, WordVector no) {
  return (condition & yes) | (~condition & no);
}

// To nearest, ties to even; NaN becomes the quiet NaN of its sign.
inline WordVector bf16_of(FloatVector value) {
  const WordVector bits = __builtin_bit_cast(WordVector, value);
  const WordVector rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const WordVector nan = ((bits >> 16) & 0x8000U) | 0x7FC0U;
  return select((bits & 0x7FFFFFFFU) > 0x7F800000U, nan, rounded);
}

// The same; values beyond the largest become infinite.
inline WordVector fp16_of(FloatVector value) {
  const WordVector bits = __builtin_bit_cast(WordVector, value);
  const WordVector magnitude = bits & 0x7FFFFFFFU;
  const WordVector sign = (bits >> 16) & 0x8000U;
  const WordVector normal = (magnitude - (112U << 23) + 0x0FFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Adding 1/2 leaves the value in units of 2^-24, the smallest subnormal, in the lowest bits.
  const FloatVector shifted = __builtin_bit_cast(FloatVector, magnitude) + 0.5F;
  const WordVector small = __builtin_bit_cast(WordVector, shifted) - 0x3F000000U;
  WordVector code = select(magnitude < (113U << 23), small, normal);
  code = select(magnitude >= 0x477FF000U, WordVector{} + 0x7C00U, code);
  code = select(magnitude > 0x7F800000U, WordVector{} + 0x7E00U, code);
  return code | sign;
}

template <Target kTarget>
inline void store_rounded(void* to, FloatVector value) {
  if constexpr (kTarget == Target::kFp32) {
    store(to, value);
  } else {
    const WordVector code = kTarget == Target::kBf16 ? bf16_of(value) : fp16_of(value);
    store(to, __builtin_convertvector(code, HalfWidthVector));
  }
}

inline FloatVector floats_of(const float* sums) { return load<FloatVector>(sums); }
inline FloatVector floats_of(const int32_t* sums) {
  return __builtin_convertvector(load<IntVector>(sums), FloatVector);
}
inline FloatVector floats_of(const double* sums) {
  return __builtin_convertvector(load<WideVector>(sums), FloatVector);
}

// to[j] = sums[j] * factors[j] * factor for j < count, all in FP32; `factors` null: 1. Sums and
// factors may be read up to a whole vector behind the last.
template <class Sum, Target kTarget>
void finish_as(const Sum* sums, const float* factors, float factor, void* to, int64_t count) {
  constexpr int kBytes = kTarget == Target::kFp32 ? 4 : 2;
  auto* out = static_cast<uint8_t*>(to);
  alignas(64) uint8_t rest[kVectorBytes];
  for (int64_t j = 0; j < count; j += kFloatLanes) {
    FloatVector value = floats_of(sums + j);
    if (factors != nullptr) value *= load<FloatVector>(factors + j);
    value *= factor;
    if (count - j >= kFloatLanes) {
      store_rounded<kTarget>(out + j * kBytes, value);
      continue;
    }
    store_rounded<kTarget>(rest, value);
    for (int64_t byte = 0; byte < (count - j) * kBytes; ++byte) out[j * kBytes + byte] = rest[byte];
  }
}

template <class Sum>
void finish(const Sum* sums, const float* factors, float factor, Target target, void* to,
            int64_t count) {
  switch (target) {
    case Target::kFp32:
      return finish_as<Sum, Target::kFp32>(sums, factors, factor, to, count);
    case Target::kFp16:
      return finish_as<Sum, Target::kFp16>(sums, factors, factor, to, count);
    case Target::kBf16:
      return finish_as<Sum, Target::kBf16>(sums, factors, factor, to, count);
  }
}

}  // namespace
}  // namespace deepgemm::cpu
