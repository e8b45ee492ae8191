// Declarations and tensors that contradict their format.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "layout/checkpoint_testing.hpp"

namespace deepgemm::layout {
namespace {

// Valid tensors of a format: codes 0, zero points as they come, scales 1.
TensorBuffers valid(Declaration d) {
  TensorBuffers t(d);
  std::fill(t.weight.begin(), t.weight.end() - TensorBuffers::kGuard, 0);
  std::fill(t.zeros.begin(), t.zeros.end() - TensorBuffers::kGuard, 0x77);
  std::fill(t.g_idx.begin(), t.g_idx.begin() + d.k, 0);
  const int64_t size = d.scale_precision == PRECISION_FP16 ? 2 : 4;
  for (int64_t i = 0; i * size + static_cast<int64_t>(TensorBuffers::kGuard) <
                      static_cast<int64_t>(t.scales.size());
       ++i) {
    base::encode(d.scale_precision, t.scales.data(), i, 1.0);
  }
  return t;
}

TensorBuffers valid_gptq() {
  return valid({.format = WEIGHT_FORMAT_GPTQ_V1,
                .k = 32,
                .n = 8,
                .group_size = 16,
                .g_idx = true,
                .scale_precision = PRECISION_FP16});
}

struct BadInput {
  const char* title;
  std::function<void(deepgemm_weight_tensors_t&)> spoil;
  deepgemm_status_t code;
  const char* message;
};

TEST(ImportTensors, NamesWhatIsWrong) {
  const BadInput cases[] = {
      {"dense", [](auto& t) { t.format = WEIGHT_FORMAT_DENSE; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "Weight format 0"},
      {"negative K", [](auto& t) { t.in_features = -1; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "in_features -1"},
      {"overflow", [](auto& t) { t.out_features = std::numeric_limits<int64_t>::max() / 2; },
       DEEPGEMM_ERROR_INVALID_ARGUMENT, "too large"},
      {"group size", [](auto& t) { t.group_size = -2; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "group_size is -2"},
      {"shard", [](auto& t) { t.shard_offset = -8; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "shard_offset is -8"},
      {"reserved", [](auto& t) { t.reserved[2] = 1; }, DEEPGEMM_ERROR_INVALID_ARGUMENT, "reserved"},
      {"3 bits", [](auto& t) { t.bits = 3; }, DEEPGEMM_ERROR_UNSUPPORTED, "GPTQ_V1 with 3 bits"},
      {"scale type", [](auto& t) { t.scale_precision = PRECISION_FP64; },
       DEEPGEMM_ERROR_INVALID_ARGUMENT, "scale_precision"},
      {"no weight", [](auto& t) { t.weight = nullptr; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "weight is null"},
      {"no scales", [](auto& t) { t.scales = nullptr; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "scales is null"},
      {"short weight", [](auto& t) { t.weight_bytes -= 4; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "weight_bytes is 124, but K = 32, N = 8, 4 bits and 2 groups of 16 need 128 bytes"},
      {"long zeros", [](auto& t) { t.zeros_bytes += 1; }, DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "zeros_bytes is 9"},
      {"scales", [](auto& t) { t.scales_bytes += 1; }, DEEPGEMM_ERROR_FORMAT,
       "it must be a multiple of 16"},
      {"negative g_idx", [](auto& t) { t.g_idx[3] = -1; }, DEEPGEMM_ERROR_FORMAT, "g_idx[3] is -1"},
      {"large g_idx", [](auto& t) { t.g_idx[5] = 2; }, DEEPGEMM_ERROR_FORMAT, "names 3 groups"},
      {"g_idx of one group",
       [](auto& t) {
         t.g_idx[5] = 1;
         t.group_size = -1;
       },
       DEEPGEMM_ERROR_FORMAT, "group_size -1 means one group"},
      {"infinite scale", [](auto& t) { static_cast<uint16_t*>(t.scales)[9] = 0x7C00; },
       DEEPGEMM_ERROR_FORMAT, "group 1, column 1 is inf"},
      {"NaN scale", [](auto& t) { static_cast<uint16_t*>(t.scales)[0] = 0x7E00; },
       DEEPGEMM_ERROR_FORMAT, "group 0, column 0 is nan"},
      {"negative scale", [](auto& t) { static_cast<uint16_t*>(t.scales)[2] = 0xBC00; },
       DEEPGEMM_ERROR_FORMAT, "is -1"},
  };
  for (const BadInput& bad : cases) {
    TensorBuffers t = valid_gptq();
    deepgemm_weight_tensors_t tensors = t.view();
    ASSERT_TRUE(import_tensors(tensors).ok());
    bad.spoil(tensors);
    const auto result = import_tensors(tensors);
    ASSERT_FALSE(result.ok()) << bad.title;
    EXPECT_EQ(result.error().code, bad.code) << bad.title;
    EXPECT_NE(result.error().message.find(bad.message), std::string::npos)
        << bad.title << ": " << result.error().message;
  }
}

TEST(ImportTensors, ChecksBuffersThatHaveNoStatedSizeAsFarAsItCan) {
  TensorBuffers t = valid_gptq();
  deepgemm_weight_tensors_t tensors = t.view();
  tensors.weight_bytes = tensors.scales_bytes = tensors.zeros_bytes = 0;
  EXPECT_TRUE(import_tensors(tensors).ok());
}

TEST(ImportTensors, SuggestsDimensionsThatPass) {
  for (const auto& [format, k, n, message] :
       {std::tuple{WEIGHT_FORMAT_AWQ_GEMM, 16, 12,
                   "out_features is 12, but must be a multiple of 8"},
        {WEIGHT_FORMAT_AWQ_GEMV, 36, 8, "in_features is 36, but must be a multiple of 8"}}) {
    Declaration d{
        .format = format, .k = k, .n = n, .group_size = 32, .scale_precision = PRECISION_FP16};
    const auto refused = import_tensors(valid(d).view());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(refused.error().message.find(message), std::string::npos) << refused.error().message;
    int64_t& dimension = format == WEIGHT_FORMAT_AWQ_GEMM ? d.n : d.k;
    for (const int64_t legal : {dimension / 8 * 8, dimension / 8 * 8 + 8}) {
      EXPECT_NE(refused.error().message.find(std::to_string(legal)), std::string::npos);
      dimension = legal;
      TensorBuffers t = valid(d);
      EXPECT_TRUE(import_tensors(t.view()).ok()) << legal;
    }
  }
}

TEST(ImportTensors, RefusesWhatAFormatDoesNotDefine) {
  struct Case {
    Declaration declaration;
    deepgemm_status_t code;
    const char* message;
  };
  const Case cases[] = {
      {{.format = WEIGHT_FORMAT_AWQ_GEMM, .k = 8, .n = 8, .bits = 8},
       DEEPGEMM_ERROR_UNSUPPORTED,
       "AWQ_GEMM with 8 bits"},
      {{.format = WEIGHT_FORMAT_AWQ_GEMV, .k = 32, .n = 8, .group_size = 16},
       DEEPGEMM_ERROR_UNSUPPORTED,
       "group sizes 32, 64 and from 128 on"},
      {{.format = WEIGHT_FORMAT_AWQ_GEMM, .k = 8, .n = 8, .g_idx = true},
       DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "no activation order"},
      {{.format = WEIGHT_FORMAT_COMPRESSED_TENSORS, .k = 8, .n = 8, .bits = 6},
       DEEPGEMM_ERROR_UNSUPPORTED,
       "COMPRESSED_TENSORS with 6 bits"},
      {{.format = WEIGHT_FORMAT_FP8_BLOCK, .k = 8, .n = 8, .bits = 4, .zeros = false},
       DEEPGEMM_ERROR_UNSUPPORTED,
       "FP8_BLOCK with 4 bits"},
      {{.format = WEIGHT_FORMAT_FP8_BLOCK,
        .k = 8,
        .n = 8,
        .bits = 8,
        .group_size = 64,
        .zeros = false},
       DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "blocks of 128; set it to 128"},
      {{.format = WEIGHT_FORMAT_INT8_CHANNEL,
        .k = 8,
        .n = 8,
        .bits = 8,
        .group_size = 4,
        .zeros = false},
       DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "one scale for the whole K; set it to -1"},
      {{.format = WEIGHT_FORMAT_INT8_CHANNEL, .k = 8, .n = 8, .bits = 8, .group_size = -1},
       DEEPGEMM_ERROR_INVALID_ARGUMENT,
       "no zero points"},
  };
  for (Case c : cases) {
    c.declaration.scale_precision = PRECISION_FP16;
    TensorBuffers t = valid(c.declaration);
    const auto result = import_tensors(t.view());
    ASSERT_FALSE(result.ok()) << c.message;
    EXPECT_EQ(result.error().code, c.code) << c.message;
    EXPECT_NE(result.error().message.find(c.message), std::string::npos) << result.error().message;
  }
}

TEST(ImportTensors, RefusesZeroPointsOfSymmetricCompressedTensors) {
  TensorBuffers t = valid({.format = WEIGHT_FORMAT_COMPRESSED_TENSORS,
                           .k = 8,
                           .n = 8,
                           .scale_precision = PRECISION_FP16});
  deepgemm_weight_tensors_t tensors = t.view();
  EXPECT_TRUE(import_tensors(tensors).ok());
  tensors.symmetric = true;
  EXPECT_FALSE(import_tensors(tensors).ok());
  tensors.zeros = nullptr;
  EXPECT_TRUE(import_tensors(tensors).ok());
}

class ExportTensors : public testing::Test {
 protected:
  void SetUp() override {
    TensorBuffers t = valid({.format = WEIGHT_FORMAT_GPTQ_V1,
                             .k = 32,
                             .n = 8,
                             .group_size = 16,
                             .scale_precision = PRECISION_FP16});
    weights_ = imported(t);
    declaration_ = t.declaration;
  }

  void expect_refusal(deepgemm_status_t code, const std::string& message) {
    TensorBuffers t(declaration_);
    const TensorBuffers before = t;
    const auto result = export_tensors(weights_, t.view());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, code);
    EXPECT_NE(result.error().message.find(message), std::string::npos) << result.error().message;
    EXPECT_TRUE(t == before);  // nothing is written on failure
  }

  QuantizedWeights weights_;
  Declaration declaration_;
};

TEST_F(ExportTensors, RefusesAnotherShape) {
  declaration_.k = 40;
  expect_refusal(DEEPGEMM_ERROR_INVALID_ARGUMENT, "K = 40, N = 8");
}

TEST_F(ExportTensors, RefusesAnotherWidth) {
  declaration_.bits = 8;
  expect_refusal(DEEPGEMM_ERROR_UNSUPPORTED, "they are int4_gptq");
}

TEST_F(ExportTensors, RefusesAnotherGroupSize) {
  declaration_.group_size = 32;
  expect_refusal(DEEPGEMM_ERROR_UNSUPPORTED, "groups are 16 x 1 and not 32 x 1");
}

TEST_F(ExportTensors, RefusesAnotherShardOffset) {
  declaration_.shard_offset = 4;
  expect_refusal(DEEPGEMM_ERROR_INVALID_ARGUMENT, "shard_offset is 4");
}

TEST_F(ExportTensors, RefusesOutlierChannels) {
  weights_.outlier_channels = {3};
  weights_.outlier_values.assign(8, 0x3C00);
  for (int n = 0; n < 8; ++n) weights_.codes[static_cast<size_t>(3 * 8 + n)] = weights_.zeros[0];
  expect_refusal(DEEPGEMM_ERROR_UNSUPPORTED, "1 channels are kept in FP16");
}

TEST_F(ExportTensors, RefusesScalesThatTheTypeCannotHold) {
  weights_.scales[5] = 1e-9f;
  expect_refusal(DEEPGEMM_ERROR_UNSUPPORTED, "which fp16 cannot represent");
}

TEST_F(ExportTensors, RefusesToDropZeroPoints) {
  weights_.zeros[0] = 3;
  declaration_.zeros = false;
  expect_refusal(DEEPGEMM_ERROR_UNSUPPORTED, "they have zero points");
}

TEST_F(ExportTensors, RefusesToDropTheActivationOrder) {
  weights_.g_idx.assign(32, 1);
  expect_refusal(DEEPGEMM_ERROR_UNSUPPORTED, "g_idx is null");
}

TEST_F(ExportTensors, RefusesAnotherNumberOfOrderedGroups) {
  weights_.g_idx.assign(32, 1);
  declaration_.g_idx = true;
  declaration_.groups = 5;
  expect_refusal(DEEPGEMM_ERROR_UNSUPPORTED, "they have 2 groups and the tensors 5");
}

TEST_F(ExportTensors, RefusesInvalidWeights) {
  weights_.codes[7] = 16;
  expect_refusal(DEEPGEMM_ERROR_INVALID_ARGUMENT, "0 ... 15");
}

}  // namespace
}  // namespace deepgemm::layout
