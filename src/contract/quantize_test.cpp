#include "contract/quantize.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/formats.hpp"

namespace deepgemm::contract {
namespace {

using layout::QuantizedWeights;
using testing::HasSubstr;

std::vector<float> random_weights(int64_t count, unsigned seed, float scale = 0.05f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

// [k][n], contiguous.
base::Result<Quantized> quantize(const std::vector<float>& dense, int64_t k, int64_t n,
                                 const QuantizeOptions& options) {
  return quantize_weights(dense.data(), PRECISION_FP32, k, n, n, 1, options);
}

Quantized quantized(const std::vector<float>& dense, int64_t k, int64_t n,
                    const QuantizeOptions& options) {
  auto result = quantize(dense, k, n, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  if (!result.ok()) return {};
  const auto valid = layout::validate(result->weights);
  EXPECT_TRUE(valid.ok()) << (valid.ok() ? "" : valid.error().message);
  return *result;
}

double scale_of(const QuantizedWeights& w, int64_t channel, int64_t column) {
  const int64_t blocks = (w.n + w.block_n - 1) / w.block_n;
  return static_cast<double>(
      w.scales[static_cast<size_t>(w.group_of(channel) * blocks + column / w.block_n)]);
}

// Half a step is the most that a value may be off; the factor covers the division in double.
void expect_half_steps(const std::vector<float>& dense, const QuantizedWeights& w) {
  for (int64_t channel = 0; channel < w.k; ++channel) {
    for (int64_t column = 0; column < w.n; ++column) {
      const double exact = static_cast<double>(dense[static_cast<size_t>(channel * w.n + column)]);
      const double error = std::abs(layout::weight_value(w, channel, column) - exact);
      ASSERT_LE(error, 0.5 * scale_of(w, channel, column) * (1 + 1e-12))
          << channel << ", " << column;
    }
  }
}

TEST(QuantizeInt4, IsOffByHalfAStepAtMost) {
  rc::check([] {
    const auto k = *rc::gen::inRange<int64_t>(1, 300);
    const auto n = *rc::gen::inRange<int64_t>(1, 9);
    const auto exponent = *rc::gen::inRange(-30, 20);
    QuantizeOptions options;
    options.group_size = *rc::gen::element<int64_t>(-1, 16, 32, 64, 128, 256);
    options.symmetric = *rc::gen::arbitrary<bool>();
    options.safe_accumulation = *rc::gen::arbitrary<bool>();
    options.group_offset = *rc::gen::inRange<int64_t>(0, 500);
    const auto dense =
        random_weights(k * n, *rc::gen::arbitrary<unsigned>(), std::ldexp(1.0f, exponent));
    const Quantized result = quantized(dense, k, n, options);
    expect_half_steps(dense, result.weights);
    for (const float scale : result.weights.scales) {
      const auto value = static_cast<double>(scale);
      RC_ASSERT(value == base::round_to(result.weights.scale_precision, value));
    }
  });
}

TEST(QuantizeInt4, MakesMinusOneAndKTheSameBits) {
  const int64_t k = 200, n = 24;
  const auto dense = random_weights(k * n, 7);
  for (const bool symmetric : {false, true}) {
    QuantizeOptions whole, group;
    whole.group_size = -1;
    group.group_size = k;
    whole.symmetric = group.symmetric = symmetric;
    const Quantized first = quantized(dense, k, n, whole), second = quantized(dense, k, n, group);
    EXPECT_EQ(first.weights.codes, second.weights.codes);
    EXPECT_EQ(first.weights.scales, second.weights.scales);
    EXPECT_EQ(first.weights.zeros, second.weights.zeros);
    EXPECT_EQ(first.weights.group_size, second.weights.group_size);
    EXPECT_EQ(first.weights.groups(), 1);
  }
}

TEST(QuantizeInt4, KeepsScalesInTheFormatThatTheyAreStoredIn) {
  const int64_t k = 128, n = 16;
  const auto dense = random_weights(k * n, 3);
  const Quantized result = quantized(dense, k, n, {});
  EXPECT_EQ(result.weights.scale_precision, PRECISION_FP16);
  for (const float scale : result.weights.scales) {
    EXPECT_EQ(scale, base::fp16_to_float(base::float_to_fp16(scale)));
  }
}

TEST(QuantizeInt4, GivesZerosForGroupsOfZeros) {
  const int64_t k = 64, n = 3;
  std::vector<float> dense(static_cast<size_t>(k * n), 0.0f);
  dense[40 * 3 + 1] = 2.0f;  // only group 1 (of 32), column 1 is not zero
  for (const bool symmetric : {false, true}) {
    QuantizeOptions options;
    options.group_size = 32;
    options.symmetric = symmetric;
    const Quantized result = quantized(dense, k, n, options);
    for (int64_t channel = 0; channel < k; ++channel) {
      for (int64_t column = 0; column < n; ++column) {
        if (channel / 32 == 1 && column == 1) continue;
        EXPECT_EQ(scale_of(result.weights, channel, column), 1);
        EXPECT_EQ(layout::weight_value(result.weights, channel, column), 0);
      }
    }
    EXPECT_EQ(layout::weight_value(result.weights, 41, 1), 0);
    EXPECT_NEAR(layout::weight_value(result.weights, 40, 1), 2, 1e-2);
  }
}

TEST(QuantizeInt4, KeepsOutlierChannelsExactInFp16) {
  const int64_t k = 100, n = 40;
  auto dense = random_weights(k * n, 11);
  for (float& value : dense) value = base::fp16_to_float(base::float_to_fp16(value));
  for (int64_t column = 0; column < n; ++column) {
    dense[static_cast<size_t>(17 * n + column)] = 30.0f + static_cast<float>(column);
    dense[static_cast<size_t>(63 * n + column)] = -90.0f;
  }
  QuantizeOptions options;
  options.outliers = OUTLIER_FP16_CHANNEL;
  options.outlier_fraction = 0.02;
  const Quantized result = quantized(dense, k, n, options);
  EXPECT_EQ(result.weights.outlier_channels, (std::vector<int64_t>{17, 63}));
  for (const int64_t channel : {17, 63}) {
    for (int64_t column = 0; column < n; ++column) {
      EXPECT_EQ(layout::weight_value(result.weights, channel, column),
                static_cast<double>(dense[static_cast<size_t>(channel * n + column)]));
    }
  }
  // The others are no longer stretched over the outliers' range.
  EXPECT_LT(result.stats.max_abs_error, 0.02);
  options.outliers = OUTLIER_NONE;
  EXPECT_GT(quantized(dense, k, n, options).stats.max_abs_error, 1);
}

TEST(QuantizeInt4, TakesOutlierChannelsByImportance) {
  const int64_t k = 50, n = 4;
  const auto dense = random_weights(k * n, 5);
  std::vector<float> importance(static_cast<size_t>(k), 1.0f);
  importance[9] = 50;
  QuantizeOptions options;
  options.outliers = OUTLIER_FP16_CHANNEL;
  options.outlier_fraction = 0.02;
  options.channel_importance = importance;
  EXPECT_EQ(quantized(dense, k, n, options).weights.outlier_channels, std::vector<int64_t>{9});
  importance[9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(quantize(dense, k, n, options).ok());
  options.channel_importance = std::span<const float>(importance).first(3);
  EXPECT_FALSE(quantize(dense, k, n, options).ok());
}

TEST(QuantizeInt4, ClampsWhatLiesBeyondThe99thPercentile) {
  const int64_t k = 256, n = 5;
  auto dense = random_weights(k * n, 23);
  dense[130 * 5 + 2] = 40.0f;
  QuantizeOptions options;
  options.outliers = OUTLIER_CLAMP_TO_99TH_PERCENTILE;
  const Quantized result = quantized(dense, k, n, options);
  EXPECT_EQ(result.stats.clamped_values, 2 * n);  // the largest of each 128
  EXPECT_LT(layout::weight_value(result.weights, 130, 2), 1);
  EXPECT_NEAR(result.stats.max_abs_error, 40, 1);
  options.group_size = 64;  // rank ceil(0.99 * 64) = 64: nothing beyond
  EXPECT_EQ(quantized(dense, k, n, options).stats.clamped_values, 0);
}

TEST(QuantizeInt4, KeepsTinyScalesInFp32UnderSafeAccumulation) {
  const int64_t k = 128, n = 8;
  const auto dense = random_weights(k * n, 31, 1e-8f);
  QuantizeOptions options;
  const Quantized flushed = quantized(dense, k, n, options);
  EXPECT_EQ(flushed.stats.tiny_scales, n);
  EXPECT_EQ(flushed.weights.scale_precision, PRECISION_FP16);
  options.safe_accumulation = true;
  const Quantized kept = quantized(dense, k, n, options);
  EXPECT_EQ(kept.stats.tiny_scales, n);
  EXPECT_EQ(kept.weights.scale_precision, PRECISION_FP32);
  EXPECT_LT(kept.stats.relative_frobenius_error, 0.2);
  EXPECT_GT(flushed.stats.relative_frobenius_error, 0.9);
}

TEST(QuantizeInt4, SplitsGroupsAtTheShardOffset) {
  const int64_t k = 256, n = 6, first = 96;
  const auto dense = random_weights(k * n, 41);
  const Quantized whole = quantized(dense, k, n, {});
  const std::vector<float> shard(dense.begin() + first * n, dense.end());
  QuantizeOptions options;
  options.group_offset = first;
  const Quantized part = quantized(shard, k - first, n, options);
  EXPECT_EQ(part.weights.groups(), 2);
  // The second group is the same 128 channels in both.
  for (int64_t channel = 128; channel < k; ++channel) {
    for (int64_t column = 0; column < n; ++column) {
      EXPECT_EQ(layout::weight_value(part.weights, channel - first, column),
                layout::weight_value(whole.weights, channel, column));
    }
  }
}

TEST(QuantizeInt8, IsSymmetricPerChannel) {
  const int64_t k = 70, n = 9;
  const auto dense = random_weights(k * n, 2);
  QuantizeOptions options;
  options.precision = PRECISION_INT8;
  const Quantized result = quantized(dense, k, n, options);
  EXPECT_EQ(result.weights.groups(), 1);
  EXPECT_TRUE(result.weights.zeros.empty());
  EXPECT_EQ(result.weights.scales.size(), 9u);
  expect_half_steps(dense, result.weights);
  options.strategy = DEQUANT_STRATEGY_PER_TENSOR;
  const Quantized tensor = quantized(dense, k, n, options);
  EXPECT_EQ(tensor.weights.scales.size(), 1u);
  expect_half_steps(dense, tensor.weights);
}

TEST(QuantizeFp8, ScalesBlocksOf128) {
  const int64_t k = 200, n = 150;
  const auto dense = random_weights(k * n, 13);
  QuantizeOptions options;
  options.precision = PRECISION_FP8_E4M3;
  const Quantized result = quantized(dense, k, n, options);
  EXPECT_EQ(result.weights.group_size, 128);
  EXPECT_EQ(result.weights.block_n, 128);
  EXPECT_EQ(result.weights.scales.size(), 4u);
  for (int64_t channel = 0; channel < k; ++channel) {
    for (int64_t column = 0; column < n; ++column) {
      const double exact = static_cast<double>(dense[static_cast<size_t>(channel * n + column)]);
      const double scale = scale_of(result.weights, channel, column);
      // Half a unit of 4 significand bits, or half of the smallest subnormal.
      const double allowed = std::max(std::abs(exact) * 0x1p-4, scale * 0x1p-10);
      ASSERT_LE(std::abs(layout::weight_value(result.weights, channel, column) - exact), allowed);
    }
  }
  for (const auto& [strategy, scales] : {std::pair{DEQUANT_STRATEGY_PER_CHANNEL, 150u},
                                         std::pair{DEQUANT_STRATEGY_PER_TENSOR, 1u}}) {
    options.strategy = strategy;
    EXPECT_EQ(quantized(dense, k, n, options).weights.scales.size(), scales);
  }
}

TEST(QuantizeFp8, GivesZerosForAZeroTensor) {
  const std::vector<float> dense(130 * 130, 0.0f);
  QuantizeOptions options;
  options.precision = PRECISION_FP8_E4M3;
  const Quantized result = quantized(dense, 130, 130, options);
  for (const float scale : result.weights.scales) EXPECT_EQ(scale, 1);
  for (const uint8_t code : result.weights.codes) EXPECT_EQ(code, 0);
  EXPECT_EQ(result.stats.max_abs_error, 0);
}

TEST(QuantizeDense, RoundsEachValueOnce) {
  const auto dense = random_weights(33, 17);
  QuantizeOptions options;
  options.precision = PRECISION_BF16;
  const Quantized result = quantized(dense, 11, 3, options);
  for (int64_t i = 0; i < 33; ++i) {
    EXPECT_EQ(layout::weight_value(result.weights, i / 3, i % 3),
              base::round_to(PRECISION_BF16, static_cast<double>(dense[static_cast<size_t>(i)])));
  }
  options.precision = PRECISION_FP16;
  const auto overflow = quantize({1.0f, 70000.0f}, 2, 1, options);
  ASSERT_FALSE(overflow.ok());
  EXPECT_THAT(overflow.error().message, HasSubstr("k = 1, n = 0"));
}

TEST(Quantize, ReadsTransposedMatrices) {
  const int64_t k = 40, n = 70;
  const auto dense = random_weights(k * n, 19);
  std::vector<float> transposed(dense.size());
  for (int64_t channel = 0; channel < k; ++channel) {
    for (int64_t column = 0; column < n; ++column) {
      transposed[static_cast<size_t>(column * k + channel)] =
          dense[static_cast<size_t>(channel * n + column)];
    }
  }
  const auto result = quantize_weights(transposed.data(), PRECISION_FP32, k, n, 1, k, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->weights.codes, quantized(dense, k, n, {}).weights.codes);
  const QuantizeStats error =
      representation_error(result->weights, transposed.data(), PRECISION_FP32, 1, k);
  EXPECT_EQ(error.max_abs_error, result->stats.max_abs_error);
}

TEST(Quantize, NamesTheFirstWeightThatIsNotFinite) {
  auto dense = random_weights(12, 1);
  dense[7] = std::numeric_limits<float>::infinity();
  const auto result = quantize(dense, 4, 3, {});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("k = 2, n = 1 is inf"));
}

TEST(Quantize, RefusesOptionsThatContradict) {
  const auto dense = random_weights(12, 1);
  QuantizeOptions options;
  options.group_size = 48;
  EXPECT_THAT(quantize(dense, 4, 3, options).error().message, HasSubstr("group_size is 48"));
  options = {};
  options.precision = PRECISION_FP16;
  options.outliers = OUTLIER_FP16_CHANNEL;
  EXPECT_FALSE(quantize(dense, 4, 3, options).ok());
  options = {};
  options.outlier_fraction = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(quantize(dense, 4, 3, options).ok());
  options = {};
  options.strategy = DEQUANT_STRATEGY_BLOCK_128;
  EXPECT_FALSE(quantize(dense, 4, 3, options).ok());
}

TEST(Quantize, TakesEmptyMatrices) {
  for (const gemm_precision_t precision : {PRECISION_INT4, PRECISION_FP8_E4M3, PRECISION_FP16}) {
    QuantizeOptions options;
    options.precision = precision;
    EXPECT_EQ(quantized({}, 0, 5, options).weights.codes.size(), 0u);
    EXPECT_EQ(quantized({}, 5, 0, options).weights.codes.size(), 0u);
  }
}

TEST(QuantizeRows, ScalesEachTokenAlone) {
  const std::vector<float> values = {1.01f, -2, 0.5f, 0, 0, 0, 1e30f, 5e29f, -1e30f};
  std::vector<int8_t> codes(9);
  std::vector<float> scales(3);
  quantize_rows_int8(values, 3, 3, codes.data(), scales.data());
  EXPECT_THAT(codes, testing::ElementsAre(64, -127, 32, 0, 0, 0, 127, 63, -127));
  EXPECT_EQ(scales[1], 1);
  for (size_t i = 0; i < 9; ++i) {
    const double decoded = static_cast<double>(codes[i]) * static_cast<double>(scales[i / 3]);
    EXPECT_LE(std::abs(decoded - static_cast<double>(values[i])),
              0.5 * static_cast<double>(scales[i / 3]) * (1 + 1e-12));
  }
}

TEST(QuantizeRows, PassesNanOnThroughTheScale) {
  const std::vector<float> values = {1, std::numeric_limits<float>::infinity(), 3, 4};
  std::vector<int8_t> codes(4);
  std::vector<uint8_t> bytes(4);
  std::vector<float> scales(2);
  quantize_rows_int8(values, 2, 2, codes.data(), scales.data());
  EXPECT_TRUE(std::isnan(scales[0]));
  EXPECT_EQ(codes[0], 0);
  EXPECT_GT(scales[1], 0);
  quantize_blocks_fp8(values, 2, 2, bytes.data(), scales.data());
  EXPECT_TRUE(std::isnan(scales[0]));
  EXPECT_EQ(bytes[1], 0);
}

TEST(QuantizeBlocks, ScalesPartsOf128) {
  const int64_t rows = 3, k = 300;
  const auto values = random_weights(rows * k, 29, 10.0f);
  std::vector<uint8_t> codes(static_cast<size_t>(rows * k));
  std::vector<float> scales(static_cast<size_t>(rows * 3));
  quantize_blocks_fp8(values, rows, k, codes.data(), scales.data());
  for (int64_t i = 0; i < rows * k; ++i) {
    const double scale = static_cast<double>(scales[static_cast<size_t>(i / k * 3 + i % k / 128)]);
    const double exact = static_cast<double>(values[static_cast<size_t>(i)]);
    const double decoded =
        scale * static_cast<double>(base::e4m3_to_float(codes[static_cast<size_t>(i)]));
    ASSERT_LE(std::abs(decoded - exact), std::max(std::abs(exact) * 0x1p-4, scale * 0x1p-10));
  }
}

}  // namespace
}  // namespace deepgemm::contract
