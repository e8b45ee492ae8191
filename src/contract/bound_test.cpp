// Bounds against the measured errors of emulated paths, on random and on adversarial inputs.
#include "contract/bound.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/formats.hpp"
#include "contract/sums_testing.hpp"
#include "contract/verify.hpp"

namespace deepgemm::contract {
namespace {

using testing::HasSubstr;

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

struct Case {
  const char* name;
  PathId path;
  gemm_precision_t a;
  gemm_precision_t b;
  gemm_precision_t output;
  Accumulation sum;
};

Accumulation sums(int bits, bool truncates, int64_t step, int64_t chain = 0, int promoted = 24,
                  int64_t splits = 1) {
  Accumulation sum;
  sum.bits = bits;
  sum.truncates = truncates;
  sum.step = step;
  sum.chain = chain;
  sum.promoted_bits = promoted;
  sum.splits = splits;
  return sum;
}

Accumulation aligned(Accumulation sum, int bits) {
  sum.aligned_bits = bits;
  return sum;
}

Accumulation rounding_products(Accumulation sum) {
  sum.product_rounds = true;
  return sum;
}

Accumulation rounding_weights(Accumulation sum) {
  sum.dequant_rounds = true;
  return sum;
}

const std::vector<Case>& cases() {
  constexpr auto k64 = PRECISION_FP64;
  constexpr auto k32 = PRECISION_FP32;
  constexpr auto kH = PRECISION_FP16;
  constexpr auto kB = PRECISION_BF16;
  constexpr auto k8 = PRECISION_FP8_E4M3;
  static const std::vector<Case> list = {
      {"fp64", PathId::kFp64, k64, k64, k64, sums(53, false, 1)},
      {"fp64_to_fp32", PathId::kFp32, k64, k64, k32, sums(24, false, 1)},
      {"fp32_acc64", PathId::kFp32Acc64, k32, k32, k32, sums(53, false, 1)},
      {"fp32", PathId::kFp32, k32, k32, k32, sums(24, false, 1)},
      {"fp32_no_fma", PathId::kFp32, k32, k32, k32, rounding_products(sums(24, false, 1))},
      {"fp32_blocked", PathId::kFp32, k32, k32, kH, sums(24, false, 1, 256, 53)},
      {"fp32_split_k", PathId::kFp32, k32, k32, kB, sums(24, false, 1, 64, 24, 3)},
      {"3xtf32", PathId::kTf32x3, k32, k32, k32, sums(24, true, 8)},
      {"tf32_2xbf16", PathId::kTf32Bf16, k32, k32, k32, sums(24, true, 8)},
      {"3xbf16", PathId::kBf16x3, k32, k32, k32, sums(24, false, 1, 32)},
      {"tf32", PathId::kTf32, k32, k32, k32, sums(24, true, 8)},
      {"tf32_aligned", PathId::kTf32, k32, k32, k32, aligned(sums(24, true, 8), 26)},
      {"fp16", PathId::kFp16, kH, kH, kH, sums(24, true, 16)},
      {"bf16", PathId::kBf16, kB, kB, kB, sums(24, true, 16)},
      {"bf16_from_fp32", PathId::kBf16, k32, k32, k32, sums(24, false, 2)},
      {"fp8", PathId::kFp8, k8, k8, kB, sums(14, true, 32)},
      {"fp8_promoted", PathId::kFp8, k8, PRECISION_FP8_E5M2, k32, sums(14, true, 32, 128)},
      {"w4a16", PathId::kW4A16, kH, PRECISION_INT4, kH, sums(24, false, 1)},
      {"w4a16_rounded", PathId::kW4A16, kB, PRECISION_INT4, k32,
       rounding_weights(sums(24, true, 16))},
  };
  return list;
}

BoundInput bound_input(const Case& c, const ReferenceProblem& problem, double confidence) {
  BoundInput input;
  input.path = c.path;
  input.k = problem.k;
  input.a = c.a;
  input.b = c.b;
  input.output = c.output;
  input.accumulation = c.sum;
  input.confidence = confidence;
  input.max_abs_a = largest(problem.a);
  input.max_abs_b = largest(problem.b);
  input.alpha = problem.alpha;
  return input;
}

ReferenceProblem inputs(const Case& c, InputSet set, int64_t k, uint64_t seed) {
  ReferenceProblem problem;
  problem.m = 3;
  problem.n = 4;
  problem.k = k;
  problem.output = c.output;
  generate_inputs(set, seed, c.a, c.b, problem);
  if (base::is_int4(c.b)) {
    // Dequantised weights: a code times an FP16 scale of its column.
    for (size_t i = 0; i < problem.b.size(); ++i) {
      problem.b[i] *= base::round_to(PRECISION_FP16, 0.01 + 0.001 * static_cast<double>(i % 4));
    }
  }
  return problem;
}

void expect_bounded(const Case& c, const ReferenceProblem& problem, double confidence,
                    const std::string& what) {
  const BoundInput input = bound_input(c, problem, confidence);
  const ErrorBound bound = error_bound(input);
  ASSERT_TRUE(std::isfinite(bound.relative)) << what;
  const Comparison comparison = compare(emulate(problem, input), compute_reference(problem),
                                        problem.m, problem.n, bound.relative, bound.absolute);
  EXPECT_TRUE(comparison.passed())
      << what << ": measured " << comparison.max_relative << " (absolute "
      << comparison.max_absolute << "), bound " << bound.relative << " + " << bound.absolute
      << ", outside " << comparison.outside << ", not finite " << comparison.nonfinite;
}

TEST(WorstCaseBound, HoldsForEveryPathOnEveryInputSet) {
  for (const Case& c : cases()) {
    for (const InputSet set : all_input_sets()) {
      if (set == InputSet::kSpecials) continue;
      // Values beyond FP32: admit() refuses such a path unless the declared magnitudes fit.
      if (set == InputSet::kHugeRange && c.path == PathId::kFp32 && c.a == PRECISION_FP64) continue;
      for (const int64_t k : {1, 7, 130, 1100}) {
        ReferenceProblem problem = inputs(c, set, k, 100 + static_cast<uint64_t>(k));
        problem.alpha = k == 130 ? 0.3 : 1;
        expect_bounded(c, problem, 0,
                       fmt::format("{} on {} with K {}", c.name, input_set_name(set), k));
      }
    }
  }
}

TEST(ProbabilisticBound, HoldsOnRandomInputs) {
  for (const Case& c : cases()) {
    for (const InputSet set : {InputSet::kGaussian, InputSet::kUniform, InputSet::kCancellation}) {
      for (const int64_t k : {16, 600, 4096}) {
        expect_bounded(c, inputs(c, set, k, 7), 1 - 1e-9,
                       fmt::format("{} on {} with K {}", c.name, input_set_name(set), k));
      }
    }
  }
}

TEST(ProbabilisticBound, IsNeverAboveTheWorstCase) {
  for (const Case& c : cases()) {
    for (const int64_t k : {0, 1, 5, 64, 4096, 1 << 20}) {
      BoundInput input = bound_input(c, {}, 0);
      input.k = k;
      const ErrorBound worst = error_bound(input);
      input.confidence = 1 - 1e-9;
      const ErrorBound likely = error_bound(input);
      EXPECT_LE(likely.relative, worst.relative) << c.name << " K " << k;
      EXPECT_EQ(worst.basis, BOUND_BASIS_WORST_CASE);
      EXPECT_EQ(worst.confidence, 1);
      if (likely.relative < worst.relative) {
        EXPECT_EQ(likely.basis, BOUND_BASIS_PROBABILISTIC);
        EXPECT_EQ(likely.confidence, input.confidence);
        EXPECT_FALSE(likely.conditions.empty());
      }
    }
  }
}

// Each problem drives one kind of error near its bound: a bound may be careful, not absurd.
double measured_share(const Case& c, const ReferenceProblem& problem) {
  const BoundInput input = bound_input(c, problem, 0);
  const ErrorBound bound = error_bound(input);
  const Comparison comparison = compare(emulate(problem, input), compute_reference(problem),
                                        problem.m, problem.n, bound.relative, bound.absolute);
  EXPECT_TRUE(comparison.passed()) << c.name;
  return comparison.max_relative / bound.relative;
}

ReferenceProblem constant(int64_t k, double a, double b) {
  ReferenceProblem problem;
  problem.m = problem.n = 1;
  problem.k = k;
  problem.a.assign(static_cast<size_t>(k), a);
  problem.b.assign(static_cast<size_t>(k), b);
  return problem;
}

TEST(WorstCaseBound, IsNearlyReachedByTruncatedPositiveSums) {
  const Case fp16{"fp16",         PathId::kFp16,  PRECISION_FP16,
                  PRECISION_FP16, PRECISION_FP32, sums(24, true, 16)};
  ReferenceProblem problem = inputs(fp16, InputSet::kUniform, 16384, 1);
  for (std::vector<double>* values : {&problem.a, &problem.b}) {
    for (double& value : *values) value = std::abs(value);
  }
  EXPECT_GT(measured_share(fp16, problem), 0.1);
}

TEST(WorstCaseBound, IsNearlyReachedByOperandRoundings) {
  const Case tf32{"tf32",         PathId::kTf32,  PRECISION_FP32,
                  PRECISION_FP32, PRECISION_FP32, sums(24, true, 8)};
  EXPECT_GT(measured_share(tf32, constant(64, 1 + 0x1p-11, 1 + 0x1p-11)), 0.5);
}

// From 8192 on each addition loses just less than half a unit.
TEST(WorstCaseBound, IsNearlyReachedByNearestSumsWithABias) {
  const Case fp32{"fp32",         PathId::kFp32,  PRECISION_FP32,
                  PRECISION_FP32, PRECISION_FP32, sums(24, false, 1)};
  EXPECT_GT(measured_share(fp32, constant(16384, 1 + 0x1p-11 - 0x1p-23, 1)), 0.1);
}

// The case of Hopper's FP8 sums: one large product, then many that lie below the last bit kept.
ReferenceProblem large_then_tiny(int64_t k) {
  ReferenceProblem problem = constant(k, 4.375, 4.5);  // 19.7 < 448 * 448 * 2^-13
  problem.a[0] = problem.b[0] = 448;
  return problem;
}

TEST(WorstCaseBound, CoversFp8SumsThatLoseSmallProducts) {
  const auto fp8 = [](int64_t chain) {
    return Case{"fp8",
                PathId::kFp8,
                PRECISION_FP8_E4M3,
                PRECISION_FP8_E4M3,
                PRECISION_FP32,
                sums(14, true, 32, chain)};
  };
  const ReferenceProblem problem = large_then_tiny(16384);
  EXPECT_GT(measured_share(fp8(0), problem), 0.1);
  EXPECT_GT(measured_share(fp8(128), problem), 1e-3);
  const double alone = error_bound(bound_input(fp8(0), problem, 0)).relative;
  const double promoted = error_bound(bound_input(fp8(128), problem, 0)).relative;
  EXPECT_GT(alone, 1);  // says nothing any more
  EXPECT_LT(promoted, 0.02);
}

TEST(ProbabilisticBound, KeepsTruncationLinear) {
  BoundInput input;
  input.path = PathId::kFp16;
  input.a = input.b = PRECISION_FP16;
  input.k = 8192;
  input.accumulation = sums(24, true, 16);
  input.confidence = 0.99;
  EXPECT_GE(error_bound(input).relative, 8192 / 16 * 0x1p-23);
}

TEST(ProbabilisticBound, MayBeMissedByEqualOperandsAsTheConditionSays) {
  // All roundings of a constant matrix are the same: the worst case holds, the law does not.
  const Case tf32{"tf32",         PathId::kTf32,  PRECISION_FP32,
                  PRECISION_FP32, PRECISION_FP32, sums(24, true, 8)};
  const ReferenceProblem problem = constant(16384, 1 + 0x1p-11, 1 + 0x1p-11);
  const BoundInput input = bound_input(tf32, problem, 1 - 1e-9);
  const ErrorBound bound = error_bound(input);
  const Comparison comparison = compare(emulate(problem, input), compute_reference(problem), 1, 1,
                                        bound.relative, bound.absolute);
  EXPECT_FALSE(comparison.passed());
  EXPECT_THAT(bound.conditions, testing::Contains(HasSubstr("independent")));
  expect_bounded(tf32, problem, 0, "constant");
}

TEST(ErrorBound, IsExactForIntegerSumsUntilInt32Overflows) {
  BoundInput input;
  input.path = PathId::kInt8;
  input.a = input.b = PRECISION_INT8;
  input.k = 1000;
  input.accumulation.chain = 0;
  ErrorBound bound = error_bound(input);
  EXPECT_EQ(bound.sum_bits, 0);
  EXPECT_TRUE(bound.operands_exact);
  EXPECT_LT(bound.relative, 4 * 0x1p-24);
  input.k = 131071;
  EXPECT_TRUE(std::isfinite(error_bound(input).relative));
  input.k = 131072;
  bound = error_bound(input);
  EXPECT_TRUE(std::isinf(bound.relative));
  EXPECT_THAT(bound.terms.front().what, HasSubstr("INT32"));
  input.accumulation.chain = 65536;
  EXPECT_TRUE(std::isfinite(error_bound(input).relative));
}

TEST(ErrorBound, IsInfiniteForStorageThatThePathCannotRead) {
  BoundInput input;
  input.path = PathId::kInt8;
  input.k = 8;
  EXPECT_TRUE(std::isinf(error_bound(input).relative));
}

TEST(ErrorBound, HasTermsThatMakeUpTheTotal) {
  for (const Case& c : cases()) {
    const ReferenceProblem problem = inputs(c, InputSet::kGaussian, 256, 1);
    const ErrorBound bound = error_bound(bound_input(c, problem, 0));
    double product = 1;
    for (const BoundTerm& term : bound.terms) product *= 1 + term.relative;
    EXPECT_NEAR(product - 1, bound.relative, 1e-12 + 1e-6 * bound.relative) << c.name;
  }
}

TEST(ErrorBound, GrowsWithScalesBetaBiasAndResidual) {
  BoundInput input;
  input.k = 64;
  double before = error_bound(input).relative;
  for (bool BoundInput::*field :
       {&BoundInput::scales, &BoundInput::beta, &BoundInput::bias, &BoundInput::residual}) {
    input.*field = true;
    const double after = error_bound(input).relative;
    EXPECT_GT(after, before);
    before = after;
  }
}

// Errors of v as large as the bound allows, through the activation, stay within the whole bound.
TEST(ErrorBound, CarriesErrorsThroughActivations) {
  const std::pair<gemm_activation_t, double (*)(double)> activations[] = {
      {GEMM_ACTIVATION_RELU, [](double x) { return std::max(x, 0.0); }},
      {GEMM_ACTIVATION_GELU, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {GEMM_ACTIVATION_GELU_TANH,
       [](double x) {
         return 0.5 * x *
                (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
       }},
      {GEMM_ACTIVATION_SILU, [](double x) { return x / (1 + std::exp(-x)); }},
  };
  BoundInput input;
  input.path = PathId::kBf16;
  input.a = input.b = PRECISION_FP32;
  input.k = 1;
  const double before = error_bound(input).relative;
  for (const auto& [activation, function] : activations) {
    input.activation = activation;
    const ErrorBound after = error_bound(input);
    double steepest = 0;
    for (double x = -8; x <= 8; x += 1e-3) {
      const double error = std::abs(function(x * (1 + before)) - function(x));
      EXPECT_LE(error, (after.relative + 1e-14) * std::abs(x) + after.absolute);
      steepest = std::max(steepest, std::abs(function(x + 1e-5) - function(x - 1e-5)) / 2e-5);
    }
    EXPECT_NEAR(steepest, activation_slope(activation), 1e-4);
    EXPECT_LE(steepest, activation_slope(activation) + 1e-8);
  }
}

TEST(ErrorBound, CoversBothFactorsOfSwiglu) {
  BoundInput input;
  input.path = PathId::kBf16;
  input.a = input.b = PRECISION_FP32;
  input.k = 1;
  const double before = error_bound(input).relative;
  input.activation = GEMM_ACTIVATION_SWIGLU;
  const ErrorBound after = error_bound(input);
  EXPECT_LT(after.relative, 2.5 * before);
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  for (double gate = -6; gate <= 6; gate += 0.01) {
    for (const double sign : {-1.0, 1.0}) {
      const double up = 3;
      const double moved = silu(gate * (1 + sign * before)) * up * (1 + before);
      EXPECT_LE(std::abs(moved - silu(gate) * up), after.relative * std::abs(gate) * up);
    }
  }
}

}  // namespace
}  // namespace deepgemm::contract
