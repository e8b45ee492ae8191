// The product of up to 32 rows of A with a panel of 32 columns on tile units (AMX), and the
// conversions that bring operands into tiles.
//
// Packed A: tiles of 16 rows and 64 bytes of k, [row tile][step][16][64]. A panel of B: rows of 32
// words (operands.hpp), 16 of them a step.
#pragma once

#include "kernels/cpu/amx.hpp"
#include "kernels/cpu/words.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int64_t kStepBytes = kTileRows * kPanel * 4;  // of a panel of B

template <bool kIntegers, int kSum, int kA, int kB>
inline void multiply_tiles() {
  if constexpr (kIntegers) {
    multiply_tiles_int8<kSum, kA, kB>();
  } else {
    multiply_tiles_bf16<kSum, kA, kB>();
  }
}

// Sums in tiles kSum, kSum + 1 (first 16 rows) and 2, 3; A in 4 and 5, B in 6 and 7.
template <bool kIntegers, int kRowTiles, int kSum = 0>
inline void add_steps(int64_t steps, const uint8_t* a, int64_t a_stride, const uint8_t* b,
                      Upcoming& next) {
  constexpr int64_t kWordRow = kPanel * 4;
  for (int64_t step = 0; step < steps; ++step, a += kTileBytes, b += kStepBytes) {
    next.fetch();
    load_tile<4>(a, kTileRowBytes);
    load_tile<6>(b, kWordRow);
    multiply_tiles<kIntegers, kSum, 4, 6>();
    load_tile<7>(b + kTileRowBytes, kWordRow);
    multiply_tiles<kIntegers, kSum + 1, 4, 7>();
    if constexpr (kRowTiles == 2) {
      load_tile<5>(a + a_stride, kTileRowBytes);
      multiply_tiles<kIntegers, 2, 5, 6>();
      multiply_tiles<kIntegers, 3, 5, 7>();
    }
  }
}

template <int kRowTiles, int kSum = 0>
inline void zero_sums() {
  zero_tile<kSum>();
  zero_tile<kSum + 1>();
  if constexpr (kRowTiles == 2) {
    zero_tile<2>();
    zero_tile<3>();
  }
}

template <int kRowTiles>
inline void load_sums(const uint8_t* sums, int64_t stride) {
  load_tile<0>(sums, stride);
  load_tile<1>(sums + kTileRowBytes, stride);
  if constexpr (kRowTiles == 2) {
    load_tile<2>(sums + kTileRows * stride, stride);
    load_tile<3>(sums + kTileRows * stride + kTileRowBytes, stride);
  }
}

template <int kRowTiles, int kSum = 0>
inline void store_sums(uint8_t* sums, int64_t stride) {
  store_tile<kSum>(sums, stride);
  store_tile<kSum + 1>(sums + kTileRowBytes, stride);
  if constexpr (kRowTiles == 2) {
    store_tile<2>(sums + kTileRows * stride, stride);
    store_tile<3>(sums + kTileRows * stride + kTileRowBytes, stride);
  }
}

// sums[i][j] += A's rows * the panel, 4-byte sums `stride` bytes from row to row; `fresh`: they
// count as zero. a_stride: bytes from one row tile to the next.
template <bool kIntegers, int kRowTiles>
void tile_product(int64_t steps, const uint8_t* a, int64_t a_stride, const uint8_t* b,
                  uint8_t* sums, int64_t stride, bool fresh, Upcoming next) {
  if (fresh) {
    zero_sums<kRowTiles>();
  } else {
    load_sums<kRowTiles>(sums, stride);
  }
  add_steps<kIntegers, kRowTiles>(steps, a, a_stride, b, next);
  store_sums<kRowTiles>(sums, stride);
}

// ---- Operands to tiles; every conversion is exact

typedef uint16_t HalfVector __attribute__((vector_size(kVectorBytes), may_alias));

// BF16 patterns of i (i < 16) and i - 32 (others): a code minus a zero point modulo 32 finds its
// value.
struct SmallNumbers {
  alignas(64) uint16_t code[32] = {};

  constexpr SmallNumbers() {
    for (int i = 1; i < 32; ++i) {
      const int value = i < 16 ? i : 32 - i;
      int exponent = 0;
      while (value >> (exponent + 1) != 0) ++exponent;
      const int fraction = (value << 7 >> exponent) & 0x7F;
      code[i] = static_cast<uint16_t>((i < 16 ? 0 : 0x8000) | (127 + exponent) << 7 | fraction);
    }
  }
};
constexpr SmallNumbers kSmallNumbers;

inline HalfVector look_up(HalfVector numbers, HalfVector index) {
#if defined(__clang__)
  HalfVector found;
  for (int i = 0; i < 32; ++i) found[i] = numbers[index[i] & 31];
  return found;
#else  // __builtin_shuffle makes the slower two-table form of this
  typedef short Builtin __attribute__((vector_size(64)));
  return __builtin_bit_cast(HalfVector, __builtin_ia32_permvarhi512_mask(
                                            __builtin_bit_cast(Builtin, numbers),
                                            __builtin_bit_cast(Builtin, index), Builtin{}, ~0U));
#endif
}

// Zero points of the columns, twice each.
inline HalfVector zero_pairs(const GroupLanes& lanes, int column) {
  const HalfWidthVector zeros =
      __builtin_convertvector(load<ByteVector>(lanes.zero + column), HalfWidthVector);
  const WordVector words = __builtin_convertvector(zeros, WordVector);
  return __builtin_bit_cast(HalfVector, words | (words << 16));
}

// `rows` rows of INT4 words to four rows each of BF16 pairs of code - zero.
inline void expand_int4(const uint32_t* words, int64_t rows, const GroupLanes& lanes,
                        uint32_t* to) {
  const HalfVector numbers = load<HalfVector>(kSmallNumbers.code);
  for (int column = 0; column < kPanel; column += kFloatLanes) {
    const HalfVector zeros = zero_pairs(lanes, column);
    for (int64_t row = 0; row < rows; ++row) {
      const HalfVector word = load<HalfVector>(words + row * kPanel + column);
      unrolled<4>([&](auto pair) {
        const HalfVector rest = word >> (4 * pair.value);
        const HalfVector index = (pair.value == 3 ? rest : rest & 15) - zeros;
        store(to + (row * 4 + pair.value) * kPanel + column, look_up(numbers, index));
      });
    }
  }
}

// The same for bytes, to two rows each. INT8 gives code - zero, FP8 its value.
template <WordFormat kFormat>
void expand_bytes(const uint32_t* words, int64_t rows, const GroupLanes& lanes, uint32_t* to) {
  for (int column = 0; column < kPanel; column += kFloatLanes) {
    const FloatVector zero = is_integer(kFormat) ? zeros_of(lanes, column) : FloatVector{};
    for (int64_t row = 0; row < rows; ++row) {
      const WordVector word = load<WordVector>(words + row * kPanel + column);
      unrolled<2>([&](auto pair) {
        const FloatVector low = decode<kFormat>(word, 2 * pair.value) - zero;
        const FloatVector high = decode<kFormat>(word, 2 * pair.value + 1) - zero;
        store(to + (row * 2 + pair.value) * kPanel + column,
              (__builtin_bit_cast(WordVector, low) >> 16) |
                  (__builtin_bit_cast(WordVector, high) & 0xFFFF0000U));
      });
    }
  }
}

template <WordFormat kFormat>
inline void expand(const uint32_t* words, int64_t rows, const GroupLanes& lanes, uint32_t* to) {
  if constexpr (kFormat == WordFormat::kInt4) {
    expand_int4(words, rows, lanes, to);
  } else {
    expand_bytes<kFormat>(words, rows, lanes, to);
  }
}

// ---- Weights whose scales change along k

// sums += group's sums * scales of the columns, for `rows` rows; the group's sums are in tiles and
// stop in `scratch`, 32 rows of 32 values.
template <int kRowTiles, int kSum = 0>
inline void add_group(const GroupLanes& lanes, int64_t rows, float* scratch, float* sums,
                      int64_t stride) {
  store_sums<kRowTiles, kSum>(reinterpret_cast<uint8_t*>(scratch), kPanel * 4);
  FloatVector scale[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v)
    scale[v] = load<FloatVector>(lanes.scale + v * kFloatLanes);
  for (int64_t i = 0; i < rows; ++i) {
    for (int v = 0; v < kPanelVectors; ++v) {
      float* to = sums + i * stride + v * kFloatLanes;
      store(to, load<FloatVector>(to) +
                    load<FloatVector>(scratch + i * kPanel + v * kFloatLanes) * scale[v]);
    }
  }
}

// `steps` steps of expanded weights.
template <int kRowTiles>
void scaled_tile_product(const TileGroups& groups, int64_t steps, const uint8_t* a,
                         int64_t a_stride, const uint8_t* b, float* sums, int64_t stride,
                         Upcoming next) {
  const GroupLanes* lanes = groups.lanes;
  for (int64_t run = groups.first_steps; steps > 0; run = groups.group_steps, ++lanes) {
    const int64_t count = run < steps ? run : steps;
    zero_sums<kRowTiles>();
    add_steps<false, kRowTiles>(count, a, a_stride, b, next);
    add_group<kRowTiles>(*lanes, groups.rows, groups.scratch, sums, stride);
    a += count * kTileBytes;
    b += count * kStepBytes;
    steps -= count;
  }
}

constexpr int64_t kFusedAhead = 2;
constexpr int64_t kFusedSlots = 4;

// Steps of packed words, expanded in their order into a ring of kFusedSlots steps: tiles are loaded
// long after their rows were stored.
template <WordFormat kFormat>
class Expansion {
 public:
  Expansion(const TileGroups& groups, int64_t steps, const uint32_t* words, uint8_t* ring)
      : words_(words),
        ring_(ring),
        lanes_(groups.lanes),
        left_(groups.first_steps),
        group_steps_(groups.group_steps),
        steps_(steps) {
    for (int64_t step = 0; step < kFusedAhead; ++step) expand_next();
  }

  // The rows of the next step to multiply, while one further ahead is expanded.
  const uint8_t* next() {
    expand_next();
    return ring_ + taken_++ % kFusedSlots * kStepBytes;
  }

 private:
  void expand_next() {
    if (done_ == steps_) return;
    if (left_ == 0) {
      ++lanes_;
      left_ = group_steps_;
    }
    --left_;
    constexpr int64_t kRows = 32 / channels_per_word(kFormat);  // of words in a step
    expand<kFormat>(words_ + done_ * kRows * kPanel, kRows, *lanes_,
                    reinterpret_cast<uint32_t*>(ring_ + done_ % kFusedSlots * kStepBytes));
    ++done_;
  }

  const uint32_t* words_;
  uint8_t* ring_;
  const GroupLanes* lanes_;
  int64_t left_, group_steps_, steps_;
  int64_t done_ = 0, taken_ = 0;
};

// As scaled_tile_product from packed words, for few rows: a step is expanded while another is
// multiplied. With one row tile groups take turns in two sets of tiles, and the sums of a group are
// stored after the first step of the next: storing waits for products, and all behind it would wait
// too.
template <WordFormat kFormat, int kRowTiles>
void fused_tile_product(const TileGroups& groups, int64_t steps, const uint8_t* a, int64_t a_stride,
                        const uint32_t* words, uint8_t* stage, float* sums, int64_t stride,
                        Upcoming next) {
  constexpr int kOther = kRowTiles == 1 ? 2 : 0;
  Expansion<kFormat> rows(groups, steps, words, stage);
  const GroupLanes* lanes = groups.lanes;
  bool waiting = false;  // the group before, in the other tiles
  const auto add_one = [&](auto first, int64_t count) {
    constexpr int kSum = first.value;
    constexpr int kBefore = kOther - kSum;
    zero_sums<kRowTiles, kSum>();
    for (int64_t step = 0; step < count; ++step, a += kTileBytes) {
      add_steps<false, kRowTiles, kSum>(1, a, a_stride, rows.next(), next);
      if (kRowTiles == 1 && step == 0 && waiting) {
        add_group<kRowTiles, kBefore>(lanes[-1], groups.rows, groups.scratch, sums, stride);
      }
    }
    waiting = kRowTiles == 1;
    if (!waiting) add_group<kRowTiles, kSum>(*lanes, groups.rows, groups.scratch, sums, stride);
    ++lanes;
  };
  int64_t run = groups.first_steps;
  bool second = false;
  for (; steps > 0; steps -= run, run = groups.group_steps, second = !second) {
    const int64_t count = run < steps ? run : steps;
    if (second && kRowTiles == 1) {
      add_one(Constant<kOther>(), count);
    } else {
      add_one(Constant<0>(), count);
    }
  }
  if (!waiting) return;
  if (second) {
    add_group<kRowTiles, 0>(lanes[-1], groups.rows, groups.scratch, sums, stride);
  } else {
    add_group<kRowTiles, kOther>(lanes[-1], groups.rows, groups.scratch, sums, stride);
  }
}

// ---- Conversions

// `count` values, which BF16 holds exactly.
inline void narrow_to_bf16(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, from[i]) >> 16);
  }
}

inline void narrow_to_int8(const float* from, int8_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int8_t>(from[i]);
}

// Rows k, k+1, ... of 32 values to rows of words of two (BF16) or four (INT8) channels.
inline void pair_rows(const float* rows, int64_t words, uint32_t* to) {
  for (int64_t w = 0; w < words; ++w) {
    for (int j = 0; j < kPanel; ++j) {
      const uint32_t low = __builtin_bit_cast(uint32_t, rows[2 * w * kPanel + j]);
      const uint32_t high = __builtin_bit_cast(uint32_t, rows[(2 * w + 1) * kPanel + j]);
      to[w * kPanel + j] = low >> 16 | (high & 0xFFFF0000U);
    }
  }
}

inline void quad_rows(const float* rows, int64_t words, uint32_t* to) {
  for (int64_t w = 0; w < words; ++w) {
    for (int j = 0; j < kPanel; ++j) {
      uint32_t word = 0;
      for (int c = 0; c < 4; ++c) {
        const auto code =
            static_cast<uint8_t>(static_cast<int32_t>(rows[(4 * w + c) * kPanel + j]));
        word |= static_cast<uint32_t>(code) << (8 * c);
      }
      to[w * kPanel + j] = word;
    }
  }
}

}  // namespace
}  // namespace deepgemm::cpu
