// deepgemm.hpp: owners that release in every way out, and failures as exceptions.
#include "deepgemm/deepgemm.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support.hpp"

namespace deepgemm::api_test {
namespace {

int64_t live_allocations() {
  deepgemm_pool_stats_t stats = {};
  check(deepgemm_get_pool_stats(&stats));
  return stats.live_allocations;
}

static_assert(!std::is_copy_constructible_v<Plan> && std::is_nothrow_move_constructible_v<Plan>);
static_assert(!std::is_copy_constructible_v<PackedWeights> &&
              std::is_nothrow_move_assignable_v<PackedWeights>);
static_assert(!std::is_copy_constructible_v<ScopedDeepGEMMBuffer> &&
              std::is_nothrow_move_constructible_v<ScopedDeepGEMMBuffer>);
static_assert(std::is_same_v<::ScopedDeepGEMMBuffer, deepgemm::ScopedDeepGEMMBuffer>);

TEST(CppInterface, PlansLaunchExplainAndVerify) {
  constexpr int64_t kM = 4, kN = 6, kK = 8;
  const Plan plan({.operation = GEMM_OP_NN,
                   .numerical_contract = get_llm_contract(),
                   .tiling_policy = TILING_POLICY_CONSERVATIVE,
                   .device = "cpu"},
                  kM, kN, kK);
  ScopedDeepGEMMBuffer a(kM * kK * sizeof(float), "activation");
  ScopedDeepGEMMBuffer b(kK * kN * sizeof(float), "weight");
  ScopedDeepGEMMBuffer c(kM * kN * sizeof(float));
  ASSERT_EQ(a.size<float>(), size_t{kM * kK});
  for (size_t i = 0; i < a.size<float>(); ++i) a.as<float>()[i] = 1;
  for (size_t i = 0; i < b.size<float>(); ++i) b.as<float>()[i] = 2;
  plan.launch(a.data(), b.data(), c.data());
  EXPECT_EQ(c.as<float>()[0], 2 * kK);
  gemm_launch_args_t args = {};
  args.A = a.data();
  args.B = b.data();
  args.C = c.data();
  EXPECT_EQ(plan.try_launch(args), DEEPGEMM_SUCCESS);
  EXPECT_TRUE(plan.verify(args).contract_kept);
  EXPECT_TRUE(plan.info().launchable);
  EXPECT_EQ(plan.workspace_bytes(), plan.info().workspace_bytes);
  EXPECT_NE(plan.explain().find("fp32"), std::string::npos);
  EXPECT_EQ(plan.explain(DEEPGEMM_EXPLAIN_JSON).front(), '{');
}

TEST(CppInterface, FailuresThrowStatusAndSentence) {
  try {
    const Plan plan(fp32_intent(GEMM_OP_NN), -1, 2, 3);
    FAIL() << "a negative M was accepted";
  } catch (const Exception& error) {
    EXPECT_EQ(error.status(), DEEPGEMM_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("M"), std::string::npos) << error.what();
  }
  const Plan empty;
  EXPECT_FALSE(empty);
  EXPECT_THROW(empty.info(), Exception);
  EXPECT_THROW(empty.launch(nullptr, nullptr, nullptr), Exception);
  EXPECT_THROW(PackedWeights().info(), Exception);
  gemm_intent_t strict = fp32_intent(GEMM_OP_NN);
  strict.numerical_contract.max_relative_error = 1e-300;
  EXPECT_FALSE(deepgemm::explain(strict, 4, 4, 4).empty()) << "explaining works without a plan";
}

TEST(CppInterface, MovingHandsOverAndLeavesEmpty) {
  Plan first(fp32_intent(GEMM_OP_NN), 2, 2, 2);
  Plan second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT: the state after a move is what is tested
  EXPECT_TRUE(second);
  first = std::move(second);
  EXPECT_TRUE(first);
  EXPECT_EQ(first.info().launchable, true);

  const int64_t before = live_allocations();
  {
    ScopedDeepGEMMBuffer buffer(100);
    void* const data = buffer.data();
    ScopedDeepGEMMBuffer other(std::move(buffer));
    EXPECT_EQ(other.data(), data);
    EXPECT_EQ(buffer.data(), nullptr);  // NOLINT
    EXPECT_EQ(live_allocations(), before + 1);
  }
  EXPECT_EQ(live_allocations(), before);
}

TEST(CppInterface, BuffersAreFreedWhenAnExceptionPasses) {
  const int64_t before = live_allocations();
  try {
    const ScopedDeepGEMMBuffer buffer(100, "kv_cache");
    throw std::runtime_error("from the middle");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(live_allocations(), before);
  ScopedDeepGEMMBuffer buffer(100);
  void* const released = buffer.release();
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_TRUE(succeeded(deepgemm_free(released)));
}

TEST(CppInterface, PackedWeightsOutliveThePlanTheyWerePackedWith) {
  constexpr int64_t kN = 16, kK = 32;
  const gemm_intent_t intent = {.operation = GEMM_OP_NT,
                                .numerical_contract = {.input_precision = PRECISION_INT4,
                                                       .output_precision = PRECISION_FP32,
                                                       .activation_precision = PRECISION_FP32},
                                .device = "cpu"};
  std::vector<float> weights(kN * kK, 0.5f);
  PackedWeights packed;
  {
    const Plan plan(intent, 1, kN, kK);
    deepgemm_weight_tensors_t tensors = {};
    tensors.precision = PRECISION_FP32;
    tensors.in_features = kK;
    tensors.out_features = kN;
    tensors.weight = weights.data();
    packed = PackedWeights(plan, tensors);
  }
  EXPECT_EQ(packed.info().in_features, kK);
  const Plan plan(intent, 2, kN, kK);
  const std::vector<float> a(2 * kK, 1);
  std::vector<float> c(2 * kN);
  plan.launch(a.data(), packed.get(), c.data());
  EXPECT_NEAR(c[0], 16, 0.1);
}

}  // namespace
}  // namespace deepgemm::api_test
