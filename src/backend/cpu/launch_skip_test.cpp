// Launches of plans that skip blocks of K or round their output stochastically.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/executable.hpp"
#include "backend/cpu/launch.hpp"
#include "backend/cpu/launch_test_support.hpp"
#include "base/formats.hpp"
#include "contract/verify.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::cpu {
namespace {

// A planned product C = A B^T or A times packed weights, with FP32 or BF16
// operands, row-major.
class Planned {
 public:
  Planned(const std::string& line, ThreadPool* pool) {
    const auto spec = intent::parse_line(line);
    EXPECT_TRUE(spec.ok()) << line;
    const auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
    EXPECT_TRUE(problem.ok()) << line;
    report_ = schedule::plan(*problem, *schedule::find_profile("cpu_avx512"), {}, {});
    EXPECT_TRUE(report_.choice) << line;
    const auto made = make_executable(report_.problem, *report_.choice, {{}, pool});
    EXPECT_TRUE(made.ok()) << line;
    executable_ = *made;
    const intent::Problem& p = report_.problem;
    a_ = random(p.a.precision, p.m * p.k);
    if (!p.requires_packed_b()) b_ = random(p.b.precision, p.n * p.k);
    c_.resize(static_cast<size_t>(base::storage_bytes(p.c.precision, p.m * p.output_columns())));
  }

  const intent::Problem& problem() const { return report_.problem; }
  const contract::ErrorBound& bound() const { return report_.choice->certificate.bound; }
  int64_t block_k() const { return executable_->block_k; }
  int64_t skipped() const { return executable_->skip_counts.skipped; }
  const std::vector<uint8_t>& c() const { return c_; }
  double c_at(int64_t i, int64_t j) const {
    return base::decode(problem().c.precision, c_.data(), i * problem().output_columns() + j);
  }

  void set_weights(const layout::QuantizedWeights& weights) {
    weights_ = weights;
    const auto packed = pack(weights, true);
    EXPECT_TRUE(packed.ok());
    packed_ = *packed;
  }
  void scale_a_block(int64_t block, double factor) {
    for (int64_t i = 0; i < problem().m; ++i) {
      for (int64_t k = block * block_k(); k < std::min((block + 1) * block_k(), problem().k); ++k) {
        const double value = base::decode(problem().a.precision, a_.data(), i * problem().k + k);
        base::encode(problem().a.precision, a_.data(), i * problem().k + k, value * factor);
      }
    }
  }
  void copy_operands(const Planned& other) {
    std::copy_n(other.a_.begin(), std::min(a_.size(), other.a_.size()), a_.begin());
    b_ = other.b_;
  }

  void launch() {
    std::fill(c_.begin(), c_.end(), uint8_t{0xFF});
    Operands operands;
    operands.a = a_.data();
    operands.b = packed_ ? nullptr : b_.data();
    operands.packed_b = packed_.get();
    operands.c = c_.data();
    operands.m = problem().m;
    std::vector<uint8_t> workspace(workspace_bytes(*executable_) + 64);
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    cpu::launch(*executable_, operands, workspace.data() + (64 - address % 64) % 64);
  }

  // Every element within the certificate, and the certificate within the
  // contract.
  void expect_kept() const {
    const intent::Problem& p = problem();
    contract::ReferenceProblem reference;
    reference.m = p.m;
    reference.n = p.n;
    reference.k = p.k;
    reference.activation = p.epilogue.activation;
    reference.output = p.c.precision;
    for (int64_t i = 0; i < p.m * p.k; ++i) {
      reference.a.push_back(base::decode(p.a.precision, a_.data(), i));
    }
    for (int64_t k = 0; k < p.k; ++k) {
      for (int64_t j = 0; j < p.n; ++j) {
        reference.b.push_back(packed_ ? layout::weight_value(weights_, k, j)
                                      : base::decode(p.b.precision, b_.data(), j * p.k + k));
      }
    }
    std::vector<double> result;
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.output_columns(); ++j) result.push_back(c_at(i, j));
    }
    const contract::Comparison comparison =
        contract::compare(result, contract::compute_reference(reference), p.m, p.output_columns(),
                          bound().relative, bound().absolute);
    EXPECT_TRUE(comparison.passed()) << "outside " << comparison.outside << " worst "
                                     << comparison.max_relative << " bound " << bound().relative;
    if (p.contract.max_relative_error > 0) {
      EXPECT_LE(bound().relative, p.contract.max_relative_error);
    }
  }

 private:
  std::vector<uint8_t> random(gemm_precision_t precision, int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(base::storage_bytes(precision, count)));
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < count; ++i) base::encode(precision, bytes.data(), i, normal(random_));
    return bytes;
  }

  schedule::Report report_;
  std::shared_ptr<const Executable> executable_;
  std::mt19937_64 random_{3};
  std::vector<uint8_t> a_, b_, c_;
  layout::QuantizedWeights weights_;
  std::shared_ptr<const PackedPanels> packed_;
};

// ---- Tile skipping

constexpr char kSkipLine[] = "nt m=300 n=200 k=2000 a=fp32 rel=0.001 skip=0.5";

TEST(SkippingLaunch, LeavesOutZeroAndTinyBlocksWithinTheCertificate) {
  ThreadPool one(1), four(4);
  Planned alone(kSkipLine, &one), shared(kSkipLine, &four);
  for (Planned* planned : {&alone, &shared}) {
    planned->scale_a_block(1, 0);
    planned->scale_a_block(4, 1e-8);
    planned->launch();
    EXPECT_GT(planned->skipped(), 0);
    planned->expect_kept();
  }
  EXPECT_EQ(alone.skipped(), shared.skipped());
  EXPECT_EQ(alone.c(), shared.c());
}

TEST(SkippingLaunch, GivesTheSameBitsAsWithoutForDenseInputs) {
  ThreadPool pool(2);
  Planned with(kSkipLine, &pool), without("nt m=300 n=200 k=2000 a=fp32 rel=0.001", &pool);
  without.copy_operands(with);
  with.launch();
  without.launch();
  EXPECT_EQ(with.skipped(), 0);
  EXPECT_EQ(with.c(), without.c());
}

TEST(SkippingLaunch, HoldsWithSwiglu) {
  ThreadPool pool(2);
  Planned planned("nt m=260 n=140 k=1500 a=fp32 act=swiglu rel=0.01 skip=1", &pool);
  planned.scale_a_block(2, 1e-7);
  planned.launch();
  EXPECT_GT(planned.skipped(), 0);
  planned.expect_kept();
}

TEST(SkippingLaunch, UsesTheNormsThatPackedWeightsKeep) {
  WeightCase description;
  description.k = 2048;
  description.n = 96;
  description.group_size = 128;
  description.outliers = 4;
  description.exact = false;
  const layout::QuantizedWeights weights = random_weights(description);
  for (const int m : {1, 5, 40}) {
    ThreadPool pool(2);
    Planned planned("nn m=" + std::to_string(m) +
                        " n=96 k=2048 a=fp16 b=int4_awq c=fp32 rel=0.01 "
                        "outlier=fp16 skip=0.5",
                    &pool);
    planned.set_weights(weights);
    planned.scale_a_block(1, 0);
    planned.launch();
    EXPECT_GT(planned.skipped(), 0) << m;
    planned.expect_kept();
  }
}

// ---- Stochastic rounding

std::string rounding_line(int64_t m, const std::string& seed) {
  return "nt m=" + std::to_string(m) + " n=600 k=64 a=bf16 reliability=2 seed=" + seed;
}

TEST(StochasticLaunch, IsTheSameForEveryNumberOfThreadsTileAndM) {
  ThreadPool one(1), four(4);
  Planned first(rounding_line(200, "9"), &one);
  first.launch();
  first.expect_kept();
  Planned threaded(rounding_line(200, "9"), &four);
  threaded.launch();
  EXPECT_EQ(threaded.c(), first.c());
  Planned tiled(rounding_line(200, "9") + " tile=8x64x" + std::to_string(first.block_k()), &four);
  tiled.launch();
  EXPECT_EQ(tiled.c(), first.c());
  Planned fewer(rounding_line(7, "9"), &four);
  fewer.copy_operands(first);
  fewer.launch();
  EXPECT_TRUE(std::equal(fewer.c().begin(), fewer.c().end(), first.c().begin()));
}

TEST(StochasticLaunch, FollowsTheSeed) {
  ThreadPool pool(2);
  Planned nine(rounding_line(20, "9"), &pool), ten(rounding_line(20, "10"), &pool);
  nine.launch();
  ten.launch();
  EXPECT_NE(nine.c(), ten.c());
  const std::vector<uint8_t> before = nine.c();
  nine.launch();
  EXPECT_EQ(nine.c(), before);
}

// Against the same product in FP32: errors of bf16 have mean zero. |z| > 6.11
// has probability 1e-9.
TEST(StochasticLaunch, IsUnbiased) {
  ThreadPool pool(2);
  Planned rounded(rounding_line(512, "4"), &pool);
  Planned exact("nt m=512 n=600 k=64 a=bf16 c=fp32", &pool);
  exact.copy_operands(rounded);
  rounded.launch();
  exact.launch();
  double error = 0, variance = 0;
  for (int64_t i = 0; i < 512; ++i) {
    for (int64_t j = 0; j < 600; ++j) {
      const double x = exact.c_at(i, j);
      const double ulp = std::ldexp(1.0, std::ilogb(x) - 7);
      const double share = x / ulp - std::floor(x / ulp);
      error += (rounded.c_at(i, j) - x) / ulp;
      variance += share * (1 - share);
    }
  }
  EXPECT_GT(variance, 10000);
  EXPECT_LT(std::abs(error), 6.11 * std::sqrt(variance));
}

}  // namespace
}  // namespace deepgemm::cpu
