#include "contract/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "base/formats.hpp"

namespace deepgemm::contract {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

ReferenceProblem problem_of(int64_t m, int64_t n, int64_t k) {
  ReferenceProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

ReferenceProblem generated(InputSet set, int64_t m, int64_t n, int64_t k, uint64_t seed = 1,
                           gemm_precision_t format = PRECISION_FP32) {
  ReferenceProblem problem = problem_of(m, n, k);
  generate_inputs(set, seed, format, format, problem);
  return problem;
}

TEST(Reference, KeepsWhatPlainDoubleSumsLose) {
  ReferenceProblem problem = problem_of(1, 1, 4);
  problem.a = {1e20, 1, -1e20, 3};
  problem.b = {1, 1, 1, 1};
  const Reference reference = compute_reference(problem);
  EXPECT_EQ(reference.value[0], 4);
  EXPECT_EQ(reference.magnitude[0], 2e20 + 4);
  // Products of 53-bit operands: (1 + 2^-52)^2 - (1 + 2^-51) = 2^-104.
  problem = problem_of(1, 1, 2);
  problem.a = {1 + 0x1p-52, -1};
  problem.b = {1 + 0x1p-52, 1 + 0x1p-51};
  EXPECT_EQ(compute_reference(problem).value[0], 0x1p-104);
}

TEST(Reference, AppliesTheEpilogueInOrder) {
  ReferenceProblem problem = problem_of(1, 2, 1);
  problem.a = {2};
  problem.b = {3, -4};
  problem.alpha = 0.5;
  problem.beta = 2;
  problem.c0 = {1, 1};
  problem.bias = {10, -10};
  problem.residual = {100, -100};
  problem.activation = GEMM_ACTIVATION_RELU;
  const Reference reference = compute_reference(problem);
  EXPECT_EQ(reference.value[0], 3 + 2 + 10 + 100);
  EXPECT_EQ(reference.value[1], 0 - 100);
  EXPECT_EQ(reference.magnitude[1], 4 + 2 + 10 + 100);
}

TEST(Reference, MultipliesGateAndUpForSwiglu) {
  ReferenceProblem problem = problem_of(1, 4, 1);
  problem.a = {1};
  problem.b = {2, 0, 3, -5};
  problem.activation = GEMM_ACTIVATION_SWIGLU;
  problem.residual = {1, 1};
  const Reference reference = compute_reference(problem);
  ASSERT_EQ(reference.value.size(), 2u);
  EXPECT_DOUBLE_EQ(reference.value[0], 2 / (1 + std::exp(-2.0)) * 3 + 1);
  EXPECT_EQ(reference.value[1], 1);
  EXPECT_EQ(reference.magnitude[0], 2 * 3 + 1);
}

TEST(Reference, EvaluatesGeluWithoutCancellation) {
  ReferenceProblem problem = problem_of(1, 1, 1);
  problem.a = {-6};
  problem.b = {1};
  problem.activation = GEMM_ACTIVATION_GELU;
  EXPECT_NEAR(compute_reference(problem).value[0] / -5.9195e-9, 1, 1e-3);
}

TEST(Reference, DoesNotReadCWhenBetaIsZeroNorABWhenAlphaIsZero) {
  ReferenceProblem problem = problem_of(1, 1, 1);
  problem.a = {1};
  problem.b = {2};
  problem.c0 = {kNaN};
  EXPECT_EQ(compute_reference(problem).value[0], 2);
  problem.a = {kNaN};
  problem.c0 = {3};
  problem.alpha = 0;
  problem.beta = 1;
  EXPECT_EQ(compute_reference(problem).value[0], 3);
}

TEST(Reference, FollowsIeeeForInfinityAndNan) {
  ReferenceProblem problem = problem_of(4, 1, 2);
  problem.b = {1, 0};
  problem.a = {kInfinity, 1, -kInfinity, kInfinity, kNaN, 1, 1, kInfinity};
  const Reference reference = compute_reference(problem);
  EXPECT_EQ(reference.value[0], kInfinity);
  EXPECT_TRUE(std::isnan(reference.value[1]));  // infinity * 0
  EXPECT_TRUE(std::isnan(reference.value[2]));
  EXPECT_TRUE(std::isnan(reference.value[3]));
}

TEST(Reference, AgreesWithItselfAcrossColumnTiles) {
  const ReferenceProblem wide = generated(InputSet::kGaussian, 3, 700, 65);
  const Reference reference = compute_reference(wide);
  for (const int64_t column : {0, 255, 256, 511, 699}) {
    ReferenceProblem narrow = problem_of(3, 1, 65);
    narrow.a = wide.a;
    for (int64_t k = 0; k < 65; ++k)
      narrow.b.push_back(wide.b[static_cast<size_t>(k * 700 + column)]);
    const Reference single = compute_reference(narrow);
    for (int64_t row = 0; row < 3; ++row) {
      EXPECT_EQ(single.value[static_cast<size_t>(row)],
                reference.value[static_cast<size_t>(row * 700 + column)]);
    }
  }
}

TEST(Reference, TakesEmptyProblems) {
  EXPECT_TRUE(compute_reference(problem_of(0, 5, 3)).value.empty());
  ReferenceProblem no_k = problem_of(1, 2, 0);
  no_k.bias = {1, 2};
  EXPECT_EQ(compute_reference(no_k).value, (std::vector<double>{1, 2}));
}

Reference reference_of(std::vector<double> value, double magnitude = 1) {
  Reference reference;
  reference.magnitude.assign(value.size(), magnitude);
  reference.value = std::move(value);
  return reference;
}

TEST(Compare, CountsElementsRowsAndTiles) {
  const int64_t rows = 40, columns = 33;
  const Reference reference =
      reference_of(std::vector<double>(static_cast<size_t>(rows * columns), 1));
  std::vector<double> result = reference.value;
  EXPECT_TRUE(compare(result, reference, rows, columns, 0, 0).passed());
  result[5 * 33 + 2] += 0.5;
  result[5 * 33 + 20] += 0.25;
  result[39 * 33 + 32] -= 0.25;
  const Comparison comparison = compare(result, reference, rows, columns, 0.125, 0);
  EXPECT_EQ(comparison.elements, rows * columns);
  EXPECT_EQ(comparison.outside, 3);
  EXPECT_EQ(comparison.damaged_rows, 2);
  EXPECT_EQ(comparison.damaged_tiles, 3);
  EXPECT_EQ(comparison.max_relative, 0.5);
  EXPECT_EQ(comparison.max_absolute, 0.5);
  EXPECT_EQ(comparison.worst_row, 5);
  EXPECT_EQ(comparison.worst_column, 2);
  EXPECT_FALSE(comparison.passed());
  EXPECT_TRUE(compare(result, reference, rows, columns, 0.25, 0.25).passed());
}

TEST(Compare, FindsOneDamagedRowOf4096ThatACosineHides) {
  const int64_t rows = 4096, columns = 32;
  ReferenceProblem problem = generated(InputSet::kGaussian, rows, columns, 16);
  const Reference reference = compute_reference(problem);
  std::vector<double> result = reference.value;
  for (int64_t column = 0; column < columns; ++column) {
    result[static_cast<size_t>(1234 * columns + column)] *= -1;
  }
  const double dot = std::inner_product(result.begin(), result.end(), reference.value.begin(), 0.0);
  const double norm = std::inner_product(result.begin(), result.end(), result.begin(), 0.0);
  EXPECT_GT(dot / norm, 0.999);
  const Comparison comparison = compare(result, reference, rows, columns, 1e-3, 0);
  EXPECT_FALSE(comparison.passed());
  EXPECT_EQ(comparison.damaged_rows, 1);
  EXPECT_EQ(comparison.worst_row, 1234);
}

TEST(Compare, WantsNonfiniteValuesToAgree) {
  const auto passes = [](double result, double value, gemm_precision_t output = PRECISION_FP32) {
    Reference reference = reference_of({value});
    reference.output = output;
    return compare({result}, reference, 1, 1, 0.5, 0).passed();
  };
  EXPECT_TRUE(passes(kNaN, kNaN));
  EXPECT_FALSE(passes(1, kNaN));
  EXPECT_TRUE(passes(kInfinity, kInfinity));
  EXPECT_TRUE(passes(kNaN, kInfinity));
  EXPECT_FALSE(passes(-kInfinity, kInfinity));
  EXPECT_FALSE(passes(1e30, kInfinity));
  EXPECT_FALSE(passes(kInfinity, 1));
  EXPECT_FALSE(passes(kNaN, 1));
  // Beyond the output format.
  EXPECT_TRUE(passes(kInfinity, 70000, PRECISION_FP16));
  EXPECT_FALSE(passes(-kInfinity, 70000, PRECISION_FP16));
  EXPECT_FALSE(passes(kNaN, 70000, PRECISION_FP16));
  EXPECT_FALSE(passes(kInfinity, 60000, PRECISION_FP16));
  EXPECT_TRUE(passes(448, 1000, PRECISION_FP8_E4M3));
  EXPECT_TRUE(passes(448, kInfinity, PRECISION_FP8_E4M3));
  EXPECT_FALSE(passes(-448, 1000, PRECISION_FP8_E4M3));
}

TEST(Compare, PointsAtTheFirstNonfiniteElement) {
  const Reference reference = reference_of({1, 1, 1, 1});
  const Comparison comparison = compare({9, 1, kNaN, kInfinity}, reference, 2, 2, 0, 1);
  EXPECT_EQ(comparison.nonfinite, 2);
  EXPECT_EQ(comparison.outside, 3);
  EXPECT_EQ(comparison.worst_row, 1);
  EXPECT_EQ(comparison.worst_column, 0);
  EXPECT_EQ(comparison.max_absolute, 8);
}

TEST(Compare, TreatsAZeroMagnitudeAsExact) {
  const Reference zero = reference_of({0.0}, 0);
  EXPECT_TRUE(compare({0.0}, zero, 1, 1, 0.1, 0).passed());
  EXPECT_FALSE(compare({1e-300}, zero, 1, 1, 0.1, 0).passed());
  EXPECT_TRUE(compare({1e-300}, zero, 1, 1, 0.1, 1e-299).passed());
}

TEST(KolmogorovSmirnov, AcceptsEqualAndRefusesShiftedSamples) {
  std::mt19937 engine(3);
  std::normal_distribution<double> normal;
  std::vector<double> first(2000), second(2000), shifted(2000);
  for (size_t i = 0; i < first.size(); ++i) {
    first[i] = normal(engine);
    second[i] = normal(engine);
    shifted[i] = normal(engine) + 0.2;
  }
  EXPECT_EQ(kolmogorov_smirnov(first, first).statistic, 0);
  EXPECT_EQ(kolmogorov_smirnov(first, first).p_value, 1);
  EXPECT_GT(kolmogorov_smirnov(first, second).p_value, 0.01);
  EXPECT_LT(kolmogorov_smirnov(first, shifted).p_value, 1e-6);
  EXPECT_EQ(kolmogorov_smirnov({}, first).p_value, 1);
}

TEST(KolmogorovSmirnov, MatchesKnownValues) {
  const KsTest test = kolmogorov_smirnov({1, 2, 3, 4}, {3, 4, 5, 6});
  EXPECT_DOUBLE_EQ(test.statistic, 0.5);
  // Q(1.36) = 0.0505, the usual 5 % point.
  std::vector<double> low(10000), high(10000);
  std::iota(low.begin(), low.end(), 0.0);
  std::iota(high.begin(), high.end(), 191.8);  // D = 0.0192, x = 1.36
  EXPECT_NEAR(kolmogorov_smirnov(low, high).p_value, 0.0505, 0.002);
}

TEST(KolmogorovSmirnov, SeesNan) {
  std::vector<double> values(100);
  std::iota(values.begin(), values.end(), 0.0);
  std::vector<double> damaged = values;
  for (size_t i = 0; i < 50; ++i) damaged[i] = kNaN;
  EXPECT_DOUBLE_EQ(kolmogorov_smirnov(values, damaged).statistic, 0.5);
}

TEST(InputSets, HoldValuesOfTheirFormats) {
  for (const gemm_precision_t format :
       {PRECISION_FP64, PRECISION_FP32, PRECISION_TF32, PRECISION_FP16, PRECISION_BF16,
        PRECISION_FP8_E4M3, PRECISION_FP8_E5M2, PRECISION_INT8}) {
    for (const InputSet set : all_input_sets()) {
      const ReferenceProblem problem = generated(set, 5, 7, 200, 3, format);
      double largest = 0;
      for (const std::vector<double>* values : {&problem.a, &problem.b}) {
        for (const double value : *values) {
          if (std::isnan(value)) continue;
          ASSERT_EQ(value, base::round_to(format, value)) << input_set_name(set);
          largest = std::max(largest, std::abs(value));
        }
      }
      EXPECT_GT(largest, 0) << input_set_name(set);
      const Reference reference = compute_reference(problem);
      int64_t nonfinite = 0;
      for (const double value : reference.value) nonfinite += std::isfinite(value) ? 0 : 1;
      const bool special = set == InputSet::kSpecials && format != PRECISION_INT8;
      EXPECT_EQ(nonfinite > 0, special) << input_set_name(set);
      EXPECT_LT(nonfinite, 35);
    }
  }
}

TEST(InputSets, AreDeterministicBySeed) {
  for (const InputSet set : all_input_sets()) {
    if (set == InputSet::kSpecials) continue;  // NaN differs from itself
    EXPECT_EQ(generated(set, 3, 4, 50, 9).a, generated(set, 3, 4, 50, 9).a);
    EXPECT_NE(generated(set, 3, 4, 50, 9).a, generated(set, 3, 4, 50, 10).a);
  }
}

TEST(InputSets, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const InputSet set : all_input_sets()) names.insert(input_set_name(set));
  EXPECT_EQ(names.size(), 8u);
}

TEST(InputSets, AreWhatTheyAreNamed) {
  for (const double value : compute_reference(generated(InputSet::kExact, 9, 9, 5000)).magnitude) {
    EXPECT_LE(value, 8191);
  }
  const Reference cancelled = compute_reference(generated(InputSet::kCancellation, 9, 9, 500));
  for (size_t i = 0; i < cancelled.value.size(); ++i) {
    EXPECT_LT(std::abs(cancelled.value[i]), 1e-4 * cancelled.magnitude[i]);
  }
  const ReferenceProblem tiny = generated(InputSet::kSubnormal, 4, 4, 10);
  for (int64_t row = 0; row < 4; ++row)
    EXPECT_LT(std::abs(tiny.a[static_cast<size_t>(row * 10)]), 0x1p-126);
  const ReferenceProblem huge = generated(InputSet::kHugeRange, 50, 50, 64);
  const auto [low, high] = std::minmax_element(
      huge.a.begin(), huge.a.end(), [](double x, double y) { return std::abs(x) < std::abs(y); });
  EXPECT_LT(std::abs(*low), 1e-30);
  EXPECT_GT(std::abs(*high), 1e30);
  for (const double value : compute_reference(huge).magnitude) EXPECT_LT(value, 3.4e38);
}

TEST(InputSets, TakeEmptyProblems) {
  for (const InputSet set : all_input_sets()) {
    EXPECT_TRUE(generated(set, 0, 3, 4).a.empty());
    EXPECT_TRUE(generated(set, 2, 3, 0).a.empty());
    EXPECT_EQ(generated(set, 1, 1, 1).a.size(), 1u);
  }
}

}  // namespace
}  // namespace deepgemm::contract
