// Contracts, layouts and policies as a user writes them with designated initialisers: each is
// planned, launched and verified on the CPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/formats.hpp"
#include "support.hpp"

namespace deepgemm::api_test {
namespace {

// Small enough that sums of K products stay near 1, where an absolute error of 0.002 leaves FP16
// room.
std::vector<uint8_t> small_elements(gemm_precision_t precision, int64_t count, double largest,
                                    uint64_t seed) {
  std::vector<uint8_t> values = random_elements(PRECISION_FP64, count, seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(base::storage_bytes(precision, count)));
  for (int64_t i = 0; i < count; ++i) {
    base::encode(precision, bytes.data(), i,
                 largest * base::decode(PRECISION_FP64, values.data(), i));
  }
  return bytes;
}

TEST(Contracts, AwqWithFp16OutlierChannelsKeepsAnAbsoluteError) {
  const gemm_intent_t intent = {
      .operation = GEMM_OP_NT,
      .role = GEMM_ROLE_QKV_PROJECTION,
      .numerical_contract = {.input_precision = PRECISION_INT4_AWQ,
                             .output_precision = PRECISION_FP16,
                             .error_model = ERROR_MODEL_ABSOLUTE_EPSILON,
                             .max_absolute_error = 0.002,
                             .outlier_handling = OUTLIER_FP16_CHANNEL,
                             .dequant_strategy = DEQUANT_STRATEGY_PER_GROUP},
      .device = "cpu"};
  constexpr int64_t kM = 5, kN = 96, kK = 384;
  const PlanOwner owner(intent, kM, kN, kK);
  auto weights = small_elements(PRECISION_FP16, kN * kK, 0.05, 1);
  const PackedOwner packed(owner.plan, weights, PRECISION_FP16, kK, kN);
  deepgemm_packed_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_packed_info(packed.packed, &info)));
  EXPECT_GT(info.outlier_channels, 0);
  EXPECT_GT(info.max_abs_error, 0);
  const auto a = small_elements(PRECISION_FP16, kM * kK, 0.05, 2);
  std::vector<uint16_t> c(kM * kN);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = packed.packed;
  args.C = c.data();
  expect_verified(owner.plan, args);
}

TEST(Contracts, Int4WithSafeAccumulationStaysFinite) {
  const gemm_intent_t intent = {
      .operation = GEMM_OP_NT,
      .numerical_contract = {.input_precision = PRECISION_INT4,
                             .output_precision = PRECISION_FP32,
                             .safe_accumulation = true,
                             .dequant_strategy = DEQUANT_STRATEGY_PER_CHANNEL_DYNAMIC,
                             .activation_precision = PRECISION_FP32,
                             .max_abs_a = 4},
      .device = "cpu"};
  constexpr int64_t kM = 3, kN = 40, kK = 130;
  const PlanOwner owner(intent, kM, kN, kK);
  // A column whose scale falls below the smallest normal FP16 value must not vanish.
  auto weights = small_elements(PRECISION_FP32, kN * kK, 1, 3);
  for (int64_t k = 0; k < kK; ++k) {
    base::encode(PRECISION_FP32, weights.data(), 7 * kK + k, k % 2 == 0 ? 1e-6 : -1e-6);
  }
  const PackedOwner packed(owner.plan, weights, PRECISION_FP32, kK, kN);
  deepgemm_packed_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_packed_info(packed.packed, &info)));
  EXPECT_GE(info.tiny_scales, 1);
  const auto a = small_elements(PRECISION_FP32, kM * kK, 4, 4);
  std::vector<float> c(kM * kN);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = packed.packed;
  args.C = c.data();
  expect_verified(owner.plan, args);
  EXPECT_NE(c[7], 0);
}

TEST(Contracts, RotaryEmbeddingReadsABlockedTable) {
  const gemm_layout_t table = {.logical_shape = {1, 4096, 4096},
                               .physical_layout = LAYOUT_BLOCKED_16x16,
                               .memory_space = MEM_SPACE_L2_CACHE,
                               .access_pattern = ACCESS_PATTERN_STREAMING};
  const gemm_intent_t intent = {
      .operation = GEMM_OP_NN,
      .role = GEMM_ROLE_ROTARY_EMBEDDING,
      .numerical_contract = {.input_precision = PRECISION_FP16, .output_precision = PRECISION_FP32},
      .layout_b = table,
      .device = "cpu"};
  constexpr int64_t kM = 2, kSize = 4096;
  const PlanOwner owner(intent, kM, kSize, kSize);
  size_t bytes = 0;
  ASSERT_TRUE(succeeded(deepgemm_layout_bytes(&table, PRECISION_FP16, &bytes)));
  EXPECT_EQ(bytes, size_t{kSize} * kSize * 2);
  gemm_layout_t rows = table;
  rows.physical_layout = LAYOUT_ROW_MAJOR;
  const auto plain = random_elements(PRECISION_FP16, kSize * kSize, 5);
  std::vector<uint8_t> blocked(bytes);
  ASSERT_TRUE(succeeded(
      deepgemm_convert_layout(blocked.data(), &table, plain.data(), &rows, PRECISION_FP16)));
  const auto a = random_elements(PRECISION_FP16, kM * kSize, 6);
  std::vector<float> c(kM * kSize);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = blocked.data();
  args.C = c.data();
  expect_verified(owner.plan, args);

  // The same product from the row-major table: bits must not depend on the layout.
  gemm_intent_t plain_intent = intent;
  plain_intent.layout_b = {};
  const PlanOwner plain_owner(plain_intent, kM, kSize, kSize);
  std::vector<float> other(c.size());
  ASSERT_TRUE(
      succeeded(deepgemm_launch_plan(&plain_owner.plan, a.data(), plain.data(), other.data())));
  EXPECT_EQ(c, other);
}

TEST(Contracts, ATilingPolicyIsObeyedAndWhatACpuLacksIsSaid) {
  const gemm_intent_t intent = {.operation = GEMM_OP_NT,
                                .numerical_contract = get_llm_contract(),
                                .tiling_policy = {.block_m = 64,
                                                  .block_n = 128,
                                                  .block_k = 32,
                                                  .warp_m = 16,
                                                  .warp_n = 16,
                                                  .warp_k = 16,
                                                  .sm_partition = SM_PARTITION_DYNAMIC,
                                                  .l2_prefetch = L2_PREFETCH_AGGRESSIVE},
                                .device = "cpu"};
  constexpr int64_t kM = 70, kN = 150, kK = 90;
  const PlanOwner owner(intent, kM, kN, kK);
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
  EXPECT_EQ(info.tiling.block_m, 64);
  EXPECT_EQ(info.tiling.block_n, 128);
  EXPECT_EQ(info.tiling.block_k, 32);
  EXPECT_NE(explain(owner.plan, DEEPGEMM_EXPLAIN_TEXT).find("warp"), std::string::npos);
  const auto a = random_elements(PRECISION_FP32, kM * kK, 7);
  const auto b = random_elements(PRECISION_FP32, kN * kK, 8);
  std::vector<float> c(kM * kN);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = b.data();
  args.C = c.data();
  expect_verified(owner.plan, args);
}

TEST(Contracts, InitialisersFollowTheDocumentedOrder) {
  const numerical_contract_t contract = {.input_precision = PRECISION_BF16,
                                         .output_precision = PRECISION_FP32,
                                         .safe_accumulation = false,
                                         .error_model = ERROR_MODEL_RELATIVE_EPSILON,
                                         .max_relative_error = 1e-4,
                                         .max_absolute_error = 0,
                                         .outlier_handling = OUTLIER_NONE,
                                         .dequant_strategy = DEQUANT_STRATEGY_DEFAULT,
                                         .reproducibility = REPRODUCIBILITY_RUN_TO_RUN};
  const gemm_intent_t intent = {
      .operation = GEMM_OP_TN, .numerical_contract = contract, .device = "cpu"};
  constexpr int64_t kM = 33, kN = 17, kK = 65;
  const PlanOwner owner(intent, kM, kN, kK);
  const auto a = random_elements(PRECISION_BF16, kM * kK, 9);
  const auto b = random_elements(PRECISION_BF16, kN * kK, 10);
  std::vector<float> c(kM * kN);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = b.data();
  args.C = c.data();
  expect_verified(owner.plan, args);
}

TEST(Contracts, QuantisedDenseOperandsUseTheirScales) {
  struct Case {
    const char* name;
    gemm_precision_t precision;
    gemm_dequant_strategy_t strategy;
    int64_t scales_a, scales_b;  // of M=5, N=200, K=300
  };
  constexpr int64_t kM = 5, kN = 200, kK = 300;
  const Case cases[] = {
      {"int8 per channel", PRECISION_INT8, DEQUANT_STRATEGY_PER_CHANNEL, kM, kN},
      {"int8 per tensor", PRECISION_INT8, DEQUANT_STRATEGY_PER_TENSOR, 1, 1},
      {"fp8 in blocks", PRECISION_FP8_E4M3, DEQUANT_STRATEGY_BLOCK_128, kM * 3, 2 * 3},
      {"e5m2 per channel", PRECISION_FP8_E5M2, DEQUANT_STRATEGY_PER_CHANNEL, kM, kN},
      {"int8 per group", PRECISION_INT8, DEQUANT_STRATEGY_PER_GROUP, kM * 3, kN * 3}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    const gemm_intent_t intent = {.operation = GEMM_OP_NT,
                                  .numerical_contract = {.input_precision = each.precision,
                                                         .output_precision = PRECISION_FP32,
                                                         .dequant_strategy = each.strategy},
                                  .device = "cpu"};
    const PlanOwner owner(intent, kM, kN, kK);
    const auto a = random_elements(each.precision, kM * kK, 11);
    const auto b = random_elements(each.precision, kN * kK, 12);
    const auto scale_a = random_scales(each.scales_a, 13);
    const auto scale_b = random_scales(each.scales_b, 14);
    std::vector<float> c(kM * kN), unscaled(kM * kN);
    gemm_launch_args_t args = {};
    args.A = a.data();
    args.B = b.data();
    args.C = c.data();
    args.scale_a = scale_a.data();
    args.scale_b = scale_b.data();
    expect_verified(owner.plan, args);
    args.C = unscaled.data();
    args.scale_a = args.scale_b = nullptr;  // means 1
    expect_verified(owner.plan, args);
    EXPECT_NE(c, unscaled);
  }
}

}  // namespace
}  // namespace deepgemm::api_test
