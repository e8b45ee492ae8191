// Launches with scales, packed weights and integer sums.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "backend/cpu/device.hpp"
#include "backend/cpu/launch_test_support.hpp"

namespace deepgemm::cpu {
namespace {

using contract::PathId;

struct ScaledCase {
  PathId path;
  gemm_precision_t a, b;
  bool scale_a, scale_b;
};
constexpr ScaledCase kScaled[] = {
    {PathId::kFp8, PRECISION_FP8_E4M3, PRECISION_FP8_E4M3, true, true},
    {PathId::kInt8, PRECISION_INT8, PRECISION_INT8, true, true},
    {PathId::kInt8, PRECISION_INT8, PRECISION_INT8, false, true},
    {PathId::kW8A16, PRECISION_BF16, PRECISION_INT8, false, true},
    {PathId::kW8A16, PRECISION_FP16, PRECISION_FP8_E4M3, false, true},
};

TEST(Scales, OfEveryGranularityAreExactPowersOfTwo) {
  uint64_t seed = 0;
  for (const ScaledCase& scaled : kScaled) {
    for (const auto& [strategy, group] :
         {std::pair(DEQUANT_STRATEGY_PER_TENSOR, 0), std::pair(DEQUANT_STRATEGY_PER_CHANNEL, 0),
          std::pair(DEQUANT_STRATEGY_PER_GROUP, 16), std::pair(DEQUANT_STRATEGY_PER_GROUP, 48),
          std::pair(DEQUANT_STRATEGY_PER_GROUP, 1000),
          std::pair(DEQUANT_STRATEGY_BLOCK_128, 128)}) {
      for (const int64_t k : {64, 129, 300}) {
        Case c;
        c.operation = seed % 2 == 0 ? GEMM_OP_NT : GEMM_OP_NN;
        c.path = scaled.path;
        c.a = scaled.a;
        c.b = scaled.b;
        c.scale_a = scaled.scale_a;
        c.scale_b = scaled.scale_b;
        c.strategy = strategy;
        c.group_size = group;
        c.m = 35;
        c.n = 150;
        c.k = k;
        c.block_k = seed % 3 == 0 ? 100 : 256;
        c.seed = ++seed;
        expect_exact(c);
        expect_bounded(c);
      }
    }
  }
}

TEST(Int8, SumsAreExactForTheLargestCodes) {
  for (const Isa isa : runnable_isas()) {
    Case c;
    c.path = PathId::kInt8;
    c.a = c.b = PRECISION_INT8;
    c.c = PRECISION_FP64;
    c.m = 3;
    c.n = 5;
    c.k = 4099;
    c.block_k = 4096;
    c.isa = isa;
    Product product(c);
    for (int64_t p = 0; p < c.k; ++p) {
      for (int64_t i = 0; i < c.m; ++i)
        product.a().set(0, i, p, static_cast<double>(i == 0 ? -128 : 127 - i));
      for (int64_t j = 0; j < c.n; ++j)
        product.b().set(0, p, j, static_cast<double>(j == 0 ? -128 : 127 - j));
    }
    product.launch();
    product.expect_exact();
    EXPECT_EQ(product.result(0, 0, 0), 16384.0 * 4099);
  }
}

TEST(Int8, SumsAreExactForTheLargestCodesAndZeroPointsOfPackedWeights) {
  WeightCase description;
  description.k = 1030;
  description.n = 5;
  description.precision = PRECISION_INT8;
  description.group_size = description.k;
  layout::QuantizedWeights weights = random_weights(description);
  std::fill(weights.codes.begin(), weights.codes.end(), uint8_t{255});
  std::fill(weights.zeros.begin(), weights.zeros.end(), uint8_t{0});
  std::fill(weights.scales.begin(), weights.scales.end(), 1.0F);
  Case c;
  c.path = PathId::kInt8;
  c.a = c.b = PRECISION_INT8;
  c.c = PRECISION_FP64;
  c.k = description.k;
  c.n = description.n;
  c.block_k = 1030;
  c.weights = weights;
  Product product(c);
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t p = 0; p < c.k; ++p) product.a().set(0, i, p, p % 2 == 0 ? -128 : -127);
  }
  product.launch();
  product.expect_exact();
}

struct PackedCase {
  PathId path;
  gemm_precision_t a, b, c;
};
constexpr PackedCase kPacked[] = {
    {PathId::kW4A16, PRECISION_FP16, PRECISION_INT4_AWQ, PRECISION_FP16},
    {PathId::kW4A16, PRECISION_BF16, PRECISION_INT4_GPTQ, PRECISION_BF16},
    {PathId::kW4A16, PRECISION_FP32, PRECISION_INT4, PRECISION_FP32},
    {PathId::kW4A8, PRECISION_INT8, PRECISION_INT4, PRECISION_FP32},
    {PathId::kW4A8, PRECISION_FP8_E4M3, PRECISION_INT4_AWQ, PRECISION_FP16},
    {PathId::kW8A16, PRECISION_FP16, PRECISION_INT8, PRECISION_FP16},
    {PathId::kW8A16, PRECISION_BF16, PRECISION_FP8_E4M3, PRECISION_FP32},
    {PathId::kInt8, PRECISION_INT8, PRECISION_INT8, PRECISION_FP32},
    {PathId::kFp8, PRECISION_FP8_E4M3, PRECISION_FP8_E4M3, PRECISION_FP32},
};

Case packed_case(const PackedCase& packed, const WeightCase& weights) {
  Case c;
  c.path = packed.path;
  c.a = packed.a;
  c.b = packed.b;
  c.c = packed.c;
  c.m = 21;
  c.k = weights.k;
  c.n = weights.n;
  c.weights = random_weights(weights);
  c.block_n = 48;  // tiles start in the middle of weight panels
  c.seed = weights.seed;
  return c;
}

TEST(PackedWeights, EveryFormatGroupSizeAndRaggedShape) {
  uint64_t seed = 0;
  for (const PackedCase& packed : kPacked) {
    for (const int64_t group : {16, 32, 48, 64, 128, 256, 4096}) {
      for (const auto& [k, n] : {std::pair(1, 1), std::pair(130, 75), std::pair(232, 80),
                                 std::pair(257, 129), std::pair(64, 64)}) {
        WeightCase weights;
        weights.k = k;
        weights.n = n;
        weights.precision = packed.b;
        weights.group_size = group;
        weights.zeros = seed % 2 == 0;
        weights.seed = ++seed;
        Case c = packed_case(packed, weights);
        c.isa = runnable_isas()[seed % runnable_isas().size()];
        expect_exact(c);
        weights.exact = false;
        Case random = packed_case(packed, weights);
        random.isa = c.isa;
        expect_bounded(random);
      }
    }
  }
}

TEST(PackedWeights, ActOrderOffsetsAndOutliers) {
  uint64_t seed = 0;
  for (const PackedCase& packed : kPacked) {
    for (const bool act_order : {false, true}) {
      for (const int outliers : {0, 1, 7}) {
        const bool integer = packed.b != PRECISION_FP8_E4M3;
        if (outliers > 0 && !integer) continue;
        WeightCase weights;
        weights.k = 150;
        weights.n = 70;
        weights.precision = packed.b;
        weights.group_size = 32;
        weights.group_offset = 11;
        weights.act_order = act_order;
        weights.outliers = outliers;
        weights.seed = ++seed;
        Case c = packed_case(packed, weights);
        c.scale_a = packed.a == PRECISION_INT8 || packed.a == PRECISION_FP8_E4M3;
        c.strategy = DEQUANT_STRATEGY_PER_CHANNEL;
        expect_exact(c);
      }
    }
  }
}

TEST(PackedWeights, AShardStartingInsideAGroupEqualsItsPartOfTheWhole) {
  WeightCase whole;
  whole.k = 464;
  whole.n = 40;
  whole.group_size = 16;
  whole.exact = true;
  const layout::QuantizedWeights all = random_weights(whole);
  // Two shards of 232 channels: the second starts 8 channels into a group.
  layout::QuantizedWeights shard = all;
  shard.k = 232;
  shard.group_offset = 232 % 16;
  shard.codes.assign(all.codes.begin() + 232 * 40, all.codes.end());
  const int64_t first_group = 232 / 16;
  shard.scales.assign(all.scales.begin() + first_group * 40, all.scales.end());
  shard.zeros.assign(all.zeros.begin() + first_group * 40, all.zeros.end());
  for (int64_t k = 0; k < 232; ++k) {
    ASSERT_EQ(layout::weight_value(shard, k, 7), layout::weight_value(all, 232 + k, 7));
  }
  Case c;
  c.path = PathId::kW4A16;
  c.a = PRECISION_FP16;
  c.b = PRECISION_INT4_AWQ;
  c.k = 232;
  c.n = 40;
  c.weights = shard;
  expect_exact(c);
}

TEST(PackedWeights, BlockScalesAndOneScaleForAll) {
  for (const int64_t block_n : {128, 300}) {
    WeightCase weights;
    weights.k = 260;
    weights.n = 300;
    weights.precision = PRECISION_FP8_E4M3;
    weights.group_size = block_n == 128 ? 128 : 260;
    weights.block_n = block_n;
    const PackedCase packed{PathId::kFp8, PRECISION_FP8_E4M3, PRECISION_FP8_E4M3, PRECISION_FP32};
    Case c = packed_case(packed, weights);
    c.scale_a = true;
    c.strategy = DEQUANT_STRATEGY_BLOCK_128;
    expect_exact(c);
  }
}

TEST(PackedWeights, GroupsOfZerosGiveExactZeros) {
  WeightCase description;
  description.k = 64;
  description.n = 33;
  layout::QuantizedWeights weights = random_weights(description);
  for (int64_t k = 0; k < 64; ++k) {
    for (int64_t n = 0; n < 33; ++n) {
      weights.codes[static_cast<size_t>(k * 33 + n)] =
          weights.zeros[static_cast<size_t>(k / 16 * 33 + n)];
    }
  }
  std::fill(weights.scales.begin(), weights.scales.end(), 0.0F);
  Case c;
  c.path = PathId::kW4A16;
  c.a = c.c = PRECISION_FP16;
  c.b = PRECISION_INT4_AWQ;
  c.k = 64;
  c.n = 33;
  c.weights = weights;
  Product product(c);
  product.launch();
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) ASSERT_EQ(product.result(0, i, j), 0.0);
  }
}

TEST(PackedWeights, OneGroupForAllOfKEqualsAGroupSizeOfKToTheBit) {
  WeightCase description;
  description.k = 100;
  description.n = 40;
  description.group_size = 100;
  description.exact = false;
  Case c;
  c.path = PathId::kW4A16;
  c.a = PRECISION_FP16;
  c.b = PRECISION_INT4_AWQ;
  c.k = 100;
  c.n = 40;
  c.exact = false;
  c.weights = random_weights(description);
  Product first(c);
  first.launch();
  c.weights->group_size = 4096;
  Product second(c);
  second.launch();
  EXPECT_TRUE(first.c().same_bytes(second.c()));
}

// The code of an outlier channel is its zero point: infinity times it would be NaN.
TEST(PackedWeights, AnInfiniteActivationMeetsTheOutlierAndNotItsCode) {
  for (const char* family : {"cpu_blocked", "cpu_amx"}) {
    const bool tiles = std::string_view(family) == "cpu_amx";
    if (tiles && cpu_device().best_isa < Isa::kAmx) continue;
    Case c;
    c.family = family;
    if (tiles) c.isa = Isa::kAmx;
    c.path = contract::PathId::kW4A16;
    c.m = 3;
    c.n = 40;
    c.k = 96;
    c.a = PRECISION_BF16;
    c.b = PRECISION_INT4_AWQ;
    c.c = PRECISION_FP32;
    WeightCase weights;
    weights.k = c.k;
    weights.n = c.n;
    weights.group_size = 32;
    weights.outliers = 3;
    c.weights = random_weights(weights);
    const int64_t channel = c.weights->outlier_channels[1];
    Product product(c);
    product.a().set(0, 1, channel, std::numeric_limits<double>::infinity());
    product.launch();
    for (int64_t j = 0; j < c.n; ++j) {
      const double value = layout::weight_value(*c.weights, channel, j);
      const double found = product.result(0, 1, j);
      if (value == 0) {
        EXPECT_TRUE(std::isnan(found)) << family << " column " << j;
      } else {
        EXPECT_TRUE(std::isinf(found) && std::signbit(found) == std::signbit(value))
            << family << " column " << j << ": " << found;
      }
      EXPECT_TRUE(std::isfinite(product.result(0, 0, j))) << family;
    }
  }
}

}  // namespace
}  // namespace deepgemm::cpu
