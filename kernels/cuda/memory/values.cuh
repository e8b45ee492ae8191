// Elements of memory as numbers and back.
#pragma once

#include "families/config.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

// `bits`: the element in the low bits of one word, two words for FP64.
template <Format kFormat, class Value>
PTX_FN Value decode(const ptx::Words<format_bytes(kFormat)>& bits) {
  if constexpr (kFormat == Format::kFp64) {
    return static_cast<Value>(ptx::double_of(static_cast<u64>(bits.word[1]) << 32 | bits.word[0]));
  } else if constexpr (kFormat == Format::kFp32) {
    return static_cast<Value>(ptx::float_of(bits.word[0]));
  } else if constexpr (kFormat == Format::kFp16) {
    return static_cast<Value>(ptx::fp16_to_float(bits.word[0]));
  } else if constexpr (kFormat == Format::kBf16) {
    return static_cast<Value>(ptx::bf16_to_float(bits.word[0]));
  } else if constexpr (kFormat == Format::kE4m3) {
    return static_cast<Value>(ptx::e4m3_to_float(bits.word[0]));
  } else if constexpr (kFormat == Format::kE5m2) {
    return static_cast<Value>(ptx::e5m2_to_float(bits.word[0]));
  } else {
    return static_cast<Value>(static_cast<ptx::i8>(bits.word[0]));
  }
}

// Element `index` of a run of elements.
template <Format kFormat, i32 kBytes>
PTX_FN ptx::Words<format_bytes(kFormat)> element_of(const ptx::Words<kBytes>& run, i32 index) {
  constexpr i32 kSize = format_bytes(kFormat);
  if constexpr (kSize == 8) {
    return {{run.word[2 * index], run.word[2 * index + 1]}};
  } else if constexpr (kSize == 4) {
    return {{run.word[index]}};
  } else {
    constexpr i32 kEach = 4 / kSize;
    return {{run.word[index / kEach] >> (index % kEach * kSize * 8) & ((1U << kSize * 8) - 1)}};
  }
}

// One rounding, also of FP64 values.
template <Format kFormat, class Value>
PTX_FN ptx::Words<format_bytes(kFormat)> encode(Value value) {
  if constexpr (kFormat == Format::kFp64) {
    const u64 bits = ptx::bits_of(static_cast<double>(value));
    return {{static_cast<u32>(bits), static_cast<u32>(bits >> 32)}};
  } else if constexpr (kFormat == Format::kFp32) {
    return {{ptx::bits_of(static_cast<float>(value))}};
  } else if constexpr (sizeof(Value) == 8) {
    return encode<kFormat>(ptx::double_to_float_odd(value));
  } else if constexpr (kFormat == Format::kFp16) {
    return {{ptx::float_to_fp16(value)}};
  } else if constexpr (kFormat == Format::kBf16) {
    return {{ptx::float_to_bf16(value)}};
  } else if constexpr (kFormat == Format::kE4m3) {
    return {{ptx::float_to_e4m3(value)}};
  } else {
    static_assert(kFormat == Format::kE5m2, "INT8 is not an output format");
    return {{ptx::float_to_e5m2(value)}};
  }
}

// Sums and compute values in shared memory and workspace.
PTX_FN ptx::Words<4> words_of(float value) { return {{ptx::bits_of(value)}}; }
PTX_FN ptx::Words<4> words_of(i32 value) { return {{static_cast<u32>(value)}}; }
PTX_FN ptx::Words<8> words_of(double value) {
  const u64 bits = ptx::bits_of(value);
  return {{static_cast<u32>(bits), static_cast<u32>(bits >> 32)}};
}
template <class Value, i32 kBytes>
PTX_FN Value value_of(const ptx::Words<kBytes>& words, i32 index) {
  if constexpr (sizeof(Value) == 8) {
    return ptx::double_of(static_cast<u64>(words.word[2 * index + 1]) << 32 |
                          words.word[2 * index]);
  } else if constexpr (static_cast<Value>(0.5F) != static_cast<Value>(0)) {
    return ptx::float_of(words.word[index]);
  } else {
    return static_cast<Value>(words.word[index]);
  }
}

// Neighbouring values as one run of memory.
template <i32 kCount, class Value>
PTX_FN ptx::Words<kCount* static_cast<i32>(sizeof(Value))> pack(const Value* from) {
  constexpr i32 kWords = static_cast<i32>(sizeof(Value)) / 4;
  ptx::Words<kCount* static_cast<i32>(sizeof(Value))> words;
  PTX_UNROLL for (i32 j = 0; j < kCount; ++j) {
    const auto value = words_of(from[j]);
    PTX_UNROLL for (i32 w = 0; w < kWords; ++w) words.word[j * kWords + w] = value.word[w];
  }
  return words;
}

// Four neighbours in shared memory, at a multiple of 16 bytes.
template <class Value>
PTX_FN void store_quad(u32 address, const Value (&from)[4]) {
  constexpr i32 kEach = 16 / static_cast<i32>(sizeof(Value));
  PTX_UNROLL for (i32 i = 0; i < 4; i += kEach) {
    ptx::store_shared(address + static_cast<u32>(i * 16 / kEach), pack<kEach>(from + i));
  }
}

}  // namespace deepgemm::kernel
