// Tile skipping as a launch uses it: norms of operands as they are stored, and what follows for
// each tile. The rule itself is tested in contract/skip_test.cpp.
#include "backend/cpu/skip.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/device.hpp"
#include "backend/cpu/launch_test_support.hpp"
#include "backend/cpu/packed_panels.hpp"
#include "base/formats.hpp"

namespace deepgemm::cpu {
namespace {

const Kernels<double>& kernels() { return kGenericKernels.f64; }

// A product of which only the operands matter. Blocks of K of A are scaled by `factors`, in turn.
struct Sample {
  std::string line = "nn m=37 n=70 k=700 a=fp32 rel=0.01 skip=0.5";
  int64_t row_tile = 16, block_k = 128;
  int64_t rows = -1;  // of the launch; -1: all
  bool scales = false;
  std::vector<double> factors = {1, 1e-9, 1, 0, 1e-3};
  contract::SkipAllowance allowance = {0.005, 0};
};

class Operation {
 public:
  explicit Operation(const Sample& sample) : sample_(sample) {
    const auto spec = intent::parse_line(sample.line);
    EXPECT_TRUE(spec.ok()) << sample.line;
    const auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
    EXPECT_TRUE(problem.ok()) << sample.line;
    problem_ = *problem;
    setup_ = {sample.allowance, sample.row_tile, sample.block_k};
    fill(problem_.a, a_, false);
    fill(problem_.b, b_, true);
    if (!sample.scales) return;
    scale_a_.resize(static_cast<size_t>(problem_.m));
    scale_b_.resize(static_cast<size_t>(problem_.n));
    for (float& scale : scale_a_) scale = std::ldexp(1.1F, static_cast<int>(random_() % 12));
    for (float& scale : scale_b_) scale = std::ldexp(1.3F, static_cast<int>(random_() % 12));
  }

  const intent::Problem& problem() const { return problem_; }
  int64_t rows() const { return sample_.rows < 0 ? problem_.m : sample_.rows; }
  int64_t blocks() const { return (problem_.k + sample_.block_k - 1) / sample_.block_k; }

  double a(int64_t batch, int64_t i, int64_t k) const {
    const bool turned = transposed_a();
    const double value = base::decode(
        problem_.a.precision, a_.data(),
        layout::element_offset(problem_.a.layout, batch, turned ? k : i, turned ? i : k));
    return sample_.scales ? value * static_cast<double>(scale_a_[static_cast<size_t>(i)]) : value;
  }
  double b(int64_t batch, int64_t k, int64_t j) const {
    const bool turned = transposed_b();
    const double value = base::decode(
        problem_.b.precision, b_.data(),
        layout::element_offset(problem_.b.layout, batch, turned ? j : k, turned ? k : j));
    return sample_.scales ? value * static_cast<double>(scale_b_[static_cast<size_t>(j)]) : value;
  }
  void set_a(int64_t batch, int64_t i, int64_t k, double value) {
    const bool turned = transposed_a();
    base::encode(problem_.a.precision, a_.data(),
                 layout::element_offset(problem_.a.layout, batch, turned ? k : i, turned ? i : k),
                 value);
  }

  // Runs the pre-pass over its items in an order of its own, or in two threads.
  enum class Order { kForwards, kBackwards, kThreads };
  Skipping skipping(Order order = Order::kForwards) {
    SkipOperands operands;
    operands.a = {a_.data(), *source_of(problem_.a.precision), problem_.a.layout, transposed_a()};
    operands.b = {b_.data(), *source_of(problem_.b.precision), problem_.b.layout, transposed_b()};
    const auto strategy = problem_.contract.dequant_strategy;
    const auto pointer = [&](const std::vector<float>& scales) {
      return sample_.scales ? scales.data() : nullptr;
    };
    operands.scale_a = scale_view(strategy, pointer(scale_a_), false, 0, problem_.k);
    operands.scale_b = scale_view(strategy, pointer(scale_b_), true, 0, problem_.k);
    operands.m = rows();
    const size_t bytes = skip_workspace_bytes(setup_, problem_, false);
    EXPECT_EQ(bytes % 64, 0U);
    workspace_.assign(bytes / sizeof(double) + kGuard, kMark);
    const Skipping result(setup_, problem_, operands, kernels(), workspace_.data());
    const int64_t items = result.prepass_items();
    const auto some = [&](int64_t first) {
      for (int64_t item = first; item < items; item += 2) result.run_prepass(item);
    };
    if (order == Order::kThreads) {
      std::thread other(some, 1);
      some(0);
      other.join();
    } else {
      for (int64_t item = 0; item < items; ++item) {
        result.run_prepass(order == Order::kForwards ? item : items - 1 - item);
      }
    }
    for (size_t i = bytes / sizeof(double); i < workspace_.size(); ++i) {
      EXPECT_EQ(workspace_[i], kMark) << "wrote past the workspace";
    }
    return result;
  }

  // Every element of every tile of `columns` columns: what is left out is within the allowance.
  // Counts (tile, block) pairs that are left out.
  int64_t expect_proved(const Skipping& skipping, int64_t columns) const {
    int64_t skipped = 0;
    for (int64_t batch = 0; batch < problem_.batch; ++batch) {
      for (int64_t row = 0; row < rows(); row += sample_.row_tile) {
        for (int64_t column = 0; column < problem_.n; column += columns) {
          const int64_t width = std::min(columns, problem_.n - column);
          const contract::TileSkips tile = skipping.tile(batch, row, column, width);
          skipped += tile.count();
          for (int64_t i = row; i < std::min(row + sample_.row_tile, rows()); ++i) {
            for (int64_t j = column; j < column + width; ++j) expect_element(tile, batch, i, j);
          }
        }
      }
    }
    return skipped;
  }

 private:
  static constexpr size_t kGuard = 16;
  static constexpr double kMark = -123.5;

  bool transposed_a() const {
    return problem_.operation == GEMM_OP_TN || problem_.operation == GEMM_OP_TT;
  }
  bool transposed_b() const {
    return problem_.operation == GEMM_OP_NT || problem_.operation == GEMM_OP_TT;
  }

  void fill(const intent::Operand& operand, std::vector<uint8_t>& bytes, bool is_b) {
    const auto size = layout::buffer_bytes(operand.layout, operand.precision);
    EXPECT_TRUE(size.ok());
    bytes.assign(static_cast<size_t>(*size), 0);
    const bool k_is_row = is_b ? !transposed_b() : transposed_a();
    std::normal_distribution<double> normal;
    const bool integer = operand.precision == PRECISION_INT8;
    for (int64_t batch = 0; batch < operand.layout.batch; ++batch) {
      for (int64_t i = 0; i < operand.layout.rows; ++i) {
        for (int64_t j = 0; j < operand.layout.cols; ++j) {
          const int64_t block = (k_is_row ? i : j) / sample_.block_k;
          const double factor =
              is_b ? 1 : sample_.factors[static_cast<size_t>(block) % sample_.factors.size()];
          const double value = normal(random_) * factor * (integer ? 40 : 1);
          base::encode(operand.precision, bytes.data(),
                       layout::element_offset(operand.layout, batch, i, j), value);
        }
      }
    }
  }

  void expect_element(const contract::TileSkips& tile, int64_t batch, int64_t i, int64_t j) const {
    long double left_out = 0, all = 0;
    for (int64_t k = 0; k < problem_.k; ++k) {
      const long double product =
          std::abs(static_cast<long double>(a(batch, i, k)) * b(batch, k, j));
      all += product;
      if (tile.skipped(k / sample_.block_k)) left_out += product;
    }
    if (left_out == 0) return;
    const long double allowed =
        setup_.allowance.relative > 0 ? setup_.allowance.relative * all : setup_.allowance.absolute;
    ASSERT_LE(left_out, allowed) << sample_.line << " element " << batch << " " << i << " " << j;
  }

  Sample sample_;
  intent::Problem problem_;
  SkipSetup setup_;
  std::mt19937_64 random_{7};
  std::vector<uint8_t> a_, b_;
  std::vector<float> scale_a_, scale_b_;
  std::vector<double> workspace_;
};

std::vector<bool> answers(const Operation& operation, const Skipping& skipping) {
  std::vector<bool> all;
  for (int64_t batch = 0; batch < operation.problem().batch; ++batch) {
    for (int64_t row = 0; row < operation.rows(); row += 16) {
      for (int64_t column = 0; column < operation.problem().n; column += 32) {
        const auto tile = skipping.tile(batch, row, column,
                                        std::min<int64_t>(32, operation.problem().n - column));
        for (int64_t block = 0; block < operation.blocks(); ++block) {
          all.push_back(tile.skipped(block));
        }
      }
    }
  }
  return all;
}

TEST(Skipping, IsProvedForEveryFormAndFormatOfOperands) {
  for (const char* line : {
           "nn m=37 n=70 k=700 a=fp32 rel=0.01 skip=0.5",
           "nt m=37 n=70 k=700 a=fp32 rel=0.01 skip=0.5",
           "tn m=37 n=70 k=700 a=fp32 rel=0.01 skip=0.5",
           "tt m=37 n=70 k=700 a=fp32 rel=0.01 skip=0.5",
           "nt m=37 n=70 k=700 a=bf16 rel=0.01 skip=0.5",
           "nt m=37 n=70 k=700 a=fp64 rel=0.01 skip=0.5",
           "nn m=5 n=33 k=640 a=fp32 batch=3 rel=0.01 skip=0.5",
       }) {
    Sample sample;
    sample.line = line;
    Operation operation(sample);
    const Skipping skipping = operation.skipping();
    for (const int64_t columns : {32, 64, 24}) {
      EXPECT_GT(operation.expect_proved(skipping, columns), 0) << line << " " << columns;
    }
  }
}

TEST(Skipping, CountsScalesOfQuantisedOperands) {
  Sample sample;
  sample.line = "nt m=37 n=70 k=700 a=int8 c=fp32 rel=0.01 skip=0.5";
  sample.scales = true;
  Operation operation(sample);
  EXPECT_GT(operation.expect_proved(operation.skipping(), 32), 0);
  // As magnitudes count in an absolute limit, a scale that was left out would show here.
  sample.allowance = {0, 20000};
  Operation absolute(sample);
  EXPECT_GT(absolute.expect_proved(absolute.skipping(), 32), 0);
}

TEST(Skipping, LeavesDenseProductsAlone) {
  Sample sample;
  sample.factors = {1};
  Operation operation(sample);
  EXPECT_EQ(operation.expect_proved(operation.skipping(), 32), 0);
}

TEST(Skipping, FindsEveryEmptyBlock) {
  Sample sample;
  sample.factors = {1, 0, 0};
  Operation operation(sample);
  // 6 blocks of which 4 are empty, 3 row tiles, 3 panels.
  EXPECT_EQ(operation.expect_proved(operation.skipping(), 32), 4 * 3 * 3);
}

TEST(Skipping, LooksAtTheRowsOfTheLaunchOnly) {
  Sample sample;
  sample.rows = 17;  // the second tile has one row
  Operation operation(sample);
  operation.set_a(0, 18, 130, 1e9);  // in a block that is empty but for this
  const Skipping skipping = operation.skipping();
  EXPECT_GT(operation.expect_proved(skipping, 32), 0);
  EXPECT_TRUE(skipping.tile(0, 16, 0, 32).skipped(1));
}

TEST(Skipping, KeepsABlockWithANaN) {
  Operation operation{Sample{}};
  operation.set_a(0, 20, 3 * 128 + 5, std::numeric_limits<double>::quiet_NaN());
  const Skipping skipping = operation.skipping();
  EXPECT_TRUE(skipping.tile(0, 0, 0, 32).skipped(3));
  EXPECT_FALSE(skipping.tile(0, 16, 0, 32).skipped(3));
  EXPECT_TRUE(skipping.tile(0, 32, 0, 32).skipped(3));
}

TEST(Skipping, DoesNotDependOnOrderOrThreads) {
  using Order = Operation::Order;
  Operation operation{Sample{}};
  const std::vector<bool> expected = answers(operation, operation.skipping());
  EXPECT_EQ(answers(operation, operation.skipping(Order::kBackwards)), expected);
  EXPECT_EQ(answers(operation, operation.skipping(Order::kThreads)), expected);
}

TEST(Skipping, TakesNoWorkspaceAndSkipsNothingWhenOff) {
  Sample sample;
  sample.allowance = {};
  Operation operation(sample);
  const Skipping skipping = operation.skipping();
  EXPECT_EQ(skip_workspace_bytes({}, operation.problem(), false), 0U);
  EXPECT_EQ(skipping.prepass_items(), 0);
  EXPECT_EQ(operation.expect_proved(skipping, 32), 0);
  EXPECT_EQ(Skipping().tile(0, 0, 0, 32).count(), 0);
}

// Packed weights with groups, zero points and outlier channels: channels 256 ... 383 are zero but
// for outliers.
TEST(WeightNorms, AreThoseOfTheWeightsWithoutOutlierChannels) {
  WeightCase description;
  description.k = 600;
  description.n = 70;
  description.group_size = 64;
  description.outliers = 5;
  description.exact = false;
  layout::QuantizedWeights weights = random_weights(description);
  const auto is_outlier = [&](int64_t k) {
    return std::ranges::binary_search(weights.outlier_channels, k);
  };
  for (int64_t k = 256; k < 384; ++k) {
    for (int64_t j = 0; j < weights.n; ++j) {
      const int64_t zero_at = weights.group_of(k) * weights.n + j;
      weights.codes[static_cast<size_t>(k * weights.n + j)] =
          weights.zeros.empty() ? 8 : weights.zeros[static_cast<size_t>(zero_at)];
    }
  }
  const auto packed = pack(weights);
  ASSERT_TRUE(packed.ok());
  const WeightNorms norms(kernels(), **packed, process_pool());
  for (const int64_t column : {0, 32, 64, 10}) {
    const int64_t columns = std::min<int64_t>(32, weights.n - column);
    const contract::SkipNorms some = norms.of(column, columns);
    EXPECT_EQ(some.tiles, column == 10 ? 2 : 1);
    EXPECT_EQ(some.granules, 5);
    EXPECT_EQ(some.granule(2).largest, 0);
    double largest_weight = 0;
    for (int64_t j = column; j < column + columns; ++j) {
      double weight = 0, largest = 0;
      for (int64_t k = 0; k < weights.k; ++k) {
        if (is_outlier(k)) continue;
        const double value = std::abs(layout::weight_value(weights, k, j));
        weight += value;
        if (k < 128) largest = std::max(largest, value);
      }
      largest_weight = std::max(largest_weight, weight);
      EXPECT_GE(some.granule(0).largest * (1 + 1e-12), largest / weight);
    }
    EXPECT_GE(some.weight() * (1 + 1e-12), largest_weight);
    if (some.tiles == 1) {
      EXPECT_LE(some.weight(), largest_weight * (1 + 1e-12));
    }
  }
}

TEST(WeightNorms, ServeALaunchInPlaceOfAPrePassOverB) {
  layout::QuantizedWeights weights;
  {
    WeightCase description;
    description.k = 700;
    description.n = 70;
    description.precision = PRECISION_INT8;
    description.group_size = description.k;
    description.zeros = false;
    description.exact = false;
    weights = random_weights(description);
  }
  const auto packed = pack(weights);
  ASSERT_TRUE(packed.ok());
  const WeightNorms norms(kernels(), **packed, process_pool());
  const auto spec = intent::parse_line("nn m=20 n=70 k=700 a=fp32 rel=0.01 skip=0.5");
  ASSERT_TRUE(spec.ok());
  const auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
  ASSERT_TRUE(problem.ok());
  std::vector<float> a(20 * 700, 1.0F);
  for (size_t i = 0; i < a.size(); ++i) {
    if (i % 700 / 128 == 2) a[i] = 0;
  }
  const SkipSetup setup{{0.005, 0}, 16, 128};
  SkipOperands operands;
  operands.a = {a.data(), Source::kFp32, problem->a.layout, false};
  operands.norms_b = &norms;
  operands.m = 20;
  std::vector<double> workspace(skip_workspace_bytes(setup, *problem, true) / sizeof(double));
  const Skipping skipping(setup, *problem, operands, kernels(), workspace.data());
  EXPECT_EQ(skipping.prepass_items(), 2);
  for (int64_t item = 0; item < 2; ++item) skipping.run_prepass(item);
  for (const int64_t column : {0, 32, 64}) {
    const auto tile = skipping.tile(0, 16, column, std::min<int64_t>(32, 70 - column));
    EXPECT_EQ(tile.count(), 1);
    EXPECT_TRUE(tile.skipped(2));
  }
}

}  // namespace
}  // namespace deepgemm::cpu
