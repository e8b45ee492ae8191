// Stochastic rounding in the epilogue.
#include "backend/cpu/epilogue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/formats.hpp"
#include "contract/stochastic.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int64_t kRows = 9, kColumns = 70;

intent::Problem problem_of(const std::string& format, const std::string& seed) {
  const auto spec = intent::parse_line("nn m=9 n=70 k=4 batch=2 a=fp32 c=" + format +
                                       " reliability=2 seed=" + seed);
  EXPECT_TRUE(spec.ok());
  const auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
  EXPECT_TRUE(problem.ok());
  return *problem;
}

double sum_at(int64_t batch, int64_t row, int64_t column) {
  return std::sin(static_cast<double>(1 + batch + 2 * row + 31 * column)) * 3;
}

// C after all rows were finished in tiles of `width` columns, last rows first if `backwards`.
std::vector<uint8_t> finished(const intent::Problem& problem, bool stochastic, int64_t width,
                              bool backwards, int64_t rows = kRows) {
  std::vector<uint8_t> c(
      static_cast<size_t>(base::storage_bytes(problem.c.precision, 2 * kRows * kColumns)));
  Operands operands;
  operands.c = c.data();
  operands.m = rows;
  Epilogue epilogue(problem, operands, kGenericKernels.f64);
  if (stochastic) epilogue.round_stochastically();
  std::vector<double> sums(kColumns), scratch(kColumns);
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = backwards ? rows - 1 - i : i;
      for (int64_t column = 0; column < kColumns; column += width) {
        const int64_t columns = std::min(width, kColumns - column);
        for (int64_t j = 0; j < columns; ++j) {
          sums[static_cast<size_t>(j)] = sum_at(batch, row, column + j);
        }
        epilogue.finish_row(batch, row, {column, columns, 0}, sums.data(), scratch.data());
      }
    }
  }
  return c;
}

TEST(StochasticEpilogue, RoundsByTheRuleOfTheContract) {
  for (const char* format : {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2"}) {
    const intent::Problem problem = problem_of(format, "5");
    const std::vector<uint8_t> c = finished(problem, true, kColumns, false);
    int64_t differs = 0;
    for (int64_t batch = 0; batch < 2; ++batch) {
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t column = 0; column < kColumns; ++column) {
          double expected = sum_at(batch, row, column);
          const double nearest = base::round_to(problem.c.precision, expected);
          contract::round_stochastically(problem.c.precision, {5, batch, row}, column, 1,
                                         &expected);
          EXPECT_EQ(base::decode(problem.c.precision, c.data(),
                                 (batch * kRows + row) * kColumns + column),
                    expected);
          differs += expected != nearest ? 1 : 0;
        }
      }
    }
    EXPECT_GT(differs, 100) << format;
  }
}

TEST(StochasticEpilogue, DoesNotDependOnTilesOrderOrM) {
  const intent::Problem problem = problem_of("bf16", "5");
  const std::vector<uint8_t> whole = finished(problem, true, kColumns, false);
  for (const int64_t width : {1, 7, 32, 33}) {
    EXPECT_EQ(finished(problem, true, width, width % 2 == 1), whole) << width;
  }
  const std::vector<uint8_t> fewer = finished(problem, true, kColumns, false, 4);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.begin() + 4 * kColumns * 2, whole.begin()));
}

TEST(StochasticEpilogue, FollowsTheSeedAndIsOffUntilAsked) {
  const std::vector<uint8_t> five = finished(problem_of("bf16", "5"), true, kColumns, false);
  EXPECT_EQ(finished(problem_of("bf16", "5"), true, kColumns, false), five);
  EXPECT_NE(finished(problem_of("bf16", "6"), true, kColumns, false), five);
  const intent::Problem problem = problem_of("bf16", "5");
  const std::vector<uint8_t> nearest = finished(problem, false, kColumns, false);
  EXPECT_NE(nearest, five);
  EXPECT_EQ(base::decode(PRECISION_BF16, nearest.data(), 3),
            base::round_to(PRECISION_BF16, sum_at(0, 0, 3)));
}

}  // namespace
}  // namespace deepgemm::cpu
