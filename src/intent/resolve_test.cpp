#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "intent/problem.hpp"

namespace deepgemm::intent {
namespace {

using testing::HasSubstr;

// An intent with sizes that resolves; each bad input below changes one thing, and the repair that
// its message suggests must resolve again.
struct Case {
  gemm_intent_t intent = {};
  int64_t m = 4, n = 8, k = 16;
};

struct BadInput {
  const char* name;       // what the message must name
  void (*spoil)(Case&);   // makes it wrong
  void (*repair)(Case&);  // applies the suggested value
};

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// As a C caller can: no conversion to an enum that cannot hold the number.
template <class Enum>
void set_raw(Enum& field, int value) {
  std::memcpy(&field, &value, sizeof(value));
}

const BadInput kBadInputs[] = {
    {"M is -1", [](Case& c) { c.m = -1; }, [](Case& c) { c.m = 0; }},
    {"N is -7", [](Case& c) { c.n = -7; }, [](Case& c) { c.n = 0; }},
    {"K is -9223372036854775808", [](Case& c) { c.k = std::numeric_limits<int64_t>::min(); },
     [](Case& c) { c.k = 0; }},
    {"batch_count is -2", [](Case& c) { c.intent.batch_count = -2; },
     [](Case& c) { c.intent.batch_count = 0; }},
    {"the nearest legal value of M is 268435455",
     [](Case& c) { c.m = c.n = int64_t{1} << 32, c.k = 1; }, [](Case& c) { c.m = 268435455; }},
    {"the nearest legal value of K is 144115188075855871",
     [](Case& c) {
       c.k = kLargest;
       c.m = 0;
     },
     [](Case& c) { c.k = 144115188075855871; }},
    {"alpha is nan", [](Case& c) { c.intent.alpha = kNan; }, [](Case& c) { c.intent.alpha = 0; }},
    {"beta is inf", [](Case& c) { c.intent.beta = kInf; }, [](Case& c) { c.intent.beta = 0; }},
    {"operation is 4", [](Case& c) { set_raw(c.intent.operation, 4); },
     [](Case& c) { c.intent.operation = GEMM_OP_TT; }},
    {"role is 9", [](Case& c) { set_raw(c.intent.role, 9); },
     [](Case& c) { c.intent.role = GEMM_ROLE_LM_HEAD; }},
    {"epilogue.activation is 6", [](Case& c) { set_raw(c.intent.epilogue.activation, 6); },
     [](Case& c) { c.intent.epilogue.activation = GEMM_ACTIVATION_SWIGLU; }},
    {"l2_prefetch is 7", [](Case& c) { set_raw(c.intent.tiling_policy.l2_prefetch, 7); },
     [](Case& c) { c.intent.tiling_policy.l2_prefetch = L2_PREFETCH_AGGRESSIVE; }},
    {"intent.reserved[2] is 5", [](Case& c) { c.intent.reserved[2] = 5; },
     [](Case& c) { c.intent.reserved[2] = 0; }},
    {"tiling_policy.reserved[0] is 1", [](Case& c) { c.intent.tiling_policy.reserved[0] = 1; },
     [](Case& c) { c.intent.tiling_policy.reserved[0] = 0; }},
    {"epilogue.reserved[3] is 1", [](Case& c) { c.intent.epilogue.reserved[3] = 1; },
     [](Case& c) { c.intent.epilogue.reserved[3] = 0; }},
    {"numerical_contract.reserved[1] is 1",
     [](Case& c) { c.intent.numerical_contract.reserved[1] = 1; },
     [](Case& c) { c.intent.numerical_contract.reserved[1] = 0; }},
    {"group_kind is 4", [](Case& c) { set_raw(c.intent.group_kind, 4); },
     [](Case& c) { c.intent.group_kind = GEMM_GROUP_NONE; }},
    {"group_count is 3", [](Case& c) { c.intent.group_count = 3; },
     [](Case& c) { c.intent.group_count = 0; }},
    {"output_count is 4", [](Case& c) { c.intent.output_count = 4; },
     [](Case& c) { c.intent.output_count = 1; }},
    {"output_widths[1] is 4", [](Case& c) { c.intent.output_widths[1] = 4; },
     [](Case& c) { c.intent.output_widths[1] = 0; }},
    {"tiling_policy.block_m is -64", [](Case& c) { c.intent.tiling_policy.block_m = -64; },
     [](Case& c) { c.intent.tiling_policy.block_m = 0; }},
    {"tiling_policy.warp_k is -1", [](Case& c) { c.intent.tiling_policy.warp_k = -1; },
     [](Case& c) { c.intent.tiling_policy.warp_k = 0; }},
    {"the nearest legal value of warp_n is 32",
     [](Case& c) { c.intent.tiling_policy.block_n = 32, c.intent.tiling_policy.warp_n = 64; },
     [](Case& c) { c.intent.tiling_policy.warp_n = 32; }},
    {"nearest legal values of block_m are 96 and 128",
     [](Case& c) { c.intent.tiling_policy.block_m = 100, c.intent.tiling_policy.warp_m = 32; },
     [](Case& c) { c.intent.tiling_policy.block_m = 96; }},
    {"sm_partition is -3", [](Case& c) { c.intent.tiling_policy.sm_partition = -3; },
     [](Case& c) { c.intent.tiling_policy.sm_partition = -1; }},
    {"max_latency_us is -1", [](Case& c) { c.intent.budget.max_latency_us = -1; },
     [](Case& c) { c.intent.budget.max_latency_us = 0; }},
    {"energy_cap_mj is nan", [](Case& c) { c.intent.budget.energy_cap_mj = kNan; },
     [](Case& c) { c.intent.budget.energy_cap_mj = 0; }},
    {"reliability_level is 4", [](Case& c) { c.intent.budget.reliability_level = 4; },
     [](Case& c) { c.intent.budget.reliability_level = 3; }},
    {"nearest legal values are 6 and 8",
     [](Case& c) { c.n = 7, c.intent.epilogue.activation = GEMM_ACTIVATION_SWIGLU; },
     [](Case& c) { c.n = 8; }},
    {"epilogue.bias_precision is 100",
     [](Case& c) { set_raw(c.intent.epilogue.bias_precision, 100); },
     [](Case& c) { c.intent.epilogue.bias_precision = PRECISION_DEFAULT; }},
    {"epilogue.bias_precision is int8",
     [](Case& c) {
       c.intent.epilogue.bias = true, c.intent.epilogue.bias_precision = PRECISION_INT8;
     },
     [](Case& c) { c.intent.epilogue.bias_precision = PRECISION_DEFAULT; }},
    {"residual_row_stride is 7",
     [](Case& c) { c.intent.epilogue.residual = true, c.intent.epilogue.residual_row_stride = 7; },
     [](Case& c) { c.intent.epilogue.residual_row_stride = 8; }},
    {"epilogue.residual is false", [](Case& c) { c.intent.epilogue.residual_row_stride = 8; },
     [](Case& c) { c.intent.epilogue.residual_row_stride = 0; }},
    {"max_relative_error is nan",
     [](Case& c) { c.intent.numerical_contract.max_relative_error = kNan; },
     [](Case& c) { c.intent.numerical_contract.max_relative_error = 0; }},
    {"logical_shape[1]", [](Case& c) { c.intent.layout_a.logical_shape[1] = 5; },
     [](Case& c) { c.intent.layout_a.logical_shape[1] = 4; }},
    {"physical_layout is 5", [](Case& c) { set_raw(c.intent.layout_b.physical_layout, 5); },
     [](Case& c) { c.intent.layout_b.physical_layout = LAYOUT_COL_MAJOR; }},
    {"GEMM_STRIDE_BROADCAST", [](Case& c) { c.intent.layout_c.strides[1] = GEMM_STRIDE_BROADCAST; },
     [](Case& c) { c.intent.layout_c.strides[1] = 0; }},
    {"declare LAYOUT_ANY",
     [](Case& c) {
       c.intent.numerical_contract.input_precision = PRECISION_INT4_AWQ;
       c.intent.layout_b.physical_layout = LAYOUT_COL_MAJOR;
     },
     [](Case& c) { c.intent.layout_b.physical_layout = LAYOUT_ANY; }},
};

base::Result<Problem> resolve_case(const Case& c) { return resolve(c.intent, c.m, c.n, c.k); }

TEST(Resolve, NamesFieldValueAndRuleOfBadInputsAndItsSuggestionPasses) {
  for (const BadInput& bad : kBadInputs) {
    Case c;
    bad.spoil(c);
    const auto refused = resolve_case(c);
    ASSERT_FALSE(refused.ok()) << bad.name;
    EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT) << bad.name;
    EXPECT_THAT(refused.error().message, HasSubstr(bad.name));
    bad.repair(c);
    const auto repaired = resolve_case(c);
    EXPECT_TRUE(repaired.ok()) << bad.name << ": "
                               << (repaired.ok() ? "" : repaired.error().message);
  }
}

TEST(Resolve, AnswersUnsupportedForWhatIsDeclaredButNotBuilt) {
  Case grouped;
  grouped.intent.group_kind = GEMM_GROUP_CONTIGUOUS;
  Case outputs;
  outputs.intent.output_count = 3;
  Case batched_int4;
  batched_int4.intent.numerical_contract.input_precision = PRECISION_INT4;
  batched_int4.intent.batch_count = 2;
  for (const Case& c : {grouped, outputs, batched_int4}) {
    const auto refused = resolve_case(c);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_UNSUPPORTED);
    EXPECT_GT(refused.error().message.size(), 40U) << refused.error().message;
  }
}

TEST(Resolve, RefusesStridesWhoseByteSizesExceed63Bits) {
  Case c;
  c.intent.numerical_contract.input_precision = PRECISION_FP64;
  c.intent.layout_a.strides[1] = int64_t{1} << 60;
  const auto refused = resolve_case(c);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(refused.error().message, HasSubstr("A (1 x 4 x 16 elements)"));
}

TEST(Resolve, TurnsZeroIntoDefaults) {
  const auto problem = resolve_case({});
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->alpha, 1);
  EXPECT_EQ(problem->batch, 1);
  EXPECT_EQ(problem->a.precision, PRECISION_FP32);
  EXPECT_EQ(problem->c.layout.row_stride, 8);
  EXPECT_TRUE(problem->contract.native);
}

TEST(Resolve, StoresOperandsAsTheOperationSays) {
  Case c;
  c.intent.operation = GEMM_OP_TT;
  const auto problem = resolve_case(c);
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->a.layout.rows, 16);
  EXPECT_EQ(problem->a.layout.cols, 4);
  EXPECT_EQ(problem->b.layout.rows, 8);
  EXPECT_EQ(problem->b.layout.cols, 16);
}

TEST(Resolve, HalvesTheColumnsOfCWithSwiglu) {
  Case c;
  c.intent.epilogue.activation = GEMM_ACTIVATION_SWIGLU;
  c.intent.epilogue.residual = true;
  const auto problem = resolve_case(c);
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->output_columns(), 4);
  EXPECT_EQ(problem->c.layout.cols, 4);
  EXPECT_EQ(problem->epilogue.residual_row_stride, 4);
}

TEST(Resolve, AcceptsEmptyProblems) {
  for (const auto& [m, n, k] : {std::tuple{0, 8, 16}, std::tuple{4, 0, 16}, std::tuple{4, 8, 0}}) {
    EXPECT_TRUE(resolve(gemm_intent_t{}, m, n, k).ok());
  }
}

TEST(Resolve, GivesARoleOnlyWhatTheCallerLeftOpen) {
  Case c;
  c.intent.role = GEMM_ROLE_DENSE_PROJECTION;
  c.intent.layout_b.memory_space = MEM_SPACE_L2_CACHE;
  c.intent.layout_a.access_pattern = ACCESS_PATTERN_STREAMING;
  const auto problem = resolve_case(c);
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->b.access, ACCESS_PATTERN_STREAMING);
  EXPECT_EQ(problem->b.space, MEM_SPACE_L2_CACHE);
  EXPECT_EQ(problem->a.access, ACCESS_PATTERN_STREAMING);
  EXPECT_EQ(problem->c.access, ACCESS_PATTERN_DEFAULT);
}

TEST(Resolve, TakesTheEpiloguesFormatsFromTheOutput) {
  Case c;
  c.intent.numerical_contract.input_precision = PRECISION_FP16;
  c.intent.numerical_contract.output_precision = PRECISION_BF16;
  c.intent.epilogue.bias = true;
  c.intent.epilogue.residual = true;
  c.intent.epilogue.residual_precision = PRECISION_FP32;
  const auto problem = resolve_case(c);
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->epilogue.bias_precision, PRECISION_BF16);
  EXPECT_EQ(problem->epilogue.residual_precision, PRECISION_FP32);
}

}  // namespace
}  // namespace deepgemm::intent
