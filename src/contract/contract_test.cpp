#include "contract/contract.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace deepgemm::contract {
namespace {

using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Contract resolved(const numerical_contract_t& declared, int64_t k = 4096, int reliability = 0) {
  auto result = resolve(declared, reliability, k);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : Contract{};
}

std::string refusal(const numerical_contract_t& declared, int64_t k = 4096, int reliability = 0) {
  const auto result = resolve(declared, reliability, k);
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  return result.error().message;
}

base::Result<Certificate> admitted(const Contract& contract, PathId path, int64_t k,
                                   const Accumulation& accumulation = {}) {
  BoundInput input;
  input.path = path;
  input.k = k;
  input.a = contract.a;
  input.b = contract.b;
  input.output = contract.output;
  input.accumulation = accumulation;
  input.confidence = contract.confidence;
  input.max_abs_a = contract.max_abs_a;
  input.max_abs_b = contract.max_abs_b;
  return admit(contract, path_info(path), error_bound(input), k);
}

std::string why_not(const Contract& contract, PathId path, int64_t k,
                    const Accumulation& accumulation = {}) {
  const auto result = admitted(contract, path, k, accumulation);
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_CONTRACT_UNMET);
  return result.error().message;
}

Accumulation double_sums() {
  Accumulation sum;
  sum.bits = 53;
  return sum;
}

Accumulation tensor_core() {
  Accumulation sum;
  sum.truncates = true;
  sum.step = 8;
  return sum;
}

Accumulation hopper_fp8(int64_t chain) {
  Accumulation sum;
  sum.bits = 14;
  sum.truncates = true;
  sum.step = 32;
  sum.chain = chain;
  return sum;
}

TEST(Path, IsFoundByItsName) {
  for (const Path& path : all_paths()) {
    EXPECT_EQ(find_path(path.name), &path);
    EXPECT_EQ(&path_info(path.id), &path);
  }
  EXPECT_EQ(find_path("fp12"), nullptr);
  EXPECT_EQ(find_path(nullptr), nullptr);
  EXPECT_EQ(all_paths().size(), 14u);
}

TEST(Path, RefusesStorageThatItCannotRead) {
  EXPECT_EQ(storage_refusal(path_info(PathId::kInt8), PRECISION_INT8, PRECISION_INT8), "");
  EXPECT_THAT(storage_refusal(path_info(PathId::kInt8), PRECISION_FP32, PRECISION_INT8),
              HasSubstr("int8 for both operands"));
  EXPECT_THAT(storage_refusal(path_info(PathId::kFp32), PRECISION_FP16, PRECISION_INT4_AWQ),
              HasSubstr("int4_awq"));
}

TEST(Resolve, FillsDefaultsOfAnEmptyContract) {
  const Contract contract = resolved({});
  EXPECT_EQ(contract.a, PRECISION_FP32);
  EXPECT_EQ(contract.b, PRECISION_FP32);
  EXPECT_EQ(contract.output, PRECISION_FP32);
  EXPECT_TRUE(contract.native);
  EXPECT_FALSE(contract.tf32_allowed);
  EXPECT_DOUBLE_EQ(contract.confidence, 1 - 1e-9);
}

TEST(Resolve, StoresTf32AsFp32) {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_TF32;
  const Contract contract = resolved(declared);
  EXPECT_EQ(contract.a, PRECISION_FP32);
  EXPECT_EQ(contract.output, PRECISION_FP32);
  EXPECT_TRUE(contract.tf32_allowed);
}

TEST(Resolve, ChoosesActivationsOfInt4FromTheOutput) {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_INT4_AWQ;
  EXPECT_EQ(resolved(declared).a, PRECISION_FP16);
  EXPECT_EQ(resolved(declared).output, PRECISION_FP16);
  EXPECT_EQ(resolved(declared).group_size, 128);
  EXPECT_EQ(resolved(declared).dequant_strategy, DEQUANT_STRATEGY_PER_GROUP);
  declared.output_precision = PRECISION_BF16;
  EXPECT_EQ(resolved(declared).a, PRECISION_BF16);
  declared.output_precision = PRECISION_FP8_E4M3;
  EXPECT_EQ(resolved(declared).a, PRECISION_FP16);
}

TEST(Resolve, ChoosesOutputFromTheInput) {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_INT8;
  EXPECT_EQ(resolved(declared).output, PRECISION_FP32);
  EXPECT_EQ(resolved(declared).dequant_strategy, DEQUANT_STRATEGY_PER_CHANNEL);
  declared.input_precision = PRECISION_FP8_E4M3;
  EXPECT_EQ(resolved(declared).output, PRECISION_FP16);
  EXPECT_EQ(resolved(declared).dequant_strategy, DEQUANT_STRATEGY_BLOCK_128);
  declared.input_precision = PRECISION_BF16;
  EXPECT_EQ(resolved(declared).output, PRECISION_BF16);
}

TEST(Resolve, TakesConfidenceFromTheReliabilityLevel) {
  EXPECT_DOUBLE_EQ(resolved({}, 64, 1).confidence, 1 - 1e-6);
  EXPECT_DOUBLE_EQ(resolved({}, 64, 3).confidence, 0.99);
  numerical_contract_t declared{};
  declared.confidence = 0.5;
  EXPECT_EQ(resolved(declared, 64, 1).confidence, 0.5);
  declared.confidence = 0;
  declared.bound_basis = BOUND_BASIS_WORST_CASE;
  EXPECT_EQ(resolved(declared).confidence, 0);
}

TEST(Resolve, LetsTheErrorModelSelectTheLimits) {
  numerical_contract_t declared{};
  declared.max_relative_error = 1e-3;
  declared.max_absolute_error = 1e-2;
  EXPECT_EQ(resolved(declared).max_relative_error, 1e-3);
  EXPECT_EQ(resolved(declared).max_absolute_error, 1e-2);
  declared.error_model = ERROR_MODEL_RELATIVE_EPSILON;
  EXPECT_EQ(resolved(declared).max_absolute_error, 0);
  declared.error_model = ERROR_MODEL_ABSOLUTE_EPSILON;
  EXPECT_EQ(resolved(declared).max_relative_error, 0);
  EXPECT_FALSE(resolved(declared).native);
}

TEST(Resolve, MakesWholeKAGroup) {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_INT4;
  declared.quantization_group_size = -1;
  const Contract whole = resolved(declared, 576);
  EXPECT_EQ(whole.group_size, 576);
  declared.quantization_group_size = 576;
  EXPECT_EQ(resolved(declared, 576), whole);
  declared.quantization_group_size = 256;
  EXPECT_EQ(resolved(declared, 192).group_size, 192);
  declared.quantization_group_size = 48;
  EXPECT_THAT(refusal(declared), HasSubstr("16, 32, 64, 128, 256 and K"));
}

TEST(Resolve, RefusesNumbersOutsideTheirRange) {
  for (const double bad : {kNaN, -1.0, std::numeric_limits<double>::infinity()}) {
    for (double numerical_contract_t::*field :
         {&numerical_contract_t::max_relative_error, &numerical_contract_t::max_absolute_error,
          &numerical_contract_t::max_abs_a, &numerical_contract_t::max_abs_b,
          &numerical_contract_t::outlier_fraction, &numerical_contract_t::skip_tolerance,
          &numerical_contract_t::confidence}) {
      numerical_contract_t declared{};
      declared.*field = bad;
      EXPECT_NE(refusal(declared), "");
    }
  }
  numerical_contract_t certain{};
  certain.confidence = 1;
  EXPECT_THAT(refusal(certain), HasSubstr("WORST_CASE"));
  EXPECT_THAT(refusal({}, 64, 4), HasSubstr("reliability_level is 4"));
  EXPECT_THAT(refusal({}, 64, -1), HasSubstr("reliability_level is -1"));
  EXPECT_NE(refusal({}, -1), "");
}

TEST(Resolve, RefusesUnknownEnumsAndReservedFields) {
  numerical_contract_t declared{};
  const int unknown = 99, negative = -1;
  std::memcpy(&declared.input_precision, &unknown, sizeof(unknown));
  EXPECT_THAT(refusal(declared), HasSubstr("input_precision is 99"));
  declared = {};
  std::memcpy(&declared.outlier_handling, &negative, sizeof(negative));
  EXPECT_THAT(refusal(declared), HasSubstr("outlier_handling"));
  declared = {};
  declared.reserved[3] = 1;
  EXPECT_THAT(refusal(declared), HasSubstr("reserved"));
}

TEST(Resolve, RefusesContradictions) {
  numerical_contract_t declared{};
  declared.error_model = ERROR_MODEL_ABSOLUTE_EPSILON;
  declared.max_relative_error = 1e-3;
  EXPECT_THAT(refusal(declared), HasSubstr("max_absolute_error is 0"));
  declared = {};
  declared.error_model = ERROR_MODEL_RELATIVE_EPSILON;
  EXPECT_THAT(refusal(declared), HasSubstr("max_relative_error is 0"));
  declared = {};
  declared.outlier_handling = OUTLIER_FP16_CHANNEL;
  EXPECT_THAT(refusal(declared), HasSubstr("INT4 weights only"));
  declared = {};
  declared.input_precision = PRECISION_INT4;
  declared.dequant_strategy = DEQUANT_STRATEGY_BLOCK_128;
  EXPECT_THAT(refusal(declared), HasSubstr("PER_GROUP"));
  declared = {};
  declared.input_precision = PRECISION_INT4;
  declared.outlier_fraction = 0.1;
  EXPECT_THAT(refusal(declared), HasSubstr("OUTLIER_FP16_CHANNEL"));
  declared = {};
  declared.input_precision = PRECISION_INT4;
  declared.weight_precision = PRECISION_FP16;
  EXPECT_THAT(refusal(declared), HasSubstr("weight_precision is fp16"));
  declared = {};
  declared.activation_precision = PRECISION_INT4;
  EXPECT_THAT(refusal(declared), HasSubstr("weights only"));
  declared = {};
  declared.dequant_strategy = DEQUANT_STRATEGY_PER_CHANNEL;
  EXPECT_THAT(refusal(declared), HasSubstr("quantised"));
  declared = {};
  declared.output_precision = PRECISION_INT8;
  EXPECT_THAT(refusal(declared), HasSubstr("output scale"));
  declared = {};
  declared.bound_basis = BOUND_BASIS_WORST_CASE;
  declared.confidence = 0.9;
  EXPECT_THAT(refusal(declared), HasSubstr("always holds"));
  declared = {};
  declared.input_precision = PRECISION_INT8;
  declared.quantization_group_size = 64;
  EXPECT_THAT(refusal(declared), HasSubstr("quantization_group_size is 64"));
}

numerical_contract_t llm() {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_FP32;
  declared.output_precision = PRECISION_FP32;
  declared.error_model = ERROR_MODEL_RELATIVE_EPSILON;
  declared.max_relative_error = 1e-3;
  return declared;
}

TEST(Admit, LetsTheLlmContractUseTf32TensorCores) {
  for (const int64_t k : {1, 64, 576, 1536, 4096, 16384}) {
    const auto result = admitted(resolved(llm(), k), PathId::kTf32, k, tensor_core());
    ASSERT_TRUE(result.ok()) << k << ": " << result.error().message;
    EXPECT_LE(result->bound.relative, 1e-3);
    EXPECT_EQ(result->relative_limit, 1e-3);
  }
  numerical_contract_t worst = llm();
  worst.bound_basis = BOUND_BASIS_WORST_CASE;
  EXPECT_THAT(why_not(resolved(worst), PathId::kTf32, 4096, tensor_core()),
              HasSubstr("A and B rounded to tf32"));
}

TEST(Admit, HoldsStrictFp32ToDoubleSums) {
  numerical_contract_t declared = llm();
  declared.max_relative_error = 1e-6;
  const Contract contract = resolved(declared);
  EXPECT_THAT(why_not(contract, PathId::kFp32, 4096), HasSubstr("path fp32 is bounded by"));
  Accumulation blocked;
  blocked.chain = 256;
  EXPECT_NE(why_not(contract, PathId::kFp32, 4096, blocked), "");
  EXPECT_EQ(why_not(contract, PathId::kFp32Acc64, 4096, double_sums()), "");
}

TEST(Admit, NamesTheOutputRoundingThatAloneIsTooMuch) {
  numerical_contract_t declared = llm();
  declared.output_precision = PRECISION_BF16;
  const std::string message = why_not(resolved(declared), PathId::kFp32, 4096);
  EXPECT_THAT(message, HasSubstr("output rounding to bf16 alone is 0.00391"));
  EXPECT_THAT(message, HasSubstr("set output_precision to FP32"));
}

TEST(Admit, AllowsNoRoundedOperandsUnderANativeContract) {
  const Contract contract = resolved({});
  EXPECT_EQ(why_not(contract, PathId::kFp32, 4096), "");
  EXPECT_EQ(why_not(contract, PathId::kFp64, 4096, double_sums()), "");
  for (const PathId path :
       {PathId::kTf32, PathId::kTf32x3, PathId::kTf32Bf16, PathId::kBf16x3, PathId::kBf16}) {
    EXPECT_THAT(why_not(contract, path, 4096), HasSubstr("may not be rounded"));
  }
  numerical_contract_t tf32{};
  tf32.input_precision = PRECISION_TF32;
  EXPECT_EQ(why_not(resolved(tf32), PathId::kTf32, 4096, tensor_core()), "");
  EXPECT_NE(why_not(resolved(tf32), PathId::kBf16, 4096), "");
  numerical_contract_t half{};
  half.input_precision = PRECISION_FP16;
  EXPECT_EQ(why_not(resolved(half), PathId::kFp16, 4096, tensor_core()), "");
  EXPECT_THAT(why_not(resolved(half), PathId::kBf16, 4096), HasSubstr("may not be rounded"));
}

TEST(Admit, WantsPromotionOfShortSumsUnderANativeContract) {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_FP8_E4M3;
  const Contract contract = resolved(declared);
  EXPECT_EQ(why_not(contract, PathId::kFp8, 4096, hopper_fp8(128)), "");
  EXPECT_THAT(why_not(contract, PathId::kFp8, 4096, hopper_fp8(0)), HasSubstr("keeps 14 bits"));
}

TEST(Admit, RefusesDequantisedWeightsThatAreRoundedUnderANativeContract) {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_INT4_AWQ;
  const Contract contract = resolved(declared);
  EXPECT_EQ(why_not(contract, PathId::kW4A16, 4096), "");
  Accumulation rounding = tensor_core();
  rounding.dequant_rounds = true;
  EXPECT_NE(why_not(contract, PathId::kW4A16, 4096, rounding), "");
}

TEST(Admit, RefusesARangeThatTheMultiplicandLacks) {
  numerical_contract_t declared = llm();
  declared.max_relative_error = 0.1;
  EXPECT_THAT(why_not(resolved(declared), PathId::kFp16, 64), HasSubstr("max_abs_a"));
  declared.max_abs_a = 1000;
  EXPECT_THAT(why_not(resolved(declared), PathId::kFp16, 64), HasSubstr("max_abs_b"));
  declared.max_abs_b = 65504;
  EXPECT_EQ(why_not(resolved(declared), PathId::kFp16, 64), "");
  EXPECT_EQ(why_not(resolved(declared), PathId::kBf16, 64), "");
}

TEST(Admit, KeepsSafeAccumulationFromOverflowing) {
  numerical_contract_t declared{};
  declared.safe_accumulation = true;
  EXPECT_THAT(why_not(resolved(declared), PathId::kFp32, 4096), HasSubstr("fp32_acc64"));
  EXPECT_EQ(why_not(resolved(declared), PathId::kFp32Acc64, 4096, double_sums()), "");
  declared.max_abs_a = declared.max_abs_b = 1e6;
  EXPECT_EQ(why_not(resolved(declared), PathId::kFp32, 4096), "");

  numerical_contract_t bf16{};
  bf16.input_precision = PRECISION_BF16;
  bf16.safe_accumulation = true;
  EXPECT_NE(why_not(resolved(bf16), PathId::kBf16, 4096), "");
  bf16.max_abs_a = bf16.max_abs_b = 1e4;
  EXPECT_EQ(why_not(resolved(bf16), PathId::kBf16, 4096), "");

  for (const gemm_precision_t input : {PRECISION_FP16, PRECISION_FP8_E5M2, PRECISION_INT4_AWQ}) {
    numerical_contract_t narrow{};
    narrow.input_precision = input;
    narrow.safe_accumulation = true;
    const PathId path = input == PRECISION_FP16       ? PathId::kFp16
                        : input == PRECISION_FP8_E5M2 ? PathId::kFp8
                                                      : PathId::kW4A16;
    EXPECT_EQ(why_not(resolved(narrow, 1 << 20), path, 1 << 20), "");
  }
}

TEST(Admit, StatesTheMagnitudeUpToWhichAnAbsoluteLimitHolds) {
  numerical_contract_t declared{};
  declared.input_precision = PRECISION_INT4_AWQ;
  declared.output_precision = PRECISION_FP16;
  declared.error_model = ERROR_MODEL_ABSOLUTE_EPSILON;
  declared.max_absolute_error = 0.002;
  declared.outlier_handling = OUTLIER_FP16_CHANNEL;
  const auto result = admitted(resolved(declared, 576), PathId::kW4A16, 576);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_NEAR(result->magnitude_limit, 4, 0.2);

  declared.max_abs_a = 10;
  declared.max_abs_b = 1;
  EXPECT_THAT(why_not(resolved(declared, 576), PathId::kW4A16, 576),
              HasSubstr("K * max_abs_a * max_abs_b"));
  declared.max_abs_b = 5e-4;
  const auto small = admitted(resolved(declared, 576), PathId::kW4A16, 576);
  ASSERT_TRUE(small.ok()) << small.error().message;
  EXPECT_EQ(small->magnitude_limit, 0);
}

}  // namespace
}  // namespace deepgemm::contract
