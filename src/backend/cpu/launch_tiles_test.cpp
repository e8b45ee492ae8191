// Products on tile units against the FP64 reference. Skipped where the CPU has none.
#include <gtest/gtest.h>

#include <cstdint>

#include "backend/cpu/device.hpp"
#include "backend/cpu/launch_test_support.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int64_t kSizes[] = {1, 7, 15, 16, 17, 31, 32, 33, 63, 65, 129};
constexpr int64_t kDepths[] = {0, 1, 31, 32, 33, 64, 127, 512, 577, 1100};

class Tiles : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu_device().best_isa < Isa::kAmx) {
      GTEST_SKIP() << "this CPU, or this process, has no tile units";
    }
  }

  static Case tile_case(contract::PathId path, uint64_t seed) {
    Case c;
    c.family = "cpu_amx";
    c.isa = Isa::kAmx;
    c.path = path;
    c.m = kSizes[seed % std::size(kSizes)];
    c.n = kSizes[seed * 5 % std::size(kSizes)];
    c.k = kDepths[seed * 3 % std::size(kDepths)];
    c.block_m = seed % 3 == 0 ? 48 : 512;
    c.block_n = seed % 2 == 0 ? 64 : 256;
    c.operation = static_cast<gemm_operation_t>(seed % 4);
    c.batch = seed % 5 == 0 ? 3 : 1;
    c.misaligned = seed % 7;
    c.seed = seed;
    return c;
  }
};

TEST_F(Tiles, MultiplyBf16OfEveryLayout) {
  for (uint64_t seed = 0; seed < 120 && !HasFailure(); ++seed) {
    Case c = tile_case(contract::PathId::kBf16, seed);
    c.a = c.b = PRECISION_BF16;
    c.form_a = static_cast<Form>(seed % 7);
    c.form_b = static_cast<Form>(seed * 3 % 7);
    c.form_c = static_cast<Form>(seed * 2 % 4);
    if (seed % 4 == 0) c.activation = GEMM_ACTIVATION_SILU, c.bias = true;
    c.beta = seed % 3 == 0 ? 1 : 0;
    expect_exact(c);
    expect_bounded(c);
  }
}

TEST_F(Tiles, MultiplyInt8ExactlyWithScalesAfterwards) {
  for (uint64_t seed = 0; seed < 90 && !HasFailure(); ++seed) {
    Case c = tile_case(contract::PathId::kInt8, seed);
    c.a = c.b = PRECISION_INT8;
    c.form_a = static_cast<Form>(seed % 7);
    c.form_b = static_cast<Form>(seed * 3 % 7);
    c.strategy = DEQUANT_STRATEGY_PER_CHANNEL;
    c.scale_a = seed % 2 == 0;
    c.scale_b = seed % 3 != 0;
    expect_exact(c);
    expect_bounded(c);
  }
}

WeightCase weights_of(const Case& c, gemm_precision_t precision, uint64_t seed) {
  WeightCase weights;
  weights.k = c.k;
  weights.n = c.n;
  weights.precision = precision;
  weights.group_size = int64_t{16} << seed % 4;  // 16 does not suit tiles
  weights.group_offset = seed % 3 == 0 ? 32 % weights.group_size : 0;
  weights.zeros = seed % 2 == 0;
  weights.act_order = seed % 11 == 0;
  weights.outliers = precision == PRECISION_INT4_AWQ && c.k > 8 && seed % 3 == 1 ? 3 : 0;
  weights.seed = seed;
  return weights;
}

TEST_F(Tiles, MultiplyQuantisedWeightsGroupByGroup) {
  for (const gemm_precision_t precision :
       {PRECISION_INT4_AWQ, PRECISION_INT8, PRECISION_FP8_E4M3, PRECISION_FP8_E5M2}) {
    const bool int4 = precision == PRECISION_INT4_AWQ;
    for (uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
      Case c = tile_case(int4 ? contract::PathId::kW4A16 : contract::PathId::kW8A16, seed);
      c.a = PRECISION_BF16;
      c.b = precision;
      c.batch = 1;
      if (c.k == 0) c.k = 96;
      WeightCase weights = weights_of(c, precision, seed);
      c.weights = random_weights(weights);
      expect_exact(c);
      weights.exact = false;
      c.weights = random_weights(weights);
      expect_bounded(c);
    }
  }
}

TEST_F(Tiles, GiveARowTheSameBitsInEveryBatch) {
  for (const contract::PathId path : {contract::PathId::kBf16, contract::PathId::kW4A16}) {
    Case c = tile_case(path, 1);
    c.m = 130;
    c.n = 70;
    c.k = 600;
    c.operation = GEMM_OP_NT;
    c.a = c.b = PRECISION_BF16;
    c.exact = false;
    if (path == contract::PathId::kW4A16) {
      c.b = PRECISION_INT4_AWQ;
      WeightCase weights;
      weights.k = c.k;
      weights.n = c.n;
      weights.group_size = 64;
      weights.exact = false;
      c.weights = random_weights(weights);
    }
    Product all(c);
    all.launch();
    for (const int64_t rows : {1, 2, 16, 17, 33, 129}) {
      c.rows = rows;
      Product some(c);
      some.launch();
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < c.n; ++j) ASSERT_EQ(some.result(0, i, j), all.result(0, i, j));
      }
    }
  }
}

}  // namespace
}  // namespace deepgemm::cpu
