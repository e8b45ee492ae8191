#include "backend/cpu/pack.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/launch_test_support.hpp"
#include "backend/cpu/packed_panels.hpp"

namespace deepgemm::cpu {
namespace {

void expect_round_trip(const layout::QuantizedWeights& weights) {
  const auto packed = pack(weights);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  EXPECT_EQ(packed_k(**packed), weights.k);
  EXPECT_EQ(packed_n(**packed), weights.n);
  EXPECT_EQ(packed_precision(**packed), weights.precision);
  EXPECT_TRUE(unpack(**packed) == weights) << weights.k << " x " << weights.n;
}

TEST(Pack, UnpackIsTheExactInverseForEveryShapeAndFormat) {
  uint64_t seed = 1;
  for (const gemm_precision_t precision :
       {PRECISION_INT4, PRECISION_INT4_AWQ, PRECISION_INT4_GPTQ, PRECISION_INT8, PRECISION_FP8_E4M3,
        PRECISION_FP8_E5M2}) {
    for (const int64_t n : {1, 7, 16, 31, 32, 33, 65, 129}) {
      for (const int64_t k : {1, 17, 63, 128, 130}) {
        WeightCase weights;
        weights.k = k;
        weights.n = n;
        weights.precision = precision;
        weights.group_size = 16 << seed % 4;
        weights.group_offset = static_cast<int64_t>(seed % 16);
        weights.zeros = seed % 3 != 0;
        weights.act_order = seed % 5 == 0;
        weights.outliers = precision == PRECISION_INT4_AWQ && k > 8 ? 3 : 0;
        weights.block_n = seed % 7 == 0 ? n : 1;
        weights.exact = false;
        weights.seed = seed++;
        expect_round_trip(random_weights(weights));
      }
    }
  }
}

TEST(Pack, TakesHalfAByteForAnInt4Weight) {
  WeightCase description;
  description.k = 256;
  description.n = 64;
  description.group_size = 128;
  description.zeros = false;
  const auto packed = pack(random_weights(description));
  ASSERT_TRUE(packed.ok());
  // Besides codes: scales and zero points of two groups in two panels, and the scales as given.
  EXPECT_EQ(packed_bytes(**packed), 256 * 64 / 2 + 4 * (32 * 4 + 32) + 2 * 64 * 4);
}

// FP32 weights; all of them BF16 values but the last, when `last_is_not`.
layout::QuantizedWeights fp32_weights(int64_t k, int64_t n, bool last_is_not) {
  layout::QuantizedWeights weights;
  weights.k = k;
  weights.n = n;
  weights.precision = PRECISION_FP32;
  weights.codes.resize(static_cast<size_t>(4 * k * n));
  for (int64_t i = 0; i < k * n; ++i) {
    uint32_t bits = static_cast<uint32_t>(i * 2654435761U) & 0xBFFF0000U;  // finite, of both signs
    if (last_is_not && i == k * n - 1) bits |= 1;
    std::memcpy(weights.codes.data() + 4 * i, &bits, sizeof(bits));
  }
  return weights;
}

TEST(Pack, KeepsFp32WeightsAsBf16WhereAllOfThemAre) {
  for (const int64_t n : {1, 31, 33, 64}) {
    for (const int64_t k : {1, 7, 64, 129}) {
      const auto narrow = fp32_weights(k, n, false);
      const auto wide = fp32_weights(k, n, true);
      expect_round_trip(narrow);
      expect_round_trip(wide);
      const auto of_narrow = pack(narrow);
      const auto of_wide = pack(wide);
      ASSERT_TRUE(of_narrow.ok() && of_wide.ok());
      EXPECT_EQ((*of_narrow)->format, WordFormat::kBf16);
      EXPECT_EQ((*of_wide)->format, WordFormat::kFp32);
    }
  }
}

TEST(Pack, GivesTheSameBitsForFp32WeightsKeptAsBf16) {
  for (const int64_t m : {1, 3, 8, 40}) {
    // Another value in the last column keeps all of the weights in FP32.
    std::vector<double> results[2];
    for (const bool wide : {false, true}) {
      Case c;
      c.m = m;
      c.k = 600;
      c.n = 100;
      c.exact = false;
      c.weights = fp32_weights(c.k, c.n, wide);
      Product product(c);
      product.launch();
      product.expect_within_bound();
      product.expect_guards_untouched();
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < c.n - 1; ++j) results[wide].push_back(product.result(0, i, j));
      }
    }
    EXPECT_EQ(results[0], results[1]) << m << " rows";
  }
}

TEST(Pack, KeepsEmptyWeights) {
  layout::QuantizedWeights weights;
  weights.precision = PRECISION_INT4;
  weights.group_size = 128;
  for (const auto& [k, n] : {std::pair(0, 0), std::pair(0, 5), std::pair(5, 0)}) {
    weights.k = k;
    weights.n = n;
    weights.scales.assign(static_cast<size_t>((k + 127) / 128 * n), 1.0F);
    expect_round_trip(weights);
  }
}

TEST(Pack, RefusesWhatValidateRefuses) {
  layout::QuantizedWeights weights = random_weights({});
  weights.scales.pop_back();
  const auto packed = pack(weights);
  ASSERT_FALSE(packed.ok());
  EXPECT_FALSE(packed.error().message.empty());
}

// load_panel at any place equals weight_value, also where it starts in the middle of a weight
// panel, and pads with zeros. Outlier channels are zero here and rows of their own beside.
template <class T>
void expect_panels_equal_weights(const Kernels<T>& kernels,
                                 const layout::QuantizedWeights& weights) {
  const auto packed = pack(weights);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const std::vector<int64_t>& outliers = weights.outlier_channels;
  std::vector<T> place(static_cast<size_t>(weights.k * kPanel));
  for (const Rows of : {Rows::kChannels, Rows::kOutliers}) {
    const int64_t rows = of == Rows::kChannels ? weights.k : (*packed)->outliers();
    for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{5}}) {
      for (int64_t column = 0; column < weights.n && first < rows; column += 13) {
        const PanelRange range{of, first, rows - first, column,
                               std::min<int64_t>(kPanel, weights.n - column)};
        std::fill(place.begin(), place.end(), T{-77});
        const T* panel = load_panel(kernels, **packed, range, false, place.data());
        for (int64_t i = 0; i < range.count; ++i) {
          const int64_t channel =
              of == Rows::kChannels ? first + i : outliers[static_cast<size_t>(first + i)];
          const bool absent = of == Rows::kChannels && std::ranges::count(outliers, channel) > 0;
          for (int64_t j = 0; j < kPanel; ++j) {
            const double expected = j < range.columns && !absent
                                        ? layout::weight_value(weights, channel, column + j)
                                        : 0.0;
            ASSERT_EQ(static_cast<double>(panel[i * kPanel + j]), expected)
                << "channel " << channel << " column " << column + j;
          }
        }
      }
    }
  }
}

TEST(LoadPanel, EqualsTheWeightsWithGroupsZerosActOrderAndOutliers) {
  for (const gemm_precision_t precision :
       {PRECISION_INT4_AWQ, PRECISION_INT8, PRECISION_FP8_E4M3, PRECISION_FP8_E5M2}) {
    for (const bool act_order : {false, true}) {
      for (const int outliers : {0, 4}) {
        if (outliers > 0 && precision != PRECISION_INT4_AWQ) continue;
        WeightCase description;
        description.k = 77;
        description.n = 75;
        description.precision = precision;
        description.group_offset = 3;
        description.act_order = act_order;
        description.outliers = outliers;
        description.exact = false;
        // FP16 scales times 5-bit integers are exact in FP32; 9-bit integers and FP8 codes too.
        const layout::QuantizedWeights weights = random_weights(description);
        expect_panels_equal_weights(kGenericKernels.f32, weights);
        expect_panels_equal_weights(kGenericKernels.f64, weights);
      }
    }
  }
}

}  // namespace
}  // namespace deepgemm::cpu
