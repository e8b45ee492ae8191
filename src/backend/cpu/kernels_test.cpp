#include "backend/cpu/kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/device.hpp"
#include "backend/cpu/pack.hpp"
#include "base/formats.hpp"

namespace deepgemm::cpu {
namespace {

// Tables that this machine can run, with their names.
std::vector<std::pair<const char*, const IsaKernels*>> runnable() {
  std::vector<std::pair<const char*, const IsaKernels*>> tables = {{"generic", &kGenericKernels}};
#if defined(__x86_64__)
  if (cpu_device().best_isa >= Isa::kAvx2) tables.emplace_back("avx2", &kAvx2Kernels);
  if (cpu_device().best_isa >= Isa::kAvx512) tables.emplace_back("avx512", &kAvx512Kernels);
#endif
  return tables;
}

template <class T>
const Kernels<T>& of(const IsaKernels& kernels) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return kernels.f32;
  } else {
    return kernels.f64;
  }
}

template <class T>
T* aligned(std::vector<T>& storage, size_t count) {
  storage.assign(count + 64 / sizeof(T), T{0});
  const auto address = reinterpret_cast<uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(T);
}

template <class Code>
void expect_all_codes(Source source, float (*expected)(Code)) {
  constexpr size_t kCodes = size_t{1} << (8 * sizeof(Code));
  std::vector<uint8_t> bytes(kCodes * sizeof(Code) + 1);
  uint8_t* codes = bytes.data() + 1;  // any alignment
  for (size_t i = 0; i < kCodes; ++i) {
    const auto code = static_cast<Code>(i);
    std::memcpy(codes + i * sizeof(Code), &code, sizeof(Code));
  }
  for (const auto& [name, table] : runnable()) {
    std::vector<float> wide(kCodes);
    std::vector<double> wider(kCodes);
    table->f32.widen(source, codes, 0, wide.data(), 0, 1, static_cast<int64_t>(kCodes));
    table->f64.widen(source, codes, 0, wider.data(), 0, 1, static_cast<int64_t>(kCodes));
    for (size_t i = 0; i < kCodes; ++i) {
      const float value = expected(static_cast<Code>(i));
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(value))
          << name << " code " << i;
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(wider[i])) << name << " code " << i;
      } else {
        ASSERT_EQ(wider[i], static_cast<double>(value)) << name << " code " << i;
        ASSERT_EQ(std::signbit(wider[i]), std::signbit(value)) << name << " code " << i;
      }
    }
  }
}

TEST(Widening, EqualsTheConversionsOfEveryFp16Code) {
  expect_all_codes<uint16_t>(Source::kFp16, base::fp16_to_float);
}
TEST(Widening, EqualsTheConversionsOfEveryBf16Code) {
  expect_all_codes<uint16_t>(Source::kBf16, base::bf16_to_float);
}
TEST(Widening, EqualsTheConversionsOfEveryFp8Code) {
  expect_all_codes<uint8_t>(Source::kE4m3, base::e4m3_to_float);
  expect_all_codes<uint8_t>(Source::kE5m2, base::e5m2_to_float);
}
TEST(Widening, KeepsEveryInt8Code) {
  expect_all_codes<int8_t>(Source::kInt8, [](int8_t code) { return static_cast<float>(code); });
}

TEST(Widening, TouchesOnlyTheCountedElements) {
  for (const auto& [name, table] : runnable()) {
    for (int64_t count = 0; count <= 70; ++count) {
      std::vector<uint16_t> codes(static_cast<size_t>(count), 0x3C00);  // 1.0 in FP16
      std::vector<float> wide(static_cast<size_t>(count) + 2, -7.0F);
      table->f32.widen(Source::kFp16, codes.data(), 0, wide.data() + 1, 0, 1, count);
      EXPECT_EQ(wide.front(), -7.0F);
      EXPECT_EQ(wide.back(), -7.0F);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(wide[static_cast<size_t>(i) + 1], 1.0F) << name;
    }
  }
}

template <class T>
void expect_transposed() {
  for (const auto& [name, table] : runnable()) {
    for (const auto& [rows, columns] :
         {std::pair(1, 1), std::pair(7, 3), std::pair(64, 16), std::pair(63, 15), std::pair(17, 16),
          std::pair(16, 17), std::pair(40, 24)}) {
      std::vector<T> from(24 * 64);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(i);
      std::vector<T> to(64 * 32, T{-1});
      of<T>(*table).transpose(from.data(), 64, to.data(), 32, rows, columns);
      for (int i = 0; i < 64; ++i) {
        for (int j = 0; j < 32; ++j) {
          const T value = i < rows && j < columns ? static_cast<T>(j * 64 + i) : T{-1};
          ASSERT_EQ(to[static_cast<size_t>(i * 32 + j)], value)
              << name << " " << rows << " x " << columns;
        }
      }
    }
  }
}

TEST(Transpose, ExchangesRowsAndColumns) {
  expect_transposed<float>();
  expect_transposed<double>();
}

TEST(Widening, AndScalingWalkRowsWithTheirStrides) {
  for (const auto& [name, table] : runnable()) {
    std::vector<int8_t> codes(5 * 40);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i % 100);
    std::vector<float> wide(5 * 50, -1.0F);
    const std::vector<float> scales(33, 2.0F);
    table->f32.widen(Source::kInt8, codes.data(), 40, wide.data(), 50, 5, 33);
    table->f32.scale(wide.data(), 50, scales.data(), 5, 33);
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 50; ++j) {
        const float expected = j < 33 ? 2.0F * static_cast<float>(codes[i * 40 + j]) : -1.0F;
        ASSERT_EQ(wide[i * 50 + j], expected) << name;
      }
    }
  }
}

// Value of channel `channel` of a word, as base/formats.hpp and packed_panels.hpp define it.
double value_in_word(WordFormat format, uint32_t word, int channel) {
  switch (format) {
    case WordFormat::kFp32:
      return static_cast<double>(std::bit_cast<float>(word));
    case WordFormat::kFp16:
      return base::fp16_to_float(static_cast<uint16_t>(word >> (16 * channel)));
    case WordFormat::kBf16:
      return base::bf16_to_float(static_cast<uint16_t>(word >> (16 * channel)));
    case WordFormat::kE4m3:
      return base::e4m3_to_float(static_cast<uint8_t>(word >> (8 * channel)));
    case WordFormat::kE5m2:
      return base::e5m2_to_float(static_cast<uint8_t>(word >> (8 * channel)));
    case WordFormat::kInt8:
      return static_cast<int8_t>(word >> (8 * channel)) + 128;
    case WordFormat::kInt4:
      return static_cast<double>(word >> ((channel % 2) * 16 + (channel / 2) * 4) & 15U);
  }
  return 0;
}

// A row of words for each format, in which every code of 8 and 16 bits occurs in the end.
std::vector<uint32_t> random_words(int rows) {
  std::mt19937 random(11);
  std::vector<uint32_t> words(static_cast<size_t>(rows * kPanel));
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  return words;
}

template <class T>
void expect_same_number(T found, double expected, const char* name) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(found)) << name;
  } else {
    ASSERT_EQ(static_cast<double>(found), expected) << name;
  }
}

template <class T>
void expect_words_loaded() {
  constexpr int kRows = 600;
  const std::vector<uint32_t> words = random_words(kRows);
  for (const auto& [name, table] : runnable()) {
    for (int f = 0; f < kWordFormats; ++f) {
      const auto format = static_cast<WordFormat>(f);
      const int per_word = channels_per_word(format);
      const int count = kRows * per_word - 3;
      std::vector<T> to(static_cast<size_t>((count + 1) * kPanel), T{-7});
      of<T>(*table).load_words[f](words.data(), 2, count, nullptr, to.data());
      for (int i = 0; i < count; ++i) {
        for (int j = 0; j < kPanel; ++j) {
          const int channel = i + 2;
          const uint32_t word = words[static_cast<size_t>(channel / per_word * kPanel + j)];
          expect_same_number(to[static_cast<size_t>(i * kPanel + j)],
                             value_in_word(format, word, channel % per_word), name);
        }
      }
      for (int j = 0; j < kPanel; ++j)
        ASSERT_EQ(to[static_cast<size_t>(count * kPanel + j)], T{-7});
    }
  }
}

TEST(LoadWords, GivesTheValueOfEveryChannel) {
  expect_words_loaded<float>();
  expect_words_loaded<double>();
}

GroupLanes random_lanes(std::mt19937& random) {
  std::uniform_real_distribution<float> scale(1e-3F, 2.0F);
  GroupLanes lanes;
  for (int j = 0; j < kPanel; ++j) {
    lanes.scale[j] = scale(random);
    lanes.zero[j] = static_cast<uint8_t>(random() & 15);
  }
  return lanes;
}

TEST(LoadWords, SubtractsZeroPointsExactlyAndRoundsOnce) {
  const std::vector<uint32_t> words = random_words(1);
  std::mt19937 random(7);
  for (const auto& [name, table] : runnable()) {
    for (const WordFormat format : {WordFormat::kInt4, WordFormat::kInt8, WordFormat::kE4m3}) {
      const GroupLanes lanes = random_lanes(random);
      const int count = channels_per_word(format);
      std::vector<float> narrow(static_cast<size_t>(count * kPanel));
      std::vector<double> wide(static_cast<size_t>(count * kPanel));
      table->f32.load_words[static_cast<int>(format)](words.data(), 0, count, &lanes,
                                                      narrow.data());
      table->f64.load_words[static_cast<int>(format)](words.data(), 0, count, &lanes, wide.data());
      for (int i = 0; i < count * kPanel; ++i) {
        const int j = i % kPanel;
        double value = value_in_word(format, words[static_cast<size_t>(j)], i / kPanel);
        if (is_integer(format)) value -= lanes.zero[j];
        const auto place = static_cast<size_t>(i);
        expect_same_number(narrow[place], static_cast<float>(value) * lanes.scale[j], name);
        expect_same_number(wide[place], value * static_cast<double>(lanes.scale[j]), name);
      }
    }
  }
}

// Packed operands of the largest micro-kernel, random.
template <class T>
struct Panels {
  Panels(const Kernels<T>& kernels, int64_t k_values) : k(k_values) {
    std::mt19937 random(static_cast<uint32_t>(k));
    std::uniform_real_distribution<double> value(-1.0, 1.0);
    const int64_t stripes = (k + kStripe - 1) / kStripe;
    a_step = kernels.rows * kStripeStride;
    a = aligned(a_storage, static_cast<size_t>(std::max<int64_t>(stripes, 1) * a_step));
    b = aligned(b_storage, static_cast<size_t>(std::max<int64_t>(k, 1) * kPanel));
    for (int i = 0; i < kernels.rows; ++i) {
      for (int64_t p = 0; p < k; ++p) a[at(i, p)] = static_cast<T>(value(random));
    }
    for (int64_t p = 0; p < k * kPanel; ++p) b[p] = static_cast<T>(value(random));
  }
  int64_t at(int64_t i, int64_t p) const {
    return p / kStripe * a_step + i * kStripeStride + p % kStripe;
  }

  int64_t k, a_step;
  std::vector<T> a_storage, b_storage;
  T* a;
  T* b;
};

template <class T>
void expect_equal_chains() {
  for (const auto& [name, table] : runnable()) {
    const Kernels<T>& kernels = of<T>(*table);
#if defined(__x86_64__)
    const bool fuses = table != &kGenericKernels;  // SSE2 has no fused operations
#else
    const bool fuses = true;
#endif
    for (const int64_t k : {0, 1, 2, 255, 256, 257, 600}) {
      const Panels<T> panels(kernels, k);
      for (int rows = 1; rows <= kernels.rows; ++rows) {
        std::vector<double> acc(static_cast<size_t>((rows + 1) * 40), 0.5);
        kernels.multiply[rows](k, panels.a, panels.a_step, panels.b, acc.data(), 40);
        for (int i = 0; i <= rows; ++i) {
          for (int j = 0; j < 40; ++j) {
            T sum = 0;
            if (i < rows && j < kernels.columns) {
              for (int64_t p = 0; p < k; ++p) {
                const T x = panels.a[panels.at(i, p)];
                const T y = panels.b[p * kPanel + j];
                sum = fuses ? std::fma(x, y, sum) : sum + x * y;
              }
            }
            ASSERT_EQ(acc[static_cast<size_t>(i * 40 + j)], 0.5 + static_cast<double>(sum))
                << name << " k " << k << " rows " << rows << " at " << i << "," << j;
          }
        }
      }
    }
  }
}

TEST(MicroKernel, SumsInOneAscendingChainForEveryNumberOfRows) {
  expect_equal_chains<float>();
  expect_equal_chains<double>();
}

TEST(MicroKernel, KeepsSubnormals) {
  for (const auto& [name, table] : runnable()) {
    const Kernels<float>& kernels = table->f32;
    std::vector<float> a_storage, b_storage;
    float* a = aligned(a_storage, static_cast<size_t>(kStripeStride));
    float* b = aligned(b_storage, static_cast<size_t>(kPanel));
    std::vector<double> acc(32, 0.0);
    a[0] = 0x1p-100F;
    b[0] = 0x1p-49F;  // the product is FP32's smallest subnormal
    kernels.multiply[1](1, a, 0, b, acc.data(), 32);
    EXPECT_EQ(acc[0], 0x1p-149) << name;
  }
}

// A streaming kernel gives the bits of load_words and multiply, for every format and number of
// rows.
TEST(Stream, GivesTheBitsOfTheBlockedKernel) {
  constexpr int64_t kChannels = 200, kGroup = 64, kPanels = 4;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> value(-1.0F, 1.0F);
  std::vector<uint32_t> words = random_words(static_cast<int>(kPanels * kChannels));
  for (uint32_t& word : words) word &= 0x3F3F3F3FU;  // no inf, no NaN in any format
  std::vector<GroupLanes> lanes;
  for (int i = 0; i < kPanels * 4; ++i) lanes.push_back(random_lanes(random));
  std::vector<float> a_storage, b_storage;
  float* a = aligned(a_storage, 8 * kStripeStride);
  float* b = aligned(b_storage, kChannels * kPanel);
  for (int64_t i = 0; i < 8 * kStripeStride; ++i) a[i] = value(random);
  for (const auto& [name, table] : runnable()) {
    for (int f = 0; f < kWordFormats; ++f) {
      const auto format = static_cast<WordFormat>(f);
      const bool scaled = is_quantised(format);
      for (int size = 0; size < kStreamSizes; ++size) {
        const int rows = 1 << size;
        std::vector<double> streamed(8 * kPanels * kPanel, 0.25), blocked = streamed;
        table->stream[f][size]({a, words.data(), kChannels * kPanel,
                                scaled ? lanes.data() : nullptr, 4, kChannels, 40, kGroup,
                                streamed.data(), kPanels * kPanel});
        for (int64_t panel = 0; panel < table->stream_panels[size]; ++panel) {
          for (int64_t first = 0, group = 0; first < kChannels; ++group) {
            const int64_t end = std::min(scaled ? 40 + group * kGroup : kChannels, kChannels);
            table->f32.load_words[f](
                words.data() + panel * kChannels * kPanel, first, end - first,
                scaled ? &lanes[static_cast<size_t>(panel * 4 + group)] : nullptr,
                b + first * kPanel);
            first = end;
          }
          for (int part = 0; part < kPanel; part += table->f32.columns) {
            for (int i = 0; i < rows; ++i) {
              table->f32.multiply[1](kChannels, a + i * kStripeStride, 0, b + part,
                                     blocked.data() + (i * kPanels + panel) * kPanel + part, 0);
            }
          }
        }
        ASSERT_EQ(streamed, blocked) << name << " format " << f << " rows " << rows;
      }
    }
  }
}

TEST(KernelTables, VectorsFitThePanels) {
  for (const auto& [name, table] : runnable()) {
    EXPECT_EQ(kPanel % table->f32.columns, 0) << name;
    EXPECT_EQ(kPanel % table->f64.columns, 0) << name;
    EXPECT_LE(table->f32.rows, kMaxRows) << name;
    EXPECT_LE(table->f64.rows, kMaxRows) << name;
  }
}

}  // namespace
}  // namespace deepgemm::cpu
