#include <gtest/gtest.h>

#include "contract/skip_testing.hpp"

namespace deepgemm::contract {
namespace {

TEST(SkipAllowance, TakesItsShareAndNoMoreThanThePathLeaves) {
  const auto grown = [](Setting s) {
    BoundInput input = bound_input(s);
    const ErrorBound before = error_bound(input);
    const SkipAllowance allowance = skip_allowance(contract_of(s), input, before);
    input.skip_relative = allowance.relative;
    input.skip_absolute = allowance.absolute;
    const ErrorBound after = error_bound(input);
    EXPECT_TRUE(admit(contract_of(s), path_info(input.path), after, s.k).ok());
    return s.relative > 0 ? after.relative - before.relative : after.absolute - before.absolute;
  };
  for (const gemm_activation_t activation :
       {GEMM_ACTIVATION_NONE, GEMM_ACTIVATION_GELU, GEMM_ACTIVATION_SWIGLU}) {
    Setting s = relative(0.01);
    s.activation = activation;
    EXPECT_LE(grown(s), 0.005);
    EXPECT_GT(grown(s), 0.0045);
    s.tolerance = 1;  // all that the path leaves
    EXPECT_LE(grown(s), 0.01 - error_bound(bound_input(s)).relative);
    EXPECT_GT(grown(s), 0.0095);
  }
  Setting s = absolute(0.01);
  s.activation = GEMM_ACTIVATION_SILU;
  EXPECT_LE(grown(s), 0.005);
  EXPECT_GT(grown(s), 0.0049);
}

TEST(SkipAllowance, KeepsBothLimitsWhereTwoAreGiven) {
  Setting s = relative(0.01);
  s.absolute = 0.001;
  s.tolerance = 1;
  BoundInput input = bound_input(s);
  const SkipAllowance allowance = skip_allowance(contract_of(s), input, error_bound(input));
  EXPECT_GT(allowance.relative, 0.0008);
  EXPECT_EQ(allowance.absolute, 0);
  input.skip_relative = allowance.relative;
  EXPECT_TRUE(admit(contract_of(s), path_info(input.path), error_bound(input), s.k).ok());
}

TEST(SkipAllowance, IsNothingWhereTheRuleSaysNo) {
  const auto rule = [](Setting s, gemm_reproducibility_t clause) {
    Contract contract = contract_of(s);
    contract.reproducibility = clause;
    const BoundInput input = bound_input(s);
    EXPECT_EQ(skip_allowance(contract, input, error_bound(input)).any(),
              skip_rule(contract, s.activation) == SkipRule::kAllowed);
    return skip_rule(contract, s.activation);
  };
  Setting s = relative();
  EXPECT_EQ(rule(s, REPRODUCIBILITY_NONE), SkipRule::kAllowed);
  EXPECT_EQ(rule(s, REPRODUCIBILITY_RUN_TO_RUN), SkipRule::kAllowed);
  EXPECT_EQ(rule(s, REPRODUCIBILITY_BATCH_INVARIANT), SkipRule::kBatchInvariant);
  s.tolerance = 0;
  EXPECT_EQ(rule(s, REPRODUCIBILITY_NONE), SkipRule::kOff);
  EXPECT_EQ(rule(relative(0), REPRODUCIBILITY_NONE), SkipRule::kStrict);
  Setting swiglu = absolute(0.1);
  swiglu.activation = GEMM_ACTIVATION_SWIGLU;
  EXPECT_EQ(rule(swiglu, REPRODUCIBILITY_NONE), SkipRule::kSwigluAbsolute);
}

TEST(SkipAllowance, IsNothingWhereThePathLeavesNoRoom) {
  Setting s = relative();
  const BoundInput input = bound_input(s);
  const ErrorBound bound = error_bound(input);
  s.relative = bound.relative;
  EXPECT_FALSE(skip_allowance(contract_of(s), input, bound).any());
}

}  // namespace
}  // namespace deepgemm::contract
