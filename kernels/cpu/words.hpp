// Reading packed weights: words to numbers.
#pragma once

#include "kernels/cpu/operands.hpp"
#include "kernels/cpu/vector.hpp"

namespace deepgemm::cpu {
namespace {

// ---- One channel of a vector of words, as numbers; exact.

inline FloatVector decode_bf16(WordVector code) {
  return __builtin_bit_cast(FloatVector, code << 16);
}

// Subnormals are scaled as integers: no subnormal FP32 value arises, which some CPUs handle slowly.
inline FloatVector decode_fp16(WordVector code) {
  const WordVector magnitude = code & 0x7FFFU;
  const WordVector sign = (code & 0x8000U) << 16;
  const WordVector special = magnitude >= 0x7C00U;  // all ones where true
  const WordVector normal = (magnitude << 13) + ((special & (112U << 23)) + (112U << 23));
  const FloatVector small =
      __builtin_convertvector(__builtin_bit_cast(IntVector, magnitude), FloatVector) * 0x1p-24F;
  const WordVector is_small = magnitude < 0x0400U;
  return __builtin_bit_cast(
      FloatVector,
      ((__builtin_bit_cast(WordVector, small) & is_small) | (normal & ~is_small)) | sign);
}

inline FloatVector decode_e4m3(WordVector code) {
  const WordVector magnitude = code & 0x7FU;
  const WordVector sign = (code & 0x80U) << 24;
  const WordVector is_nan = magnitude == 0x7FU;
  const WordVector normal = ((magnitude << 20) + (120U << 23)) | (is_nan & 0x7FC00000U);
  const FloatVector small =
      __builtin_convertvector(__builtin_bit_cast(IntVector, magnitude), FloatVector) * 0x1p-9F;
  const WordVector is_small = magnitude < 0x08U;
  return __builtin_bit_cast(
      FloatVector,
      ((__builtin_bit_cast(WordVector, small) & is_small) | (normal & ~is_small)) | sign);
}

// The value of a signed or unsigned code of 0 ... 15.
inline FloatVector decode_int4(WordVector words, int shift) {
#if DEEPGEMM_VECTOR_BYTES == 64 && !defined(__clang__)
  // A look-up takes the lowest four bits of each lane by itself.
  constexpr FloatVector kValues = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return __builtin_shuffle(kValues, __builtin_bit_cast(IntVector, words >> shift));
#else
  return __builtin_convertvector(__builtin_bit_cast(IntVector, (words >> shift) & 15U),
                                 FloatVector);
#endif
}

// Channel `channel` of words. INT8 gives the unsigned code.
template <WordFormat kFormat>
inline FloatVector decode(WordVector words, int channel) {
  if constexpr (kFormat == WordFormat::kFp32) {
    return __builtin_bit_cast(FloatVector, words);
  } else if constexpr (kFormat == WordFormat::kFp16) {
    return decode_fp16((words >> (16 * channel)) & 0xFFFFU);
  } else if constexpr (kFormat == WordFormat::kBf16) {
    return decode_bf16(words >> (16 * channel));
  } else if constexpr (kFormat == WordFormat::kE4m3) {
    return decode_e4m3((words >> (8 * channel)) & 0xFFU);
  } else if constexpr (kFormat == WordFormat::kE5m2) {
    // The upper half of FP16.
    return decode_fp16(((words >> (8 * channel)) & 0xFFU) << 8);
  } else if constexpr (kFormat == WordFormat::kInt8) {
    const WordVector code = ((words >> (8 * channel)) & 0xFFU) ^ 0x80U;
    return __builtin_convertvector(__builtin_bit_cast(IntVector, code), FloatVector);
  } else {
    return decode_int4(words, (channel & 1) * 16 + (channel >> 1) * 4);
  }
}

// Zero points of the columns [column, column + lanes) as numbers.
inline FloatVector zeros_of(const GroupLanes& lanes, int column) {
  const HalfWidthVector zeros =
      __builtin_convertvector(load<ByteVector>(lanes.zero + column), HalfWidthVector);
  return __builtin_convertvector(__builtin_convertvector(zeros, IntVector), FloatVector);
}

inline void store_as(float* to, FloatVector values) { store(to, values); }
inline void store_as(double* to, FloatVector values) {
  store(to, __builtin_convertvector(values, WideVector));
}
inline void store_scaled(float* to, FloatVector values, FloatVector scales) {
  store(to, values * scales);
}
inline void store_scaled(double* to, FloatVector values, FloatVector scales) {
  store(to,
        __builtin_convertvector(values, WideVector) * __builtin_convertvector(scales, WideVector));
}

// Channels [first, first + count) of a panel whose words begin at `words`, as rows of 32 values of
// T: (code - zero) * scale for integers, value * scale for others, rounded to T; without `lanes`
// the values themselves. first counts from the channel of the first word.
template <class T, WordFormat kFormat>
void load_words(const uint32_t* words, int64_t first, int64_t count, const GroupLanes* lanes,
                T* to) {
  constexpr int kPerWord = channels_per_word(kFormat);
  const int64_t end = first + count;
  for (int v = 0; v < kPanelVectors; ++v) {
    const int column = v * kFloatLanes;
    FloatVector zero = {}, scale = {};
    if (lanes != nullptr) {
      zero = zeros_of(*lanes, column);
      scale = load<FloatVector>(lanes->scale + column);
    }
    const auto put = [&](FloatVector value, T* row) {
      if (lanes == nullptr) return store_as(row, value);
      if constexpr (is_integer(kFormat)) value -= zero;
      store_scaled(row, value, scale);
    };
    T* row = to + column;
    for (int64_t channel = first; channel < end;) {
      const WordVector word = load<WordVector>(words + channel / kPerWord * kPanel + column);
      if (channel % kPerWord == 0 && channel + kPerWord <= end) {
        unrolled<kPerWord>(
            [&](auto i) { put(decode<kFormat>(word, i.kValue), row + i.kValue * kPanel); });
        channel += kPerWord;
        row += kPerWord * kPanel;
      } else {
        put(decode<kFormat>(word, static_cast<int>(channel % kPerWord)), row);
        ++channel;
        row += kPanel;
      }
    }
  }
}

}  // namespace
}  // namespace deepgemm::cpu
