#include "runtime/verify.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu_device.hpp"
#include "runtime/report.hpp"

namespace deepgemm::runtime {
namespace {

constexpr int64_t kM = 20, kN = 33, kK = 17, kDamagedRow = 13;

gemm_intent_t intent_of() {
  gemm_intent_t intent = {};
  intent.numerical_contract.input_precision = PRECISION_FP32;
  intent.numerical_contract.error_model = ERROR_MODEL_RELATIVE_EPSILON;
  intent.numerical_contract.max_relative_error = 1e-3;
  intent.device = "cpu";
  return intent;
}

// The same plan with a kernel that clamps negative results: wrong where a result is negative.
std::shared_ptr<const PlanData> damaged(const PlanData& plan) {
  auto broken = std::make_shared<PlanData>();
  broken->report = plan.report;
  broken->device = plan.device;
  intent::Problem clamped = plan.problem();
  clamped.epilogue.activation = GEMM_ACTIVATION_RELU;
  auto executable = make_cpu_executable(clamped, plan.choice());
  EXPECT_TRUE(executable.ok());
  broken->executable = *executable;
  return broken;
}

class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    // Positive everywhere but in one row of A, so that one row of C is negative.
    for (int64_t k = 0; k < kK; ++k) a_[static_cast<size_t>(kDamagedRow * kK + k)] = -1;
    auto plan = get_plan(intent_of(), kM, kN, kK);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    plan_ = std::make_unique<deepgemm_plan>(*plan);
    args_.A = a_.data();
    args_.B = b_.data();
    args_.C = c_.data();
  }

  std::vector<float> a_ = std::vector<float>(kM * kK, 1);
  std::vector<float> b_ = std::vector<float>(kK * kN, 0.5f);
  std::vector<float> c_ = std::vector<float>(kM * kN);
  std::unique_ptr<deepgemm_plan> plan_;
  gemm_launch_args_t args_ = {};
};

TEST_F(VerifyTest, AnHonestKernelKeepsItsContract) {
  const auto result = verify_plan(*plan_, args_, nullptr);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(result->contract_kept);
  EXPECT_TRUE(result->bound_kept);
  EXPECT_EQ(result->elements, kM * kN);
  EXPECT_EQ(result->outside, 0);
  EXPECT_EQ(result->max_absolute_error, 0) << "these sums are exact";
}

TEST_F(VerifyTest, AKernelBrokenInOneRowIsCaughtThere) {
  plan_->slot->put(damaged(plan_->data()));
  const auto result = verify_plan(*plan_, args_, nullptr);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_FALSE(result->contract_kept);
  EXPECT_FALSE(result->bound_kept);
  EXPECT_EQ(result->outside, kN);
  EXPECT_EQ(result->damaged_rows, 1);
  EXPECT_EQ(result->worst_row, kDamagedRow);
  EXPECT_DOUBLE_EQ(result->max_relative_error, 1);
  EXPECT_DOUBLE_EQ(result->max_absolute_error, 0.5 * kK);
  EXPECT_NE(explain_plan(*plan_, DEEPGEMM_EXPLAIN_JSON).find("measured"), std::string::npos);
}

TEST_F(VerifyTest, DamageOutsideTheRowsOfTheLaunchIsNotSeen) {
  plan_->slot->put(damaged(plan_->data()));
  const int64_t rows = kDamagedRow;
  args_.actual_m = &rows;
  const auto result = verify_plan(*plan_, args_, nullptr);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(result->contract_kept);
  EXPECT_EQ(result->elements, rows * kN);
}

TEST_F(VerifyTest, BothLimitsOfAContractBind) {
  gemm_intent_t intent = intent_of();
  intent.numerical_contract.error_model = ERROR_MODEL_DEFAULT;
  intent.numerical_contract.max_relative_error = 10;  // any error here is within it
  intent.numerical_contract.max_absolute_error = 8;   // the damage of 8.5 is not
  auto plan = get_plan(intent, kM, kN, kK);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  plan_->slot->put(damaged(**plan));
  const auto result = verify_plan(*plan_, args_, nullptr);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->outside, kN);
  intent.numerical_contract.max_absolute_error = 9;
  plan = get_plan(intent, kM, kN, kK);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  plan_->slot->put(damaged(**plan));
  EXPECT_EQ(verify_plan(*plan_, args_, nullptr)->outside, 0);
}

}  // namespace
}  // namespace deepgemm::runtime
