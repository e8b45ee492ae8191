// The product of up to 32 rows of A with a panel of 32 columns on tile units (AMX), and the
// conversions that bring operands into tiles.
//
// Packed A: tiles of up to 16 rows and 64 bytes of k, [row tile][step][row][64]. A panel of B: rows
// of 32 words (operands.hpp), 16 of them a step.
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
inline void add_steps(int64_t steps, TilesOfA& a, const uint8_t* b, Upcoming& next) {
  constexpr int64_t kWordRow = kPanel * 4;
  for (int64_t step = 0; step < steps; ++step, a.data += a.step, b += kStepBytes) {
    next.fetch();
    load_tile<4>(a.data, kTileRowBytes);
    load_tile<6>(b, kWordRow);
    multiply_tiles<kIntegers, kSum, 4, 6>();
    load_tile<7>(b + kTileRowBytes, kWordRow);
    multiply_tiles<kIntegers, kSum + 1, 4, 7>();
    if constexpr (kRowTiles == 2) {
      load_tile<5>(a.data + a.stride, kTileRowBytes);
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
// count as zero.
template <bool kIntegers, int kRowTiles>
void tile_product(int64_t steps, TilesOfA a, const uint8_t* b, uint8_t* sums, int64_t stride,
                  bool fresh, Upcoming next) {
  if (fresh) {
    zero_sums<kRowTiles>();
  } else {
    load_sums<kRowTiles>(sums, stride);
  }
  add_steps<kIntegers, kRowTiles>(steps, a, b, next);
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

// Packed words of one panel to BF16 pairs of code - zero (FP8: of its value), in the order of k.
template <WordFormat kFormat>
class Expander {
 public:
  // Before words of another group.
  void move_to(const GroupLanes& lanes) {
    if constexpr (!is_integer(kFormat)) return;
    for (int v = 0; v < kPanelVectors; ++v) zero_[v] = zeros_of(lanes, v * kFloatLanes);
  }

  // Rows of words, to two rows of pairs each.
  void expand(const uint32_t* words, int64_t rows, uint32_t* to) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int v = 0; v < kPanelVectors; ++v, words += kFloatLanes, to += kFloatLanes) {
        const WordVector word = load<WordVector>(words);
        unrolled<2>([&](auto pair) {
          const FloatVector low = decode<kFormat>(word, 2 * pair.kValue) - zero_[v];
          const FloatVector high = decode<kFormat>(word, 2 * pair.kValue + 1) - zero_[v];
          store(to + pair.kValue * kPanel,
                (__builtin_bit_cast(WordVector, low) >> 16) |
                    (__builtin_bit_cast(WordVector, high) & 0xFFFF0000U));
        });
      }
      to += kPanel;
    }
  }

 private:
  FloatVector zero_[kPanelVectors] = {};
};

// Four rows of pairs each. Two codes share a subtraction; of a difference's lane only the lowest
// five bits are looked at.
template <>
class Expander<WordFormat::kInt4> {
 public:
  void move_to(const GroupLanes& lanes) {
    for (int v = 0; v < kPanelVectors; ++v) {
      const HalfWidthVector zeros =
          __builtin_convertvector(load<ByteVector>(lanes.zero + v * kFloatLanes), HalfWidthVector);
      zero_[v] =
          __builtin_bit_cast(CodeVector, __builtin_convertvector(zeros, WordVector) * 0x01010101U);
    }
  }

  void expand(const uint32_t* words, int64_t rows, uint32_t* to) const {
    const HalfVector numbers = load<HalfVector>(kSmallNumbers.code);
    for (int64_t row = 0; row < rows; ++row) {
      for (int v = 0; v < kPanelVectors; ++v, words += kFloatLanes, to += kFloatLanes) {
        const HalfVector word = load<HalfVector>(words);
        const HalfVector even = subtract(word & 0x0F0F, zero_[v]);
        const HalfVector odd = subtract((word >> 4) & 0x0F0F, zero_[v]);
        store(to, look_up(numbers, even));
        store(to + kPanel, look_up(numbers, odd));
        store(to + 2 * kPanel, look_up(numbers, even >> 8));
        store(to + 3 * kPanel, look_up(numbers, odd >> 8));
      }
      to += 3 * kPanel;
    }
  }

 private:
  typedef uint8_t CodeVector __attribute__((vector_size(kVectorBytes), may_alias));

  static HalfVector subtract(HalfVector codes, CodeVector zeros) {
    return __builtin_bit_cast(HalfVector, __builtin_bit_cast(CodeVector, codes) - zeros);
  }

  CodeVector zero_[kPanelVectors] = {};
};

// Packed weights that are expanded step by step.
template <WordFormat kFormat>
class Expansion {
 public:
  static constexpr int64_t kRows = 32 / channels_per_word(kFormat);  // of words in a step

  explicit Expansion(const WordSteps& words)
      : words_(words.data),
        lanes_(words.groups.lanes),
        left_(words.groups.first_steps),
        group_steps_(words.groups.group_steps),
        steps_(words.steps) {
    if (steps_ > 0) expander_.move_to(*lanes_);
  }

  // One step, if there is one left, to 16 rows.
  void expand_next(uint8_t* to) {
    if (steps_ == 0) return;
    if (left_ == 0) {
      expander_.move_to(*++lanes_);
      left_ = group_steps_;
    }
    expander_.expand(words_, kRows, reinterpret_cast<uint32_t*>(to));
    words_ += kRows * kPanel;
    --left_;
    --steps_;
  }

 private:
  Expander<kFormat> expander_;
  const uint32_t* words_;
  const GroupLanes* lanes_;
  int64_t left_, group_steps_, steps_;
};

template <WordFormat kFormat>
void expand(const WordSteps& words, uint8_t* to) {
  Expansion<kFormat> expansion(words);
  for (int64_t step = 0; step < words.steps; ++step, to += kStepBytes) expansion.expand_next(to);
}

// ---- Weights whose scales change along k

// sums += group's sums * scales of the columns; the group's sums are in tiles.
template <int kRowTiles, int kSum = 0>
inline void add_group(const GroupLanes& lanes, const TileSums& sums) {
  store_sums<kRowTiles, kSum>(reinterpret_cast<uint8_t*>(sums.scratch), kPanel * 4);
  FloatVector scale[kPanelVectors];
  for (int v = 0; v < kPanelVectors; ++v)
    scale[v] = load<FloatVector>(lanes.scale + v * kFloatLanes);
  for (int64_t i = 0; i < sums.rows; ++i) {
    for (int v = 0; v < kPanelVectors; ++v) {
      float* to = sums.data + i * sums.stride + v * kFloatLanes;
      store(to, load<FloatVector>(to) +
                    load<FloatVector>(sums.scratch + i * kPanel + v * kFloatLanes) * scale[v]);
    }
  }
}

// `steps` steps of expanded weights `b`. Between them, the words of another block are expanded for
// a later call: the vector units have little else to do.
template <WordFormat kFormat, int kRowTiles>
void scaled_tile_product(const TileGroups& groups, int64_t steps, TilesOfA a, const uint8_t* b,
                         const TileSums& sums, const WordSteps& later, uint8_t* later_to,
                         Upcoming next) {
  Expansion<kFormat> expansion(later);
  const GroupLanes* lanes = groups.lanes;
  int64_t owed = 0;  // steps to expand, times `steps`
  const int64_t whole = steps;
  for (int64_t run = groups.first_steps; steps > 0; run = groups.group_steps, ++lanes) {
    const int64_t count = run < steps ? run : steps;
    zero_sums<kRowTiles>();
    for (int64_t step = 0; step < count; ++step, b += kStepBytes) {
      add_steps<false, kRowTiles>(1, a, b, next);
      for (owed += later.steps; owed >= whole; owed -= whole, later_to += kStepBytes) {
        expansion.expand_next(later_to);
      }
    }
    add_group<kRowTiles>(*lanes, sums);
    steps -= count;
  }
}

constexpr int64_t kFusedAhead = 2;
constexpr int64_t kFusedSlots = 4;

// Steps of packed words in a ring of kFusedSlots steps, expanded kFusedAhead steps before they are
// multiplied: tiles are loaded long after their rows were stored.
template <WordFormat kFormat>
class ExpandedRing {
 public:
  ExpandedRing(const WordSteps& words, uint8_t* ring) : expansion_(words), ring_(ring) {
    for (int64_t step = 0; step < kFusedAhead; ++step) expand_next();
  }

  // The rows of the next step to multiply.
  const uint8_t* next() {
    expand_next();
    return slot(taken_++);
  }

 private:
  uint8_t* slot(int64_t step) const { return ring_ + step % kFusedSlots * kStepBytes; }
  void expand_next() { expansion_.expand_next(slot(done_++)); }

  Expansion<kFormat> expansion_;
  uint8_t* ring_;
  int64_t done_ = 0, taken_ = 0;
};

// As scaled_tile_product from packed words, for few rows: a step is expanded while another is
// multiplied. With one row tile groups take turns in two sets of tiles, and the sums of a group are
// stored after the first step of the next: storing waits for products, and all behind it would wait
// too.
template <WordFormat kFormat, int kRowTiles>
void fused_tile_product(const WordSteps& words, TilesOfA a, uint8_t* ring, const TileSums& sums,
                        Upcoming next) {
  constexpr int kOther = kRowTiles == 1 ? 2 : 0;
  ExpandedRing<kFormat> rows(words, ring);
  const GroupLanes* lanes = words.groups.lanes;
  bool waiting = false;  // the group before, in the other tiles
  const auto add_one = [&](auto first, int64_t count) {
    constexpr int kSum = first.kValue;
    constexpr int kBefore = kOther - kSum;
    zero_sums<kRowTiles, kSum>();
    for (int64_t step = 0; step < count; ++step) {
      add_steps<false, kRowTiles, kSum>(1, a, rows.next(), next);
      if (kRowTiles == 1 && step == 0 && waiting) {
        add_group<kRowTiles, kBefore>(lanes[-1], sums);
      }
    }
    waiting = kRowTiles == 1;
    if (!waiting) add_group<kRowTiles, kSum>(*lanes, sums);
    ++lanes;
  };
  int64_t run = words.groups.first_steps;
  bool second = false;
  for (int64_t steps = words.steps; steps > 0;
       steps -= run, run = words.groups.group_steps, second = !second) {
    const int64_t count = run < steps ? run : steps;
    if (second && kRowTiles == 1) {
      add_one(Constant<kOther>(), count);
    } else {
      add_one(Constant<0>(), count);
    }
  }
  if (!waiting) return;
  if (second) {
    add_group<kRowTiles, 0>(lanes[-1], sums);
  } else {
    add_group<kRowTiles, kOther>(lanes[-1], sums);
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
