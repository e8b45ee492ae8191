// The proof obligations of tile skipping: for random, structured and adversarial inputs, what a
// tile leaves out stays within the allowance for every element, and the computed result within the
// certificate and the contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "contract/skip_testing.hpp"

namespace deepgemm::contract {
namespace {

void expect_proved(const Setting& s, const ReferenceProblem& p, const std::string& what) {
  const Outcome outcome = run(s, p);
  EXPECT_LE(outcome.worst, 1) << what;
  EXPECT_TRUE(outcome.kept) << what;
  EXPECT_TRUE(outcome.within_limit) << what;
}

// ---- Something is skipped, nothing is skipped
// ------------------------------------------------------

TEST(TileSkips, LeaveOutBlocksOfZeros) {
  for (const Setting& s : {relative(), absolute(0.1)}) {
    ReferenceProblem p = normal_problem(s);
    scale_a(p, s, 2, 0);
    scale_b(p, s, 5, 0);
    const Outcome outcome = run(s, p);
    EXPECT_EQ(outcome.count(), 2);
    EXPECT_TRUE(outcome.skipped[2] && outcome.skipped[5]);
    EXPECT_TRUE(outcome.kept && outcome.within_limit);
  }
}

TEST(TileSkips, LeaveOutTinyBlocksAsFarAsTheProofReaches) {
  for (const Setting& s : {relative(), absolute(0.1)}) {
    ReferenceProblem p = normal_problem(s);
    scale_a(p, s, 1, 1e-8);
    scale_b(p, s, 3, 1e-9);
    scale_a(p, s, 6, 1e-4);
    scale_b(p, s, 6, 1e-4);
    const Outcome outcome = run(s, p);
    EXPECT_EQ(outcome.count(), 3);
    EXPECT_GT(outcome.worst, 0);
    EXPECT_LE(outcome.worst, 1);
    EXPECT_TRUE(outcome.kept && outcome.within_limit);
  }
}

TEST(TileSkips, LeaveOutMostOfAMostlyEmptyProduct) {
  Setting s = relative();
  s.k = 4096;
  ReferenceProblem p = normal_problem(s);
  for (int64_t block = 0; block < s.blocks(); ++block) {
    if (block % 8 != 3) scale_a(p, s, block, block % 2 == 0 ? 0 : 1e-9);
  }
  EXPECT_EQ(run(s, p).count(), 28);
}

TEST(TileSkips, SeeRowsAndColumnsOfVeryDifferentSize) {
  Setting s = relative();
  ReferenceProblem p = normal_problem(s);
  scale_a(p, s, 4, 1e-8);
  for (int64_t k = 0; k < s.k; ++k) {
    for (int64_t i = 0; i < s.m; ++i)
      a_at(p, i, k) *= std::ldexp(1.0, static_cast<int>(10 * i) - 20);
    for (int64_t j = 0; j < s.n; ++j) b_at(p, k, j) *= std::ldexp(1.0, static_cast<int>(j) - 20);
  }
  const Outcome outcome = run(s, p);
  EXPECT_EQ(outcome.count(), 1);
  EXPECT_TRUE(outcome.kept && outcome.within_limit);
}

TEST(TileSkips, ChangeNothingForDenseInputs) {
  for (const double limit : {1e-5, 1e-3, 1e-2}) {
    for (const int64_t block_k : {32, 128, 256}) {
      Setting s = relative(limit);
      s.block_k = block_k;
      for (const InputSet set : {InputSet::kGaussian, InputSet::kUniform, InputSet::kCancellation,
                                 InputSet::kOutlierChannels}) {
        ReferenceProblem p = normal_problem(s);
        generate_inputs(set, 3, PRECISION_FP32, PRECISION_FP32, p);
        EXPECT_EQ(run(s, p).count(), 0) << input_set_name(set);
      }
    }
  }
}

TEST(TileSkips, LeaveOutNothingUnderAStrictContractOrWithoutTolerance) {
  for (Setting s : {relative(0), relative(1e-3)}) {
    if (s.relative > 0) s.tolerance = 0;
    ReferenceProblem p = normal_problem(s);
    scale_a(p, s, 2, 0);
    EXPECT_EQ(run(s, p).count(), 0);
  }
  EXPECT_FALSE(TileSkips().skipped(0));
}

// ---- Adversarial inputs
// ----------------------------------------------------------------------------

TEST(TileSkips, StayWithinTheAllowanceRightAtTheLimit) {
  Setting stretched = absolute(0.1);
  stretched.alpha = 1000;
  for (const Setting& s : {relative(), relative(0.3), absolute(0.1), stretched}) {
    const ReferenceProblem whole = normal_problem(s);
    // The largest factor at which the block is still left out, by bisection.
    double skipped = 0, kept = 1;
    for (int step = 0; step < 40; ++step) {
      const double factor = skipped == 0 ? kept / 8 : std::sqrt(skipped * kept);
      ReferenceProblem p = whole;
      scale_a(p, s, 3, factor);
      (run(s, p).skipped[3] ? skipped : kept) = factor;
    }
    ReferenceProblem p = whole;
    scale_a(p, s, 3, skipped);
    const Outcome outcome = run(s, p);
    EXPECT_TRUE(outcome.skipped[3]);
    EXPECT_LE(outcome.worst, 1);
    EXPECT_GT(outcome.worst, 1e-4) << "the norms give away more than expected";
    EXPECT_TRUE(outcome.kept && outcome.within_limit);
  }
}

TEST(TileSkips, ShareTheAllowanceAmongManyBlocksAtTheLimit) {
  // All blocks but the first equal and as large as one of them may be: together they fill the
  // allowance, never more.
  Setting s = relative(0.2);
  s.m = 2;
  s.n = 3;
  s.k = 8192;
  int64_t skipping = 0;
  for (double factor = 1e-6; factor < 1; factor *= 1.7) {
    ReferenceProblem p = normal_problem(s);
    for (double& value : p.a) value = 1;
    for (double& value : p.b) value = 1;
    for (int64_t block = 1; block < s.blocks(); ++block) scale_b(p, s, block, factor);
    const Outcome outcome = run(s, p);
    EXPECT_LE(outcome.worst, 1) << factor;
    EXPECT_TRUE(outcome.kept && outcome.within_limit) << factor;
    skipping += outcome.count() > 0 ? 1 : 0;
  }
  EXPECT_GT(skipping, 3);
}

TEST(TileSkips, KeepABlockThatOneRowLivesOn) {
  // The block is tiny for all rows but one, whose other blocks are tinier still.
  Setting s = relative();
  ReferenceProblem p = normal_problem(s);
  scale_a(p, s, 3, 1e-12);
  for (int64_t k = 0; k < s.k; ++k) {
    if (k / s.block_k != 3) a_at(p, 2, k) *= 0x1p-80;
  }
  EXPECT_FALSE(run(s, p).skipped[3]);
  expect_proved(s, p, "row");
  // Likewise a column.
  ReferenceProblem q = normal_problem(s);
  scale_b(q, s, 3, 1e-12);
  for (int64_t k = 0; k < s.k; ++k) {
    if (k / s.block_k != 3) b_at(q, k, 17) = 0;
  }
  EXPECT_FALSE(run(s, q).skipped[3]);
  expect_proved(s, q, "column");
}

TEST(TileSkips, KeepABlockWhenLargeValuesNeverMeet) {
  // Large values of A stand where B is zero: only the tiny block makes products.
  const Setting s = relative();
  ReferenceProblem p = normal_problem(s);
  scale_a(p, s, 5, 1e-12);
  for (int64_t k = 0; k < s.k; ++k) {
    if (k / s.block_k == 5) continue;
    for (int64_t i = 0; i < s.m && k % 2 == 0; ++i) a_at(p, i, k) = 0;
    for (int64_t j = 0; j < s.n && k % 2 == 1; ++j) b_at(p, k, j) = 0;
  }
  EXPECT_EQ(run(s, p).count(), 0);
  expect_proved(s, p, "disjoint");
}

TEST(TileSkips, KeepABlockWithOneHugeElement) {
  for (const Setting& s : {relative(), absolute(0.1)}) {
    ReferenceProblem p = normal_problem(s);
    scale_a(p, s, 6, 1e-12);
    a_at(p, 4, 6 * s.block_k + 77) = 0x1p60;
    EXPECT_FALSE(run(s, p).skipped[6]);
    expect_proved(s, p, "huge element of A");
    // Large elsewhere makes room for no more than the rows that it is in.
    ReferenceProblem q = normal_problem(s);
    scale_b(q, s, 6, 1e-3);
    a_at(q, 4, 0) = 0x1p60;
    expect_proved(s, q, "huge element in another block");
  }
}

TEST(TileSkips, HoldWhereSumsCancel) {
  const Setting s = relative();
  ReferenceProblem p = normal_problem(s);
  for (int64_t block = 0; block < s.blocks(); block += 2) {
    if (block + 1 == s.blocks()) break;
    for (int64_t k = block * s.block_k; k < (block + 1) * s.block_k && k + s.block_k < s.k; ++k) {
      for (int64_t i = 0; i < s.m; ++i) a_at(p, i, k + s.block_k) = -a_at(p, i, k);
      for (int64_t j = 0; j < s.n; ++j) b_at(p, k + s.block_k, j) = b_at(p, k, j);
    }
  }
  scale_a(p, s, 7, 1e-7);
  expect_proved(s, p, "cancellation");
  EXPECT_TRUE(run(s, p).skipped[7]);
}

TEST(TileSkips, NeverLeaveOutABlockThatIsNotFinite) {
  for (const double special :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    for (const Setting& s : {relative(), absolute(0.1)}) {
      ReferenceProblem p = normal_problem(s);
      scale_a(p, s, 1, 0);
      scale_a(p, s, 2, 0);
      scale_b(p, s, 4, 1e-12);
      b_at(p, s.block_k + 5, 3) = special;      // meets zeros of A: NaN
      a_at(p, 1, 4 * s.block_k + 9) = special;  // meets tiny values of B
      const Outcome outcome = run(s, p);
      EXPECT_FALSE(outcome.skipped[1]);
      EXPECT_TRUE(outcome.skipped[2]);
      EXPECT_FALSE(outcome.skipped[4]);
      EXPECT_TRUE(outcome.kept);
    }
  }
}

TEST(TileSkips, SurviveZeroRowsAndColumnsAndAllZeros) {
  const Setting s = relative();
  ReferenceProblem p = normal_problem(s);
  scale_a(p, s, 2, 1e-9);
  for (int64_t k = 0; k < s.k; ++k) a_at(p, 3, k) = b_at(p, k, 8) = 0;
  EXPECT_TRUE(run(s, p).skipped[2]);
  expect_proved(s, p, "zero row and column");
  std::ranges::fill(p.a, 0.0);
  EXPECT_EQ(run(s, p).count(), s.blocks());
  expect_proved(s, p, "all zero");
}

// Values beyond FP32: what is left out alone, without a computed result.
void expect_allowed(const Setting& s, const SkipAllowance& allowance, const ReferenceProblem& p) {
  const Norms a = norms_of(
      p.m, p.k, [&](int64_t i, int64_t k) { return p.a[static_cast<size_t>(i * p.k + k)]; });
  const Norms b = norms_of(
      p.n, p.k, [&](int64_t j, int64_t k) { return p.b[static_cast<size_t>(k * p.n + j)]; });
  const TileSkips skips(allowance, p.alpha, p.k, s.block_k, view(a), view(b));
  std::vector<bool> skipped;
  for (int64_t block = 0; block < s.blocks(); ++block) skipped.push_back(skips.skipped(block));
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      EXPECT_LE(share_used(p, s, allowance, skipped, i, j), 1) << i << " " << j;
    }
  }
}

TEST(TileSkips, HoldAtTheEndsOfTheRangeOfDoubles) {
  const Setting s;
  for (const double size : {1e-160, 1e-300, 4e-308, 1e150, 1e300}) {
    for (const SkipAllowance& allowance : {SkipAllowance{1e-3, 0}, SkipAllowance{0, 0.1}}) {
      ReferenceProblem p = normal_problem(s);
      for (double& value : p.a) value *= size;
      for (int64_t i = 0; i < s.m; ++i) a_at(p, i, 300) *= 1e-5;
      expect_allowed(s, allowance, p);
    }
  }
}

TEST(TileSkips, TakeNoUnderflowForZeroOrForRoom) {
  const Setting s;
  // Only the tiny block makes products, and products of its norms underflow, or their quotients.
  for (const auto& [tiny_a, tiny_b] : {std::pair(1e-200, 1e-200), std::pair(5e-324, 1.0)}) {
    ReferenceProblem p = normal_problem(s);
    for (int64_t k = 0; k < s.k; ++k) {
      const bool tiny = k / s.block_k == 5;
      for (int64_t i = 0; i < s.m; ++i) a_at(p, i, k) = tiny ? tiny_a : k % 2 == 0 ? 0 : 1e5;
      for (int64_t j = 0; j < s.n; ++j) b_at(p, k, j) = tiny ? tiny_b : k % 2 == 1 ? 0 : 1e5;
    }
    expect_allowed(s, {1e-3, 0}, p);
  }
  // alpha times the weight of A underflows, their product with B's does not.
  ReferenceProblem p = normal_problem(s);
  p.alpha = 1e-164;
  for (double& value : p.a) value = 1e-164;
  for (double& value : p.b) value = 1e300;
  expect_allowed(s, {0, 1e-30}, p);
}

// ---- Random structure
// --------------------------------------------------------------------------------

// Each block of A and B, row and column gets a magnitude of its own, some zero, some values
// missing.
ReferenceProblem random_structure(Setting& s) {
  std::mt19937_64 engine(s.seed);
  const auto pick = [&engine](int64_t count) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(count));
  };
  s.m = 1 + pick(6);
  s.n = 1 + pick(70);
  s.k = 1 + pick(1500);
  s.block_k = std::array{16, 100, 128, 200, 256, 512}[static_cast<size_t>(pick(6))];
  s.tolerance = static_cast<double>(1 + pick(10)) / 10;
  s.activation = pick(4) == 0 ? GEMM_ACTIVATION_SILU : GEMM_ACTIVATION_NONE;
  s.alpha = std::array{1.0, -0.5, 3.0}[static_cast<size_t>(pick(3))];
  const double limit = std::pow(10.0, -static_cast<double>(pick(4)));
  (pick(3) == 0 ? s.absolute : s.relative) = limit;
  const int64_t spread = 1 + pick(12);
  const double missing = static_cast<double>(pick(5)) / 5;
  ReferenceProblem p = normal_problem(s);
  const auto magnitude = [&] {
    return pick(5) == 0 ? 0.0 : std::pow(10.0, -static_cast<double>(pick(spread)));
  };
  for (int64_t block = 0; block < s.blocks(); ++block) {
    scale_a(p, s, block, magnitude());
    scale_b(p, s, block, pick(3) == 0 ? 1 : magnitude());
  }
  std::uniform_real_distribution<double> uniform;
  for (std::vector<double>* values : {&p.a, &p.b}) {
    for (double& value : *values) {
      if (uniform(engine) < missing * 0.6) value = 0;
    }
  }
  if (pick(3) == 0) {  // one row of another structure
    for (int64_t k = 0; k < s.k; ++k) a_at(p, 0, k) = k / s.block_k == 0 ? 1e-6f : 0;
  }
  return p;
}

TEST(TileSkips, AreProvedForRandomStructure) {
  int64_t skipping = 0, admitted = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Setting s;
    s.seed = seed;
    const ReferenceProblem p = random_structure(s);
    const Outcome outcome = run(s, p);
    EXPECT_LE(outcome.worst, 1) << seed;
    EXPECT_TRUE(outcome.kept) << seed;
    EXPECT_TRUE(outcome.within_limit) << seed;
    admitted += outcome.within_limit ? 1 : 0;
    skipping += outcome.count() > 0 ? 1 : 0;
  }
  EXPECT_GT(admitted, 300);
  EXPECT_GT(skipping, 100);
}

}  // namespace
}  // namespace deepgemm::contract
