// Tile skipping on a GPU: its kernels decide as contract/skip.hpp does, but for roundings toward
// keeping, and the product is that of the blocks that are kept.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/formats.hpp"
#include "skipped_product.hpp"

namespace deepgemm::cuda {
namespace {

constexpr contract::SkipAllowance kRelative = {0.01, 0};

std::vector<KernelCase> skipping_cases() {
  std::vector<KernelCase> cases = kernel_cases();
  std::erase_if(
      cases, [](const KernelCase& one) { return one.fields.find("skip=") == std::string::npos; });
  return cases;
}

bool has_activation(const intent::Problem& problem) {
  return problem.epilogue.activation != GEMM_ACTIVATION_NONE;
}

// The same value for the same place; exact in every format.
double small_number(int64_t batch, int64_t vector, int64_t k, unsigned seed) {
  std::mt19937 random(static_cast<unsigned>(batch * 7919 + vector * 104729 + k * 31) + seed);
  random.discard(1);
  return static_cast<double>(random() % 9) - 4;
}

class SkippingKernel : public testing::TestWithParam<KernelCase> {
 protected:
  void SetUp() override {
    std::string why;
    gpu_ = Gpu::get(why);
    if (gpu_ == nullptr) GTEST_SKIP() << why;
    const auto spec = spec_of(GetParam(), problem_of(GetParam(), 64, 64, 256), gpu_->arch());
    if (!spec.ok()) GTEST_SKIP() << spec.error().message;
  }
  SkippedProduct make(int64_t m, int64_t n, int64_t k) {
    static SkipBuffers buffers(*gpu_);
    return {*gpu_, buffers, GetParam(), m, n, k};
  }

  // Of every tile: what clearly must be kept is, and what clearly may go, goes.
  void expect_rule(SkippedProduct& product, const Blocks& kept,
                   const contract::SkipAllowance& allowance) {
    constexpr double kClearly = 1.1;
    const Blocks must =
        product.kept_by_rule({allowance.relative * kClearly, allowance.absolute * kClearly});
    const Blocks may =
        product.kept_by_rule({allowance.relative / kClearly, allowance.absolute / kClearly});
    ASSERT_EQ(kept.size(), must.size());
    for (size_t tile = 0; tile < kept.size(); ++tile) {
      for (size_t block = 0; block < kept[tile].size(); ++block) {
        ASSERT_TRUE(kept[tile][block] || !must[tile][block]) << tile << " " << block;
        ASSERT_TRUE(!kept[tile][block] || may[tile][block]) << tile << " " << block;
      }
    }
  }

  // Elements here and there: what was left out is within the allowance, and the result is the sum
  // of what was kept.
  void expect_result(SkippedProduct& product, const SkipResult& result,
                     const contract::SkipAllowance& allowance) {
    const intent::Problem& problem = product.problem();
    const double roundoff = base::find_format(problem.c.precision)->unit_roundoff;
    std::mt19937 random(3);
    for (int sample = 0; sample < 300; ++sample) {
      const auto batch = static_cast<int64_t>(random() % static_cast<unsigned>(problem.batch));
      const auto row = static_cast<int64_t>(random() % static_cast<unsigned>(problem.m));
      const auto column =
          static_cast<int64_t>(random() % static_cast<unsigned>(problem.output_columns()));
      const auto sums = product.sums(result.kept, batch, row, column);
      const double most = allowance.relative > 0 ? allowance.relative * sums.all
                                                 : allowance.absolute / std::abs(problem.alpha);
      ASSERT_LE(sums.left_out, most);
      if (has_activation(problem)) continue;
      // Operands rounded to TF32, sums in FP32.
      const double rounding = 0x1p-9 + static_cast<double>(problem.k) * 0x1p-22;
      ASSERT_NEAR(product.output(result, batch, row, column), problem.alpha * sums.kept,
                  std::abs(problem.alpha) *
                      ((problem.a.precision == PRECISION_FP32 ? rounding : 0x1p-15) * sums.all +
                       2 * roundoff * std::abs(sums.kept)))
          << batch << " " << row << " " << column;
    }
  }

  Gpu* gpu_ = nullptr;
};

struct Size {
  int64_t m, n, k;
};
constexpr Size kSizes[] = {{70, 90, 1000}, {1, 64, 300}, {257, 130, 129}, {64, 256, 2048}};

TEST_P(SkippingKernel, LeavesOutBlocksOfZerosAndOnlyThoseOfDenseOperands) {
  for (const Size& size : kSizes) {
    SkippedProduct product = make(size.m, size.n, size.k);
    if (!product.prepare()) return;
    const auto zero_a = [](int64_t k) { return k / 128 % 3 == 1; };
    const auto zero_b = [](int64_t k) { return k / 128 % 5 == 2; };
    product.fill(
        [&](int64_t b, int64_t i, int64_t k) { return zero_a(k) ? 0 : small_number(b, i, k, 1); },
        [&](int64_t b, int64_t j, int64_t k) { return zero_b(k) ? 0 : small_number(b, j, k, 2); });
    const SkipResult result = product.run({1e-7, 0});
    ASSERT_FALSE(result.kept.empty());
    std::vector<bool> holds_products(static_cast<size_t>(product.blocks()), false);
    for (int64_t k = 0; k < size.k; ++k) {
      const auto block = static_cast<size_t>(product.block_of(k));
      holds_products[block] = holds_products[block] || !(zero_a(k) || zero_b(k));
    }
    for (const std::vector<bool>& tile : result.kept) ASSERT_EQ(tile, holds_products);
    expect_rule(product, result.kept, {1e-7, 0});
    expect_result(product, result, {1e-7, 0});
  }
}

TEST_P(SkippingKernel, DecidesAsTheRuleDoesOnBlocksOfEverySize) {
  for (const Size& size : kSizes) {
    SkippedProduct product = make(size.m, size.n, size.k);
    if (!product.prepare()) return;
    const bool whole = product.problem().a.precision == PRECISION_INT8;
    // From granule to granule smaller, with rows and columns of different size.
    const auto scale = [&](int64_t k) {
      return whole ? (k / 128 % 2 == 0 ? 25.0 : 1.0)
                   : std::ldexp(1.0, -static_cast<int>(k / 128 % 9));
    };
    product.fill(
        [&](int64_t b, int64_t i, int64_t k) {
          const double of_row = whole ? 1 : std::ldexp(1.0, static_cast<int>(i % 5));
          return small_number(b, i, k, 3) * scale(k) * of_row;
        },
        [&](int64_t b, int64_t j, int64_t k) { return small_number(b, j, k, 4) * scale(k); });
    bool some = false;
    for (const double relative : {0.5, 0.05, 0.005, 0.0}) {
      const contract::SkipAllowance allowance =
          relative > 0 ? contract::SkipAllowance{relative, 0}
                       : contract::SkipAllowance{0, static_cast<double>(size.k)};
      const SkipResult result = product.run(allowance);
      ASSERT_FALSE(result.kept.empty());
      expect_rule(product, result.kept, allowance);
      expect_result(product, result, allowance);
      for (const auto& tile : result.kept) {
        some = some || std::count(tile.begin(), tile.end(), false) > 0;
      }
    }
    EXPECT_TRUE(some || size.k < 256) << "nothing was left out anywhere";
  }
}

TEST_P(SkippingKernel, GivesTheSameBitsInEveryRunWithAnyNumberOfBlocks) {
  SkippedProduct product = make(200, 150, 1500);
  if (!product.prepare()) return;
  std::mt19937 random(9);
  std::vector<double> sizes(12);
  for (double& size : sizes) size = std::ldexp(1.0, -static_cast<int>(random() % 12));
  const auto scale = [&](int64_t k) { return sizes[static_cast<size_t>(k / 128)]; };
  product.fill([&](int64_t b, int64_t i, int64_t k) { return small_number(b, i, k, 5) * scale(k); },
               [&](int64_t b, int64_t j, int64_t k) { return small_number(b, j, k, 6); });
  const SkipResult first = product.run(kRelative);
  ASSERT_FALSE(first.kept.empty());
  for (int round = 0; round < 20; ++round) ASSERT_EQ(product.run(kRelative), first);
  for (const int64_t blocks : {1, 3, 50}) ASSERT_EQ(product.run(kRelative, blocks), first);
}

// Where a value is not finite its granule is kept, however small the rest of it, and the element is
// not finite; rows beside it are as ever.
TEST_P(SkippingKernel, KeepsWhatIsNotFinite) {
  constexpr int64_t kM = 80, kN = 96, kK = 1024, kRow = 37, kAt = 600;
  SkippedProduct product = make(kM, kN, kK);
  if (!product.prepare()) return;
  const gemm_precision_t a = product.problem().a.precision;
  if (a == PRECISION_INT8) return;  // has no such values
  for (const double special : {std::nan(""), HUGE_VAL}) {
    product.fill(
        [&](int64_t b, int64_t i, int64_t k) {
          if (i == kRow && k == kAt) return special;
          return k / 128 == kAt / 128 ? 0 : small_number(b, i, k, 7);
        },
        [&](int64_t b, int64_t j, int64_t k) { return k == kAt ? 1 : small_number(b, j, k, 8); });
    const SkipResult result = product.run(kRelative);
    ASSERT_FALSE(result.kept.empty());
    for (int64_t column = 0; column < product.problem().output_columns(); ++column) {
      const auto& tile = result.kept[product.tile_of(0, kRow, column)];
      ASSERT_TRUE(tile[static_cast<size_t>(product.block_of(kAt))]);
      ASSERT_FALSE(std::isfinite(product.output(result, 0, kRow, column)));
      ASSERT_TRUE(std::isfinite(product.output(result, 0, kRow + 1, column)));
    }
  }
}

// A row of one tiny block, rows and columns of zeros, values that never meet, one huge element.
TEST_P(SkippingKernel, KeepsItsAllowanceOnAdversarialOperands) {
  constexpr int64_t kM = 100, kN = 120, kK = 900;
  SkippedProduct product = make(kM, kN, kK);
  if (!product.prepare()) return;
  const double tiny = product.problem().a.precision == PRECISION_INT8 ? 1 : 0x1p-10;
  product.fill(
      [&](int64_t b, int64_t i, int64_t k) {
        const double value = small_number(b, i, k, 10);
        if (i == 5) return k / 128 == 2 ? tiny : 0;
        if (i % 11 == 3) return 0.0;
        if (i == 40 && k == 700) return 120.0;
        return k / 128 == 2 ? tiny * value : k / 128 == 4 && k % 2 == 0 ? 0 : value;
      },
      [&](int64_t b, int64_t j, int64_t k) {
        const double value = small_number(b, j, k, 11);
        if (j % 13 == 1) return 0.0;
        return k / 128 == 4 && k % 2 == 1 ? 0 : value;
      });
  for (const double relative : {0.9, 0.1, 1e-3}) {
    const SkipResult result = product.run({relative, 0});
    ASSERT_FALSE(result.kept.empty());
    expect_rule(product, result.kept, {relative, 0});
    expect_result(product, result, {relative, 0});
    EXPECT_TRUE(result.kept[product.tile_of(0, 5, 0)][static_cast<size_t>(product.block_of(300))])
        << "all that a row has";
  }
}

TEST_P(SkippingKernel, KeepsAllOfATileWithAFactorThatIsNotFinite) {
  SkippedProduct product = make(300, 64, 512);
  if (!product.prepare()) return;
  if (product.problem().contract.dequant_strategy != DEQUANT_STRATEGY_PER_CHANNEL ||
      product.problem().a.precision != PRECISION_INT8) {
    return;  // rows have no factors
  }
  const auto zero = [](int64_t, int64_t, int64_t) { return 0.0; };
  product.fill(zero, zero);
  product.set_row_factor(299, INFINITY);
  const SkipResult result = product.run(kRelative);
  ASSERT_FALSE(result.kept.empty());
  EXPECT_FALSE(result.kept[product.tile_of(0, 0, 0)].front());
  EXPECT_TRUE(result.kept[product.tile_of(0, 299, 0)].front());
}

INSTANTIATE_TEST_SUITE_P(Kernels, SkippingKernel, testing::ValuesIn(skipping_cases()),
                         [](const auto& test) { return std::to_string(test.index); });

// More blocks than are judged: the rest are multiplied.
TEST(SkippingKernels, KeepTheBlocksThatAreNotJudged) {
  std::string why;
  Gpu* gpu = Gpu::get(why);
  if (gpu == nullptr) GTEST_SKIP() << why;
  const KernelCase one = {"sm80",
                          contract::PathId::kTf32,
                          "nt",
                          "a=fp32 rel=0.01 skip=0.5",
                          {64, 64, 16, 32, 32, 16, 4, 1, 1},
                          {}};
  constexpr int64_t kK = 16 * kernel::kSkipMostBlocks + 300;
  SkipBuffers buffers(*gpu);
  SkippedProduct product(*gpu, buffers, one, 30, 40, kK);
  if (!product.prepare()) return;
  const auto zero = [](int64_t k) { return k < 1024 || (k >= 4096 && k < 5000) || k > kK - 200; };
  product.fill(
      [&](int64_t b, int64_t i, int64_t k) { return zero(k) ? 0 : small_number(b, i, k, 12); },
      [&](int64_t b, int64_t j, int64_t k) { return small_number(b, j, k, 13); });
  const SkipResult result = product.run({1e-6, 0});
  ASSERT_EQ(result.kept.size(), 1U);
  EXPECT_FALSE(result.kept.front()[0]);
  EXPECT_FALSE(result.kept.front()[4096 / 16]);
  for (int64_t i = 0; i < 30; ++i) {
    for (int64_t j = 0; j < 40; ++j) {
      EXPECT_EQ(product.output(result, 0, i, j), product.sums(result.kept, 0, i, j).kept);
    }
  }
}

}  // namespace
}  // namespace deepgemm::cuda
