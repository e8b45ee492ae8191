// Plans from making to explaining: what is decided, told, shared and prepared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/formats.hpp"
#include "support.hpp"

namespace deepgemm::api_test {
namespace {

std::vector<float> floats(int64_t count, uint64_t seed) {
  const auto bytes = random_elements(PRECISION_FP32, count, seed);
  std::vector<float> values(static_cast<size_t>(count));
  if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Plans, InfoTellsTheDecision) {
  const PlanOwner owner(fp32_intent(GEMM_OP_NT), 7, 30, 20);
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
  EXPECT_STREQ(info.device, "cpu");
  EXPECT_STREQ(info.path, "fp32");
  EXPECT_TRUE(info.launchable);
  EXPECT_FALSE(info.packed_b);
  EXPECT_EQ(info.m_bucket, 8);
  EXPECT_GT(info.tiling.block_k, 0);
  EXPECT_GT(info.predicted_us, 0);
  EXPECT_GT(info.bound_relative, 0);
  EXPECT_LT(info.bound_relative, 1e-4);
}

TEST(Plans, TheReportIsTextOrJsonAndCarriesTheMeasuredErrorAfterVerification) {
  constexpr int64_t kM = 7, kN = 30, kK = 20;
  const PlanOwner owner(fp32_intent(GEMM_OP_NT), kM, kN, kK);
  const PlanOwner other(fp32_intent(GEMM_OP_NT), kM, kN, kK);
  const std::string before = explain(owner.plan, DEEPGEMM_EXPLAIN_TEXT);
  EXPECT_NE(before.find("fp32"), std::string::npos);
  const auto json = nlohmann::json::parse(explain(owner.plan, DEEPGEMM_EXPLAIN_JSON));
  EXPECT_EQ(json["run_time"]["launchable"], true);

  const auto a = floats(kM * kK, 1), b = floats(kN * kK, 2);
  std::vector<float> c(kM * kN);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = b.data();
  args.C = c.data();
  expect_verified(owner.plan, args);
  EXPECT_NE(explain(owner.plan, DEEPGEMM_EXPLAIN_TEXT), before);
  EXPECT_EQ(explain(other.plan, DEEPGEMM_EXPLAIN_TEXT), before)
      << "what was measured belongs to one handle, though the plan is shared";
}

TEST(Plans, AnImpossibleContractExplainsItselfThoughNoPlanExists) {
  gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  intent.numerical_contract.error_model = ERROR_MODEL_RELATIVE_EPSILON;
  intent.numerical_contract.max_relative_error = 1e-300;
  gemm_plan_t plan;
  const deepgemm_status_t status = deepgemm_create_plan(&plan, &intent, 4, 4, 4);
  EXPECT_TRUE(failed(status, DEEPGEMM_ERROR_CONTRACT_UNMET, ""));
  EXPECT_EQ(plan.handle, nullptr);
  EXPECT_EQ(deepgemm_check_problem(&intent, 4, 4, 4), DEEPGEMM_ERROR_CONTRACT_UNMET);
  size_t needed = 0;
  EXPECT_EQ(deepgemm_explain_problem(&intent, 4, 4, 4, DEEPGEMM_EXPLAIN_TEXT, nullptr, 0, &needed),
            DEEPGEMM_ERROR_BUFFER_TOO_SMALL);
  std::string text(needed, '\0');
  EXPECT_TRUE(succeeded(deepgemm_explain_problem(&intent, 4, 4, 4, DEEPGEMM_EXPLAIN_TEXT,
                                                 text.data(), text.size(), nullptr)));
}

TEST(Plans, AnImpossibleBudgetNamesTheBestReachable) {
  gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  intent.budget.max_latency_us = 1e-6;
  gemm_plan_t plan;
  const deepgemm_status_t status = deepgemm_create_plan(&plan, &intent, 512, 512, 512);
  EXPECT_TRUE(failed(status, DEEPGEMM_ERROR_BUDGET_INFEASIBLE, "us"));
}

TEST(Plans, CheckProblemAgreesWithPlanningAndLaunching) {
  gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  EXPECT_TRUE(succeeded(deepgemm_check_problem(&intent, 4, 4, 4)));
  EXPECT_EQ(deepgemm_check_problem(&intent, -4, 4, 4), DEEPGEMM_ERROR_INVALID_ARGUMENT);
  intent.device = "h200";
  EXPECT_EQ(deepgemm_check_problem(&intent, 4, 4, 4), DEEPGEMM_ERROR_UNSUPPORTED);
}

TEST(Plans, APlanForAnotherDeviceIsReadableButNotLaunchable) {
  gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  intent.numerical_contract = get_llm_contract();
  intent.device = "h200";
  const PlanOwner owner(intent, 4096, 4096, 4096);
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
  EXPECT_STREQ(info.device, "h200");
  EXPECT_FALSE(info.launchable);
  EXPECT_NE(explain(owner.plan, DEEPGEMM_EXPLAIN_TEXT).find("not launchable"), std::string::npos);
  float value = 0;
  EXPECT_TRUE(failed(deepgemm_launch_plan(&owner.plan, &value, &value, &value),
                     DEEPGEMM_ERROR_UNSUPPORTED, "h200"));
}

TEST(Plans, EmptyProblemsAreLegal) {
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& shape : {Shape{0, 5, 5}, {5, 0, 5}, {5, 5, 0}, {0, 0, 0}}) {
    SCOPED_TRACE(testing::Message() << shape.m << " x " << shape.n << " x " << shape.k);
    const PlanOwner owner(fp32_intent(GEMM_OP_NN), shape.m, shape.n, shape.k);
    const auto a = floats(shape.m * shape.k, 1), b = floats(shape.k * shape.n, 2);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> c(static_cast<size_t>(shape.m * shape.n), nan);
    gemm_launch_args_t args = {};
    args.A = a.empty() ? nullptr : a.data();
    args.B = b.empty() ? nullptr : b.data();
    args.C = c.empty() ? nullptr : c.data();
    EXPECT_TRUE(succeeded(deepgemm_launch_plan_args(&owner.plan, &args)));
    EXPECT_TRUE(std::all_of(c.begin(), c.end(), [](float value) { return value == 0; }));
    expect_verified(owner.plan, args);
  }
}

TEST(Plans, AlphaAndBetaOfTheLaunchReplaceTheIntents) {
  constexpr int64_t kM = 3, kN = 4, kK = 5;
  gemm_intent_t intent = fp32_intent(GEMM_OP_NN);
  intent.alpha = 2;
  intent.beta = 1;
  const PlanOwner owner(intent, kM, kN, kK);
  const auto a = floats(kM * kK, 1), b = floats(kK * kN, 2);
  const std::vector<float> c0 = floats(kM * kN, 3);
  std::vector<float> c = c0;
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = b.data();
  args.C = c.data();
  expect_verified(owner.plan, args);
  const double zero = 0, one = 1, minus = -0.5;
  // alpha = 0, beta = 1: C stays; neither A nor B is read.
  c = c0;
  args.alpha = &zero;
  args.beta = &one;
  args.A = args.B = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_launch_plan_args(&owner.plan, &args)));
  EXPECT_EQ(c, c0);
  // beta = 0: what C holds does not matter.
  args.A = a.data();
  args.B = b.data();
  args.alpha = &minus;
  args.beta = &zero;
  std::fill(c.begin(), c.end(), std::numeric_limits<float>::quiet_NaN());
  expect_verified(owner.plan, args);
}

TEST(Plans, FewerRowsThanPlannedLeaveTheRestAlone) {
  constexpr int64_t kPlanned = 40, kN = 24, kK = 33;
  for (const gemm_operation_t operation : {GEMM_OP_NN, GEMM_OP_NT, GEMM_OP_TN, GEMM_OP_TT}) {
    const PlanOwner owner(fp32_intent(operation), kPlanned, kN, kK);
    const auto a = floats(kPlanned * kK, 1), b = floats(kK * kN, 2);
    std::vector<float> whole(kPlanned * kN);
    ASSERT_TRUE(succeeded(deepgemm_launch_plan(&owner.plan, a.data(), b.data(), whole.data())));
    for (const int64_t rows : {0, 1, 17, 40}) {
      std::vector<float> c(kPlanned * kN, -7);
      gemm_launch_args_t args = {};
      args.A = a.data();
      args.B = b.data();
      args.C = c.data();
      args.actual_m = &rows;
      ASSERT_TRUE(succeeded(deepgemm_launch_plan_args(&owner.plan, &args)));
      const auto end = c.begin() + rows * kN;
      EXPECT_TRUE(std::equal(c.begin(), end, whole.begin())) << "rows " << rows;
      EXPECT_TRUE(std::all_of(end, c.end(), [](float value) { return value == -7; }));
      expect_verified(owner.plan, args);
    }
  }
}

TEST(Plans, EpilogueBatchAndStridesAreVerifiedTogether) {
  constexpr int64_t kM = 9, kN = 26, kK = 31, kBatch = 3;
  for (const gemm_activation_t activation :
       {GEMM_ACTIVATION_NONE, GEMM_ACTIVATION_RELU, GEMM_ACTIVATION_GELU, GEMM_ACTIVATION_GELU_TANH,
        GEMM_ACTIVATION_SILU, GEMM_ACTIVATION_SWIGLU}) {
    SCOPED_TRACE(static_cast<int>(activation));
    const int64_t columns = activation == GEMM_ACTIVATION_SWIGLU ? kN / 2 : kN;
    gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
    intent.batch_count = kBatch;
    intent.beta = 0.5;
    intent.epilogue.activation = activation;
    intent.epilogue.bias = true;
    intent.epilogue.residual = true;
    intent.layout_a.strides[0] = kM * (kK + 3);
    intent.layout_a.strides[1] = kK + 3;
    intent.layout_a.strides[2] = 1;
    intent.layout_b.strides[0] = GEMM_STRIDE_BROADCAST;
    intent.layout_b.strides[1] = kK;
    intent.layout_b.strides[2] = 1;
    const PlanOwner owner(intent, kM, kN, kK);
    const auto a = floats(kBatch * kM * (kK + 3), 1), b = floats(kN * kK, 2);
    const auto bias = floats(kN, 3), residual = floats(kBatch * kM * columns, 4);
    std::vector<float> c = floats(kBatch * kM * columns, 5);
    gemm_launch_args_t args = {};
    args.A = a.data();
    args.B = b.data();
    args.C = c.data();
    args.bias = bias.data();
    args.residual = residual.data();
    expect_verified(owner.plan, args);
  }
}

TEST(Plans, AWorkspaceOfTheCallerGivesTheSameBits) {
  constexpr int64_t kM = 65, kN = 70, kK = 80;
  const PlanOwner owner(fp32_intent(GEMM_OP_NT), kM, kN, kK);
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
  ASSERT_GT(info.workspace_bytes, 0u);
  const auto a = floats(kM * kK, 1), b = floats(kN * kK, 2);
  std::vector<float> own(kM * kN), shared(kM * kN);
  void* workspace = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc_purpose(&workspace, info.workspace_bytes, "workspace")));
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = b.data();
  args.C = own.data();
  args.workspace = workspace;
  args.workspace_bytes = info.workspace_bytes;
  EXPECT_TRUE(succeeded(deepgemm_launch_plan_args(&owner.plan, &args)));
  EXPECT_TRUE(succeeded(deepgemm_launch_plan(&owner.plan, a.data(), b.data(), shared.data())));
  EXPECT_EQ(own, shared);
  EXPECT_TRUE(succeeded(deepgemm_free(workspace)));
}

TEST(Plans, PreparingCountsTheKernelsOfAllRows) {
  const gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  const deepgemm_shape_t shapes[] = {{1024, 256, 256}, {3, 64, 64}};
  deepgemm_prepare_report_t report = {};
  ASSERT_TRUE(succeeded(deepgemm_prepare(&intent, shapes, 2, &report)));
  EXPECT_GE(report.kernels, 1);
  EXPECT_LE(report.kernels, 24) << "two shapes with at most 12 buckets each";
  EXPECT_EQ(report.compiled, 0);
  EXPECT_TRUE(succeeded(deepgemm_prepare(&intent, shapes, 2, nullptr)));
  EXPECT_TRUE(succeeded(deepgemm_prepare(&intent, nullptr, 0, &report)));
  EXPECT_EQ(report.kernels, 0);
}

TEST(Plans, NoRowCountChoosesAKernelThatWasNotPrepared) {
  constexpr int64_t kMaxM = 600, kN = 256, kK = 256;
  const gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  const deepgemm_shape_t shape = {kMaxM, kN, kK};
  deepgemm_prepare_report_t report = {};
  ASSERT_TRUE(succeeded(deepgemm_prepare(&intent, &shape, 1, &report)));
  std::set<std::string> kernels;
  for (int64_t m = 0; m <= kMaxM; ++m) {
    const PlanOwner owner(intent, m, kN, kK);
    deepgemm_plan_info_t info = {};
    ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
    EXPECT_GE(info.m_bucket, m);
    const gemm_tiling_policy_t& t = info.tiling;
    kernels.insert(std::string(info.family) + info.path + std::to_string(t.block_m) + "x" +
                   std::to_string(t.block_n) + "x" + std::to_string(t.block_k));
  }
  EXPECT_EQ(static_cast<int64_t>(kernels.size()), report.kernels);
}

TEST(Plans, TheCurrentDeviceServesIntentsThatNameNone) {
  gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  intent.device = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_set_device("a100")));
  deepgemm_plan_info_t info = {};
  {
    const PlanOwner owner(intent, 64, 64, 64);
    ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
    EXPECT_STREQ(info.device, "a100");
  }
  ASSERT_TRUE(succeeded(deepgemm_set_device(nullptr)));
  const PlanOwner owner(intent, 64, 64, 64);
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
  EXPECT_STREQ(info.device, "cpu");
}

TEST(Plans, StreamsComeFromTheThreadsDefault) {
  int object = 0;
  ASSERT_TRUE(succeeded(deepgemm_set_stream(&object)));
  const PlanOwner owner(fp32_intent(GEMM_OP_NT), 4, 4, 4);
  EXPECT_EQ(owner.plan.stream, &object);
  ASSERT_TRUE(succeeded(deepgemm_set_stream(nullptr)));
}

// ---- Hooks
// ---------------------------------------------------------------------------------------

class Hooks : public testing::Test {
 protected:
  void set(const deepgemm_hooks_t& hooks) { ASSERT_TRUE(succeeded(deepgemm_set_hooks(&hooks))); }
  void TearDown() override { EXPECT_TRUE(succeeded(deepgemm_set_hooks(nullptr))); }

  const gemm_intent_t intent_ = fp32_intent(GEMM_OP_NT);
};

TEST_F(Hooks, RefusingEveryCandidateLeavesNoPlan) {
  deepgemm_hooks_t hooks = {};
  hooks.admit_candidate = [](void*, const deepgemm_candidate_t*) { return false; };
  set(hooks);
  gemm_plan_t plan;
  EXPECT_NE(deepgemm_create_plan(&plan, &intent_, 16, 16, 16), DEEPGEMM_SUCCESS);
  size_t needed = 0;
  EXPECT_EQ(
      deepgemm_explain_problem(&intent_, 16, 16, 16, DEEPGEMM_EXPLAIN_TEXT, nullptr, 0, &needed),
      DEEPGEMM_ERROR_BUFFER_TOO_SMALL);
  std::string text(needed, '\0');
  EXPECT_TRUE(succeeded(deepgemm_explain_problem(&intent_, 16, 16, 16, DEEPGEMM_EXPLAIN_TEXT,
                                                 text.data(), text.size(), nullptr)));
  EXPECT_NE(text.find("refused by caller"), std::string::npos) << text;
}

TEST_F(Hooks, AScoreDecidesAndThePlanIsNotShared) {
  deepgemm_plan_info_t usual = {}, scored = {};
  {
    const PlanOwner owner(intent_, 256, 256, 256);
    ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &usual)));
  }
  // Prefers what the model likes least.
  deepgemm_hooks_t hooks = {};
  hooks.score_candidate = [](void*, const deepgemm_candidate_t* c) { return -c->predicted_us; };
  set(hooks);
  {
    const PlanOwner owner(intent_, 256, 256, 256);
    ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &scored)));
  }
  EXPECT_GT(scored.predicted_us, usual.predicted_us);
  ASSERT_TRUE(succeeded(deepgemm_set_hooks(nullptr)));
  deepgemm_plan_info_t again = {};
  const PlanOwner owner(intent_, 256, 256, 256);
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &again)));
  EXPECT_EQ(again.predicted_us, usual.predicted_us);
}

TEST_F(Hooks, AChosenLayoutIsUsedAndToldBack) {
  constexpr int64_t kM = 20, kN = 40, kK = 50;
  deepgemm_hooks_t hooks = {};
  hooks.choose_layout = [](void*, deepgemm_operand_t operand, int64_t, int64_t,
                           gemm_layout_t* layout) {
    if (operand != GEMM_OPERAND_B) return;
    layout->physical_layout = LAYOUT_BLOCKED_16x16;
    for (int64_t& stride : layout->strides) stride = 0;  // tiles have none
  };
  set(hooks);
  const PlanOwner owner(intent_, kM, kN, kK);
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
  ASSERT_EQ(info.layout_b.physical_layout, LAYOUT_BLOCKED_16x16);
  gemm_layout_t blocked = {};
  blocked.logical_shape[0] = 1;
  blocked.logical_shape[1] = kN;
  blocked.logical_shape[2] = kK;
  gemm_layout_t rows = blocked;
  blocked.physical_layout = LAYOUT_BLOCKED_16x16;
  rows.physical_layout = LAYOUT_ROW_MAJOR;
  const auto a = floats(kM * kK, 1), b = floats(kN * kK, 2);
  void* stored = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc_operand(&stored, &intent_, GEMM_OPERAND_B, kM, kN, kK)));
  ASSERT_TRUE(
      succeeded(deepgemm_convert_layout(stored, &blocked, b.data(), &rows, PRECISION_FP32)));
  std::vector<float> c(kM * kN);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = stored;
  args.C = c.data();
  expect_verified(owner.plan, args);
  EXPECT_TRUE(succeeded(deepgemm_free(stored)));
}

}  // namespace
}  // namespace deepgemm::api_test
