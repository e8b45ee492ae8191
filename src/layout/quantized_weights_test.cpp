#include "layout/quantized_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "base/formats.hpp"

namespace deepgemm::layout {
namespace {

// Normally distributed weights, quantised by minimum and maximum of each group.
QuantizedWeights asymmetric_weights(int64_t k, int64_t n, int64_t group_size) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal(0.0, 0.02);
  QuantizedWeights w;
  w.k = k;
  w.n = n;
  w.precision = PRECISION_INT4_GPTQ;
  w.group_size = group_size;
  w.codes.resize(static_cast<size_t>(k * n));
  for (int64_t group = 0; group * group_size < k; ++group) {
    for (int64_t column = 0; column < n; ++column) {
      std::vector<double> values;
      for (int64_t i = 0; i < group_size; ++i) values.push_back(normal(random));
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      const double scale = (std::max(*high, 0.0) - std::min(*low, 0.0)) / 15;
      const double zero = std::round(-std::min(*low, 0.0) / scale);
      w.scales.push_back(static_cast<float>(scale));
      w.zeros.push_back(static_cast<uint8_t>(zero));
      for (int64_t i = 0; i < group_size; ++i) {
        const double code =
            std::clamp(std::round(values[static_cast<size_t>(i)] / scale) + zero, 0.0, 15.0);
        w.codes[static_cast<size_t>((group * group_size + i) * n + column)] =
            static_cast<uint8_t>(code);
      }
    }
  }
  return w;
}

QuantizedWeights small_weights() {
  QuantizedWeights w;
  w.k = 4;
  w.n = 3;
  w.precision = PRECISION_INT4_AWQ;
  w.group_size = 2;
  w.codes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  w.scales = {1, 2, 3, 4, 5, 6};
  w.zeros = {1, 1, 1, 2, 2, 2};
  return w;
}

TEST(WeightValue, SubtractsTheZeroPointOfItsGroup) {
  const QuantizedWeights w = small_weights();
  EXPECT_EQ(weight_value(w, 0, 0), -1.0);
  EXPECT_EQ(weight_value(w, 1, 2), 12.0);  // 3 * (5 - 1)
  EXPECT_EQ(weight_value(w, 2, 1), 25.0);  // 5 * (7 - 2)
  QuantizedWeights symmetric = w;
  symmetric.zeros.clear();
  EXPECT_EQ(weight_value(symmetric, 0, 1), -14.0);  // 2 * (1 - 8)
  symmetric.precision = PRECISION_INT8;
  EXPECT_EQ(weight_value(symmetric, 0, 1), -254.0);  // 2 * (1 - 128)
}

TEST(WeightValue, ReadsOutlierChannelsInFp16) {
  QuantizedWeights w = small_weights();
  w.outlier_channels = {1, 3};
  w.outlier_values = {0x3C00, 0x4000, 0xC000, 0x3555, 0x0001, 0x7BFF};
  EXPECT_EQ(weight_value(w, 1, 2), -2.0);
  EXPECT_EQ(weight_value(w, 3, 1), 0x1p-24);
  EXPECT_EQ(weight_value(w, 3, 2), 65504.0);
  EXPECT_EQ(weight_value(w, 2, 1), 25.0);
}

TEST(WeightValue, DecodesDenseFormats) {
  QuantizedWeights w;
  w.k = 1;
  w.n = 2;
  w.precision = PRECISION_FP32;
  w.codes.resize(8);
  base::encode(PRECISION_FP32, w.codes.data(), 1, 0.1);
  EXPECT_EQ(weight_value(w, 0, 1), static_cast<double>(0.1f));
  EXPECT_TRUE(validate(w).ok());
  EXPECT_EQ(w.groups(), 0);
}

TEST(Groups, StartPartWayInAShard) {
  QuantizedWeights w = small_weights();
  w.k = 5;
  w.group_size = 4;
  w.group_offset = 3;
  EXPECT_EQ(w.groups(), 2);
  EXPECT_EQ(w.group_of(0), 0);
  EXPECT_EQ(w.group_of(1), 1);
  EXPECT_EQ(w.group_of(4), 1);
}

TEST(Validate, NamesTheFieldThatIsWrong) {
  struct Case {
    const char* message;
    std::function<void(QuantizedWeights&)> spoil;
  };
  const Case cases[] = {
      {"precision", [](auto& w) { w.precision = PRECISION_DEFAULT; }},
      {"-1 x 3", [](auto& w) { w.k = -1; }},
      {"too large", [](auto& w) { w.k = w.n = int64_t{1} << 32; }},
      {"codes has 11", [](auto& w) { w.codes.pop_back(); }},
      {"group_size 0", [](auto& w) { w.group_size = 0; }},
      {"block_n 0", [](auto& w) { w.block_n = 0; }},
      {"group_offset 2", [](auto& w) { w.group_offset = 2; }},
      {"scales has 5", [](auto& w) { w.scales.pop_back(); }},
      {"zeros has 7", [](auto& w) { w.zeros.push_back(0); }},
      {"g_idx has 3",
       [](auto& w) {
         w.g_idx = {0, 0, 0};
       }},
      {"g_idx[2] is 2",
       [](auto& w) {
         w.g_idx = {0, 1, 2, 0};
       }},
      {"group 1, column 2 is nan", [](auto& w) { w.scales[5] = std::nanf(""); }},
      {"is -1", [](auto& w) { w.scales[0] = -1; }},
      {"0 ... 15", [](auto& w) { w.zeros[1] = 16; }},
      {"outlier_values has 0", [](auto& w) { w.outlier_channels = {0}; }},
      {"outlier_channels[0] is 4",
       [](auto& w) {
         w.outlier_channels = {4};
         w.outlier_values = {0, 0, 0};
       }},
      {"channel 0, column 0 must equal its zero point",
       [](auto& w) {
         w.outlier_channels = {0};
         w.outlier_values = {0, 0, 0};
       }},
      {"FP8 has no zero points", [](auto& w) { w.precision = PRECISION_FP8_E4M3; }},
  };
  EXPECT_TRUE(validate(small_weights()).ok());
  for (const Case& c : cases) {
    QuantizedWeights w = small_weights();
    c.spoil(w);
    const auto result = validate(w);
    ASSERT_FALSE(result.ok()) << c.message;
    EXPECT_NE(result.error().message.find(c.message), std::string::npos) << result.error().message;
  }
}

TEST(SuspiciousZeros, AreSymmetricOnesOffByOne) {
  QuantizedWeights w = small_weights();
  w.zeros.assign(6, 8);
  EXPECT_EQ(suspicious_zeros(w), "");
  for (const uint8_t zero : {uint8_t{7}, uint8_t{9}}) {
    w.zeros.assign(6, zero);
    EXPECT_NE(suspicious_zeros(w).find("Every zero point is"), std::string::npos);
    EXPECT_NE(suspicious_zeros(w).find("GPTQ v1"), std::string::npos);
  }
  w.precision = PRECISION_INT8;
  w.zeros.assign(6, 127);
  EXPECT_NE(suspicious_zeros(w), "");
  w.zeros.assign(6, 128);
  EXPECT_EQ(suspicious_zeros(w), "");
}

TEST(SuspiciousZeros, ShowInTheMeanOfAsymmetricWeights) {
  const QuantizedWeights right = asymmetric_weights(256, 64, 64);
  EXPECT_EQ(suspicious_zeros(right), "");
  QuantizedWeights v1_read_as_v2 = right;
  for (uint8_t& zero : v1_read_as_v2.zeros) zero = static_cast<uint8_t>((zero - 1) & 15);
  EXPECT_NE(suspicious_zeros(v1_read_as_v2).find("above"), std::string::npos);
  QuantizedWeights v2_read_as_v1 = right;
  for (uint8_t& zero : v2_read_as_v1.zeros) zero = static_cast<uint8_t>((zero + 1) & 15);
  EXPECT_NE(suspicious_zeros(v2_read_as_v1).find("below"), std::string::npos);
}

TEST(SuspiciousZeros, AreNotGuessedFromFewWeightsOrNone) {
  EXPECT_EQ(suspicious_zeros(small_weights()), "");  // mean distance 4, but twelve weights only
  EXPECT_EQ(suspicious_zeros(QuantizedWeights{}), "");
}

}  // namespace
}  // namespace deepgemm::layout
