// Weights through the public interface: checkpoints in, launches right, the same checkpoint out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/formats.hpp"
#include "support.hpp"

namespace deepgemm::api_test {
namespace {

constexpr auto kInvalid = DEEPGEMM_ERROR_INVALID_ARGUMENT;

// The tensors of one checkpoint and the intent of a plan that reads it.
struct Checkpoint {
  std::string name;
  deepgemm_weight_format_t format = WEIGHT_FORMAT_DENSE;
  gemm_precision_t plan_precision = PRECISION_INT4;
  int64_t weight_bytes = 0, scale_count = 0, zero_bytes = 0;
  gemm_precision_t scale_precision = PRECISION_FP16;
};

constexpr int64_t kM = 3, kN = 64, kK = 256, kGroup = 64;
constexpr int64_t kGroups = kK / kGroup;

const Checkpoint kCheckpoints[] = {
    {"awq_gemm", WEIGHT_FORMAT_AWQ_GEMM, PRECISION_INT4_AWQ, kK* kN / 2, kGroups* kN,
     kGroups* kN / 2, PRECISION_FP16},
    {"gptq_v1", WEIGHT_FORMAT_GPTQ_V1, PRECISION_INT4_GPTQ, kK* kN / 2, kGroups* kN,
     kGroups* kN / 2, PRECISION_FP16},
    {"gptq_v2", WEIGHT_FORMAT_GPTQ_V2, PRECISION_INT4_GPTQ, kK* kN / 2, kGroups* kN,
     kGroups* kN / 2, PRECISION_FP16},
    {"compressed_tensors", WEIGHT_FORMAT_COMPRESSED_TENSORS, PRECISION_INT4, kK* kN / 2,
     kGroups* kN, kGroups* kN / 2, PRECISION_BF16},
    {"fp8_block", WEIGHT_FORMAT_FP8_BLOCK, PRECISION_FP8_E4M3, kK* kN, kK / 128, 0, PRECISION_FP32},
    {"int8_channel", WEIGHT_FORMAT_INT8_CHANNEL, PRECISION_INT8, kK* kN, kN, 0, PRECISION_FP32},
};

class Checkpoints : public testing::TestWithParam<Checkpoint> {
 protected:
  void SetUp() override {
    const Checkpoint& c = GetParam();
    std::mt19937 random(5);
    weight_.resize(static_cast<size_t>(c.weight_bytes));
    for (uint8_t& byte : weight_) byte = static_cast<uint8_t>(random() % 256);
    if (c.format == WEIGHT_FORMAT_FP8_BLOCK) {
      for (uint8_t& byte : weight_) byte &= 0xBF;  // no NaN
    }
    zeros_.resize(static_cast<size_t>(c.zero_bytes));
    for (uint8_t& byte : zeros_) byte = static_cast<uint8_t>(random() % 256);
    scales_.resize(static_cast<size_t>(base::storage_bytes(c.scale_precision, c.scale_count)));
    for (int64_t i = 0; i < c.scale_count; ++i) {
      base::encode(c.scale_precision, scales_.data(), i, 0.01 * (1 + random() % 100));
    }
    intent_.operation = GEMM_OP_NT;
    intent_.numerical_contract.input_precision = c.plan_precision;
    intent_.numerical_contract.activation_precision = PRECISION_FP16;
    intent_.numerical_contract.weight_precision = c.plan_precision;
    intent_.numerical_contract.output_precision = PRECISION_FP32;
    intent_.device = "cpu";
  }

  deepgemm_weight_tensors_t tensors(std::vector<uint8_t>& weight, std::vector<uint8_t>& scales,
                                    std::vector<uint8_t>& zeros) const {
    const Checkpoint& c = GetParam();
    deepgemm_weight_tensors_t t = {};
    t.format = c.format;
    t.in_features = kK;
    t.out_features = kN;
    const bool is_int4 = base::is_int4(c.plan_precision);
    if (is_int4) t.group_size = kGroup;
    if (c.format == WEIGHT_FORMAT_INT8_CHANNEL) t.bits = 8;
    t.weight = weight.data();
    t.scales = scales.data();
    t.scale_precision = c.scale_precision;
    t.zeros = zeros.empty() ? nullptr : zeros.data();
    t.weight_bytes = static_cast<int64_t>(weight.size());
    t.scales_bytes = static_cast<int64_t>(scales.size());
    t.zeros_bytes = static_cast<int64_t>(zeros.size());
    return t;
  }

  gemm_intent_t intent_ = {};
  std::vector<uint8_t> weight_, scales_, zeros_;
};

TEST_P(Checkpoints, LaunchRightAndComeBackBitExact) {
  const PlanOwner owner(intent_, kM, kN, kK);
  const deepgemm_weight_tensors_t given = tensors(weight_, scales_, zeros_);
  deepgemm_packed_weights_t* packed = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_pack_weights(&packed, &owner.plan, &given)));
  deepgemm_packed_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_packed_info(packed, &info)));
  EXPECT_EQ(info.in_features, kK);
  EXPECT_EQ(info.out_features, kN);
  EXPECT_EQ(info.max_abs_error, 0) << "re-laid, not rounded";
  EXPECT_GT(info.bytes, 0u);
  EXPECT_GT(info.max_column_abs_sum, 0);

  const auto a = random_elements(PRECISION_FP16, kM * kK, 6);
  std::vector<float> c(kM * kN);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = packed;
  args.C = c.data();
  expect_verified(owner.plan, args);

  std::vector<uint8_t> weight(weight_.size()), scales(scales_.size()), zeros(zeros_.size());
  const deepgemm_weight_tensors_t back = tensors(weight, scales, zeros);
  ASSERT_TRUE(succeeded(deepgemm_unpack_weights(packed, &back)));
  EXPECT_EQ(weight, weight_);
  EXPECT_EQ(scales, scales_);
  EXPECT_EQ(zeros, zeros_);
  EXPECT_TRUE(succeeded(deepgemm_destroy_packed_weights(&packed)));
  EXPECT_EQ(packed, nullptr);
}

TEST_P(Checkpoints, WrongSizesAndMissingTensorsAreRefused) {
  const PlanOwner owner(intent_, kM, kN, kK);
  deepgemm_packed_weights_t* packed = nullptr;
  deepgemm_weight_tensors_t t = tensors(weight_, scales_, zeros_);
  t.weight_bytes -= 1;
  EXPECT_NE(deepgemm_pack_weights(&packed, &owner.plan, &t), DEEPGEMM_SUCCESS);
  EXPECT_EQ(packed, nullptr);
  t = tensors(weight_, scales_, zeros_);
  t.scales = nullptr;
  EXPECT_NE(deepgemm_pack_weights(&packed, &owner.plan, &t), DEEPGEMM_SUCCESS);
  t = tensors(weight_, scales_, zeros_);
  t.out_features *= 2;
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, &t), kInvalid, "out_features"));
  t = tensors(weight_, scales_, zeros_);
  t.reserved[0] = 1;
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, &t), kInvalid, "reserved"));
}

INSTANTIATE_TEST_SUITE_P(Formats, Checkpoints, testing::ValuesIn(kCheckpoints),
                         [](const auto& each) { return each.param.name; });

gemm_intent_t weight_intent(gemm_precision_t weights) {
  gemm_intent_t intent = {};
  intent.operation = GEMM_OP_NT;
  intent.numerical_contract.input_precision = weights;
  intent.numerical_contract.weight_precision = weights;
  intent.numerical_contract.activation_precision = PRECISION_FP16;
  intent.numerical_contract.output_precision = PRECISION_FP32;
  intent.device = "cpu";
  return intent;
}

deepgemm_weight_tensors_t dense(void* weight, gemm_precision_t precision, bool transposed) {
  deepgemm_weight_tensors_t t = {};
  t.format = WEIGHT_FORMAT_DENSE;
  t.precision = precision;
  t.transposed = transposed;
  t.in_features = kK;
  t.out_features = kN;
  t.weight = weight;
  return t;
}

TEST(DenseWeights, BothOrientationsGiveTheSameOperand) {
  for (const gemm_precision_t precision :
       {PRECISION_INT4_AWQ, PRECISION_INT8, PRECISION_FP8_E4M3, PRECISION_FP16}) {
    SCOPED_TRACE(static_cast<int>(precision));
    const PlanOwner owner(weight_intent(precision), kM, kN, kK);
    std::vector<float> rows(kN * kK), columns(kN * kK);
    std::mt19937 random(3);
    for (int64_t n = 0; n < kN; ++n) {
      for (int64_t k = 0; k < kK; ++k) {
        const float value = static_cast<float>(random() % 2000) / 1000 - 1;
        rows[static_cast<size_t>(n * kK + k)] = value;
        columns[static_cast<size_t>(k * kN + n)] = value;
      }
    }
    deepgemm_packed_weights_t* packed[2] = {};
    const auto first = dense(rows.data(), PRECISION_FP32, false);
    const auto second = dense(columns.data(), PRECISION_FP32, true);
    ASSERT_TRUE(succeeded(deepgemm_pack_weights(&packed[0], &owner.plan, &first)));
    ASSERT_TRUE(succeeded(deepgemm_pack_weights(&packed[1], &owner.plan, &second)));
    deepgemm_packed_info_t info = {};
    ASSERT_TRUE(succeeded(deepgemm_get_packed_info(packed[0], &info)));
    EXPECT_GT(info.max_abs_error, 0);
    EXPECT_LT(info.relative_frobenius_error, 0.2);

    std::vector<float> out[2] = {std::vector<float>(rows.size()), std::vector<float>(rows.size())};
    double worst = 0;
    for (int i = 0; i < 2; ++i) {
      const auto target = dense(out[i].data(), PRECISION_FP32, false);
      ASSERT_TRUE(succeeded(deepgemm_unpack_weights(packed[i], &target)));
    }
    EXPECT_EQ(out[0], out[1]);
    for (size_t i = 0; i < rows.size(); ++i) {
      worst = std::max(worst, std::abs(double{rows[i]} - double{out[0][i]}));
    }
    EXPECT_NEAR(worst, info.max_abs_error, 1e-6) << "the error told is the error made";

    const auto a = random_elements(PRECISION_FP16, kM * kK, 6);
    std::vector<float> c(kM * kN);
    gemm_launch_args_t args = {};
    args.A = a.data();
    args.B = packed[0];
    args.C = c.data();
    expect_verified(owner.plan, args);
    for (auto*& each : packed) EXPECT_TRUE(succeeded(deepgemm_destroy_packed_weights(&each)));
  }
}

TEST(DenseWeights, PlanForFloatsReadsPackedAndPlainAlike) {
  const PlanOwner owner(weight_intent(PRECISION_FP16), kM, kN, kK);
  auto weights = random_elements(PRECISION_FP16, kN * kK, 1);
  const auto a = random_elements(PRECISION_FP16, kM * kK, 2);
  const PackedOwner packed(owner.plan, weights, PRECISION_FP16, kK, kN);
  std::vector<float> plain(kM * kN), from_packed(kM * kN);
  ASSERT_TRUE(succeeded(deepgemm_launch_plan(&owner.plan, a.data(), weights.data(), plain.data())));
  ASSERT_TRUE(
      succeeded(deepgemm_launch_plan(&owner.plan, a.data(), packed.packed, from_packed.data())));
  EXPECT_EQ(plain, from_packed);
}

TEST(DenseWeights, WhatCannotBePackedIsRefusedByName) {
  const PlanOwner owner(weight_intent(PRECISION_INT4), kM, kN, kK);
  std::vector<float> weights(kN * kK, 1);
  deepgemm_packed_weights_t* packed = nullptr;
  auto t = dense(weights.data(), PRECISION_DEFAULT, false);
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, &t), kInvalid, "precision"));
  t = dense(nullptr, PRECISION_FP32, false);
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, &t), kInvalid, "weight"));
  t = dense(weights.data(), PRECISION_FP32, false);
  t.weight_bytes = 17;
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, &t), kInvalid, "weight_bytes"));
  t = dense(weights.data(), PRECISION_FP32, false);
  t.shard_offset = -1;
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, &t), kInvalid, "shard_offset"));
  weights[5 * kK + 3] = NAN;
  t = dense(weights.data(), PRECISION_FP32, false);
  EXPECT_EQ(deepgemm_pack_weights(&packed, &owner.plan, &t), kInvalid);
  EXPECT_EQ(packed, nullptr);
}

TEST(DenseWeights, CheckpointsOfAnotherPrecisionAreUnsupported) {
  const PlanOwner owner(weight_intent(PRECISION_INT8), kM, kN, kK);
  std::vector<uint8_t> codes(kK * kN), scales(4 * 2);
  const float one = 1;
  std::memcpy(scales.data(), &one, 4);
  std::memcpy(scales.data() + 4, &one, 4);
  deepgemm_weight_tensors_t t = {};
  t.format = WEIGHT_FORMAT_FP8_BLOCK;
  t.in_features = kK;
  t.out_features = kN;
  t.weight = codes.data();
  t.scales = scales.data();
  t.scale_precision = PRECISION_FP32;
  deepgemm_packed_weights_t* packed = nullptr;
  EXPECT_TRUE(failed(deepgemm_pack_weights(&packed, &owner.plan, &t), DEEPGEMM_ERROR_UNSUPPORTED,
                     "weight_precision"));
}

TEST(DenseWeights, APlanForAnotherDeviceCannotPack) {
  gemm_intent_t intent = weight_intent(PRECISION_INT8);
  intent.device = "h200";
  const PlanOwner owner(intent, kM, kN, kK);
  std::vector<float> weights(kN * kK, 1);
  const auto t = dense(weights.data(), PRECISION_FP32, false);
  deepgemm_packed_weights_t* packed = nullptr;
  EXPECT_TRUE(
      failed(deepgemm_pack_weights(&packed, &owner.plan, &t), DEEPGEMM_ERROR_UNSUPPORTED, "h200"));
}

}  // namespace
}  // namespace deepgemm::api_test
