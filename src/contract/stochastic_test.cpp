#include "contract/stochastic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/formats.hpp"
#include "contract/bound.hpp"

namespace deepgemm::contract {
namespace {

constexpr gemm_precision_t kFormats[] = {PRECISION_FP16, PRECISION_BF16, PRECISION_FP8_E4M3,
                                         PRECISION_FP8_E5M2};

// |z| of a normal variable exceeds this with probability 1e-9.
constexpr double kZ = 6.11;

const base::FormatInfo& info(gemm_precision_t format) { return *base::find_format(format); }

double round_at(gemm_precision_t format, double value, const ElementRow& place, int64_t column) {
  round_stochastically(format, place, column, 1, &value);
  return value;
}

bool same_bits(double x, double y) {
  return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
}

// Every value of a format between its smallest and largest, by decoding all codes.
std::vector<double> values_of(gemm_precision_t format) {
  std::vector<double> values;
  const int codes = base::is_fp8(format) ? 256 : 65536;
  for (int code = 0; code < codes; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const auto byte = static_cast<uint8_t>(code);
    const double value =
        codes == 256 ? base::decode(format, &byte, 0) : base::decode(format, &bits, 0);
    if (std::isfinite(value)) values.push_back(value);
  }
  std::ranges::sort(values);
  return values;
}

// A value between two neighbours, found by search in the list of all values.
struct Neighbours {
  double below, above;
};
Neighbours neighbours(const std::vector<double>& values, double x) {
  const auto above = std::ranges::lower_bound(values, x);
  return *above == x ? Neighbours{x, x} : Neighbours{*(above - 1), *above};
}

TEST(Philox, GivesThePublishedAnswers) {
  using Words = std::array<uint32_t, 4>;
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(StochasticRounding, KeepsEveryValueOfTheFormatWithItsSign) {
  for (const gemm_precision_t format : kFormats) {
    int64_t column = 0;
    for (const double value : values_of(format)) {
      EXPECT_TRUE(same_bits(round_at(format, value, {7, 0, 0}, column++), value)) << value;
    }
    EXPECT_TRUE(same_bits(round_at(format, -0.0, {7, 0, 0}, 0), -0.0));
    EXPECT_TRUE(same_bits(round_at(format, 0.0, {7, 0, 0}, 0), 0.0));
  }
}

TEST(StochasticRounding, GivesOneOfTheTwoNeighboursEverywhere) {
  for (const gemm_precision_t format : kFormats) {
    const std::vector<double> values = values_of(format);
    int64_t above = 0, below = 0;
    for (int64_t i = 0; i < 200000; ++i) {
      const size_t at = static_cast<size_t>(i * 7919 % static_cast<int64_t>(values.size() - 1));
      const double share = static_cast<double>(i % 97 + 1) / 98;
      const double x = values[at] + share * (values[at + 1] - values[at]);
      const Neighbours expected = neighbours(values, x);
      const double rounded = round_at(format, x, {11, 0, i}, i % 5);
      ASSERT_TRUE(rounded == expected.below || rounded == expected.above)
          << info(format).name << " " << x << " became " << rounded;
      ++(rounded == expected.above ? above : below);
    }
    EXPECT_GT(above, 80000);
    EXPECT_GT(below, 80000);
  }
}

TEST(StochasticRounding, TreatsTheEndsOfTheRangeAsRoundingToNearestDoes) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const gemm_precision_t format : kFormats) {
    const double largest = info(format).max_finite;
    for (const double x : {largest, std::nextafter(largest, infinity), largest * 1.01,
                           largest * 1.99, largest * 4, 1e300, infinity}) {
      for (int64_t row = 0; row < 20; ++row) {
        EXPECT_EQ(round_at(format, x, {3, 0, row}, 0), base::round_to(format, x)) << x;
        EXPECT_EQ(round_at(format, -x, {3, 0, row}, 0), base::round_to(format, -x)) << x;
      }
    }
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(round_at(format, nan, {3, 0, 0}, 0)));
    const double just_below = std::nextafter(largest, 0);
    EXPECT_LE(round_at(format, just_below, {3, 0, 0}, 0), largest);
  }
}

TEST(StochasticRounding, GivesZeroOrTheSmallestValueBelowThatWithTheSign) {
  for (const gemm_precision_t format : kFormats) {
    const double smallest = info(format).min_subnormal;
    for (const double x : {smallest * 0.5, -smallest * 0.75, smallest * 1e-3, 5e-324}) {
      for (int64_t row = 0; row < 50; ++row) {
        const double rounded = round_at(format, x, {5, 0, row}, 1);
        EXPECT_TRUE(rounded == 0 || std::abs(rounded) == smallest);
        EXPECT_EQ(std::signbit(rounded), std::signbit(x));
      }
    }
  }
}

// How often `x` goes up over 2^20 elements, as a standard normal variable if that is unbiased.
double z_of(gemm_precision_t format, double x, uint64_t seed) {
  constexpr int64_t kRows = 1024, kColumns = 1024;
  const Neighbours around = neighbours(values_of(format), x);
  const double p = (x - around.below) / (around.above - around.below);
  int64_t up = 0;
  std::vector<double> row(kColumns);
  for (int64_t i = 0; i < kRows; ++i) {
    std::ranges::fill(row, x);
    round_stochastically(format, {seed, 0, i}, 0, kColumns, row.data());
    up += std::ranges::count(row, around.above);
  }
  constexpr double kCount = kRows * kColumns;
  return (static_cast<double>(up) - p * kCount) / std::sqrt(kCount * p * (1 - p));
}

// 72 tests at 1e-9 each: a sound generator fails one with probability below 1e-7.
TEST(StochasticRounding, IsUnbiasedOverAMillionElements) {
  for (const gemm_precision_t format : kFormats) {
    const double u = info(format).unit_roundoff;
    const double smallest = info(format).min_subnormal;
    for (const double share : {1.0 / 1024, 0.1, 0.25, 0.5, 0.7, 0.999}) {
      for (const double x : {1 + 2 * u * share, -(3 + 4 * u * share), (5 + share) * smallest}) {
        EXPECT_LT(std::abs(z_of(format, x, 1)), kZ) << info(format).name << " " << x;
      }
    }
  }
}

TEST(StochasticRounding, IsUnbiasedBelowTheSmallestValue) {
  for (const gemm_precision_t format : kFormats) {
    for (const double share : {0.01, 0.5, 0.9}) {
      EXPECT_LT(std::abs(z_of(format, share * info(format).min_subnormal, 2)), kZ) << share;
    }
  }
}

// Means of different values over one large sample: sum of errors against its variance.
TEST(StochasticRounding, IsUnbiasedOverDifferentValues) {
  for (const gemm_precision_t format : kFormats) {
    const double ulp = 2 * info(format).unit_roundoff;
    double error = 0, variance = 0;
    for (int64_t i = 0; i < 1 << 20; ++i) {
      const double share = static_cast<double>(i * 40503 % 65537) / 65537;
      const double x = 1 + share * ulp;
      error += round_at(format, x, {9, 1, i / 1024}, i % 1024) - x;
      variance += share * (1 - share) * ulp * ulp;
    }
    EXPECT_LT(std::abs(error), kZ * std::sqrt(variance));
  }
}

TEST(StochasticRounding, NeighbouringElementsAreIndependent) {
  // x = 1 + u goes up half of the time; the products of signs of two elements average to zero.
  const double x = 1 + info(PRECISION_BF16).unit_roundoff;
  const auto sign = [x](int64_t batch, int64_t row, int64_t column) {
    return round_at(PRECISION_BF16, x, {1, batch, row}, column) > x ? 1 : -1;
  };
  int64_t columns = 0, rows = 0, batches = 0;
  constexpr int64_t kSide = 512;
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      const int here = sign(0, i, j);
      columns += here * sign(0, i, j + 1);
      rows += here * sign(0, i + 1, j);
      batches += here * sign(1, i, j);
    }
  }
  for (const int64_t sum : {columns, rows, batches}) {
    EXPECT_LT(std::abs(static_cast<double>(sum)), kZ * kSide);
  }
}

TEST(StochasticRounding, DependsOnSeedBatchRowAndColumnAlone) {
  constexpr int64_t kCount = 300;
  std::vector<double> input(kCount);
  for (int64_t j = 0; j < kCount; ++j)
    input[static_cast<size_t>(j)] = std::sin(1.0 + static_cast<double>(j));
  const auto rounded = [&](const ElementRow& place, int64_t piece) {
    std::vector<double> values = input;
    for (int64_t j = 0; j < kCount; j += piece) {
      round_stochastically(PRECISION_BF16, place, j, std::min(piece, kCount - j),
                           values.data() + j);
    }
    return values;
  };
  const std::vector<double> whole = rounded({42, 0, 3}, kCount);
  for (const int64_t piece : {1, 2, 7, 32, 255}) EXPECT_EQ(rounded({42, 0, 3}, piece), whole);
  EXPECT_NE(rounded({43, 0, 3}, kCount), whole);
  EXPECT_NE(rounded({42 + (uint64_t{1} << 40), 0, 3}, kCount), whole);
  EXPECT_NE(rounded({42, 1, 3}, kCount), whole);
  EXPECT_NE(rounded({42, 0, 4}, kCount), whole);
  EXPECT_NE(rounded({42, 0, 3 + (int64_t{1} << 33)}, kCount), whole);
}

TEST(StochasticRounding, IsAskedForBySeedAndReliability) {
  Contract contract;
  contract.output = PRECISION_BF16;
  EXPECT_EQ(output_rounding(contract, 3), OutputRounding::kNearest);
  contract.seed = 1;
  EXPECT_EQ(output_rounding(contract, 1), OutputRounding::kUnreliable);
  EXPECT_EQ(output_rounding(contract, 2), OutputRounding::kStochastic);
  for (const gemm_precision_t format : kFormats) {
    contract.output = format;
    EXPECT_EQ(output_rounding(contract, 3), OutputRounding::kStochastic);
  }
  contract.reproducibility = REPRODUCIBILITY_RUN_TO_RUN;
  EXPECT_EQ(output_rounding(contract, 2), OutputRounding::kStochastic);
  contract.reproducibility = REPRODUCIBILITY_BATCH_INVARIANT;
  EXPECT_EQ(output_rounding(contract, 2), OutputRounding::kDependsOnRow);
  for (const gemm_precision_t format : {PRECISION_FP32, PRECISION_FP64}) {
    contract.output = format;
    EXPECT_EQ(output_rounding(contract, 2), OutputRounding::kWideOutput);
  }
}

TEST(StochasticRounding, CountsTwiceInTheBound) {
  for (const gemm_precision_t format : kFormats) {
    BoundInput input;
    input.path = PathId::kFp64;
    input.k = 8;
    input.a = input.b = PRECISION_FP64;
    input.accumulation.bits = 53;
    input.output = format;
    const ErrorBound nearest = error_bound(input);
    input.stochastic_output = true;
    const ErrorBound stochastic = error_bound(input);
    const double u = info(format).unit_roundoff;
    EXPECT_NEAR(nearest.relative, u, 1e-12);
    EXPECT_NEAR(stochastic.relative, 2 * u, 1e-12);
    EXPECT_NEAR(stochastic.absolute, info(format).min_subnormal, 1e-6 * info(format).min_subnormal);
    EXPECT_FALSE(nearest.stochastic_output);
    EXPECT_TRUE(stochastic.stochastic_output);
  }
}

}  // namespace
}  // namespace deepgemm::contract
