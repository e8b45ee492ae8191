// The sweep: random shape x layout x path x format, each launched through the public interface with
// several row counts and held against the FP64 reference within the bound of its own certificate.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/formats.hpp"
#include "random_case.hpp"

namespace deepgemm::property {
namespace {

// 8 shards of 10,000 problems with up to 4 row counts each: more than 300,000 launches.
constexpr uint64_t kShards = 8;
constexpr uint64_t kProblemsPerShard = 10000;
constexpr uint8_t kUntouched = 0xFF;  // a NaN in every format that has one

struct Totals {
  int64_t launches = 0;
  int64_t elements = 0;
};

std::string describe(const Case& c, uint64_t seed) {
  std::string text(1 << 16, '\0');
  size_t needed = 0;
  deepgemm_explain_problem(&c.intent, c.m, c.n, c.k, DEEPGEMM_EXPLAIN_TEXT, text.data(),
                           text.size(), &needed);
  text.resize(std::min(text.find('\n', 400), needed));
  return "seed " + std::to_string(seed) + " recipe " + c.recipe->name + "\n" + text;
}

// Packs the dense weights and gives the reference the values that the packed form holds.
deepgemm_packed_weights_t* pack(const gemm_plan_t& plan, Case& c) {
  deepgemm_weight_tensors_t tensors = {};
  tensors.precision = PRECISION_FP64;
  tensors.in_features = c.k;
  tensors.out_features = c.n;
  tensors.weight = c.dense_weights.data();
  deepgemm_packed_weights_t* packed = nullptr;
  if (deepgemm_pack_weights(&packed, &plan, &tensors) != DEEPGEMM_SUCCESS) {
    ADD_FAILURE() << deepgemm_last_error();
    return nullptr;
  }
  tensors.transposed = true;
  std::vector<double> held(static_cast<size_t>(c.k * c.n));
  tensors.weight = held.data();
  EXPECT_EQ(deepgemm_unpack_weights(packed, &tensors), DEEPGEMM_SUCCESS) << deepgemm_last_error();
  c.reference.front().b = held;
  return packed;
}

// NaN everywhere in C, or old values where beta reads them.
void fill_output(Case& c) {
  c.c.fill(kUntouched);
  if (c.intent.beta == 0) return;
  const gemm_precision_t precision = c.intent.numerical_contract.output_precision;
  for (int64_t batch = 0; batch < c.batch; ++batch) {
    contract::ReferenceProblem& reference = c.reference[static_cast<size_t>(batch)];
    const int64_t columns = reference.output_columns();
    reference.c0.resize(static_cast<size_t>(c.m * columns));
    for (int64_t i = 0; i < c.m * columns; ++i) {
      const double value = base::round_to(precision, std::sin(static_cast<double>(i + batch)));
      reference.c0[static_cast<size_t>(i)] = value;
      c.c.store(batch, i / columns, i % columns, value);
    }
  }
}

gemm_launch_args_t launch_args(const Case& c, const deepgemm_packed_weights_t* packed) {
  gemm_launch_args_t args = {};
  args.A = c.a.data();
  args.B = packed != nullptr ? static_cast<const void*>(packed) : c.b.data();
  args.C = c.c.data();
  args.bias = c.bias.empty() ? nullptr : c.bias.data();
  args.residual = c.residual.empty() ? nullptr : c.residual.data();
  args.scale_a = c.scale_a.empty() ? nullptr : c.scale_a.data();
  args.scale_b = c.scale_b.empty() ? nullptr : c.scale_b.data();
  return args;
}

// Compares the first `rows` rows of every batch; later rows must be as fill_output left them.
void check_output(const Case& c, const std::vector<contract::Reference>& references, int64_t rows,
                  const deepgemm_plan_info_t& info, uint64_t seed) {
  const int64_t columns = c.output_columns();
  for (int64_t batch = 0; batch < c.batch; ++batch) {
    const contract::Reference& whole = references[static_cast<size_t>(batch)];
    contract::Reference reference;
    reference.output = whole.output;
    const auto count = static_cast<std::ptrdiff_t>(rows * columns);
    reference.value.assign(whole.value.begin(), whole.value.begin() + count);
    reference.magnitude.assign(whole.magnitude.begin(), whole.magnitude.begin() + count);
    std::vector<double> result(static_cast<size_t>(count));
    for (int64_t i = 0; i < rows * columns; ++i) {
      result[static_cast<size_t>(i)] = c.c.load(batch, i / columns, i % columns);
    }
    const contract::Comparison comparison = contract::compare(
        result, reference, rows, columns, info.bound_relative, info.bound_absolute);
    ASSERT_TRUE(comparison.passed())
        << describe(c, seed) << "\nrows " << rows << " outside " << comparison.outside
        << " nonfinite " << comparison.nonfinite << " worst (" << comparison.worst_row << ","
        << comparison.worst_column << ") relative " << comparison.max_relative << " bound "
        << info.bound_relative << " + " << info.bound_absolute;
    if (c.intent.beta == 0 && base::find_format(c.intent.numerical_contract.output_precision)) {
      for (int64_t i = rows * columns; i < c.m * columns; ++i) {
        ASSERT_TRUE(std::isnan(c.c.load(batch, i / columns, i % columns)))
            << describe(c, seed) << "\nwrote row " << i / columns << " of a launch with " << rows;
      }
    }
  }
  ASSERT_TRUE(c.c.guards_intact()) << describe(c, seed);
  ASSERT_TRUE(c.c.gaps_intact(kUntouched)) << describe(c, seed);
}

void run_case(uint64_t seed, Totals& totals) {
  Case c = make_case(seed);
  gemm_plan_t plan = {};
  ASSERT_EQ(deepgemm_create_plan(&plan, &c.intent, c.m, c.n, c.k), DEEPGEMM_SUCCESS)
      << describe(c, seed) << deepgemm_last_error();
  deepgemm_plan_info_t info = {};
  ASSERT_EQ(deepgemm_get_plan_info(&plan, &info), DEEPGEMM_SUCCESS);
  deepgemm_packed_weights_t* packed = c.recipe->packed ? pack(plan, c) : nullptr;
  ASSERT_EQ(packed != nullptr, c.recipe->packed) << describe(c, seed);
  fill_output(c);
  std::vector<contract::Reference> references;
  for (const auto& problem : c.reference)
    references.push_back(contract::compute_reference(problem));

  for (const int64_t rows : {c.m, c.m - 1, c.m / 2, int64_t{0}}) {
    if (rows < 0 || (rows == c.m / 2 && rows == 0)) continue;
    gemm_launch_args_t args = launch_args(c, packed);
    args.actual_m = &rows;
    fill_output(c);
    ASSERT_EQ(deepgemm_launch_plan_args(&plan, &args), DEEPGEMM_SUCCESS)
        << describe(c, seed) << deepgemm_last_error();
    ASSERT_NO_FATAL_FAILURE(check_output(c, references, rows, info, seed));
    ++totals.launches;
    totals.elements += rows * c.output_columns() * c.batch;
  }
  deepgemm_destroy_packed_weights(&packed);
  deepgemm_destroy_plan(&plan);
}

class Sweep : public testing::TestWithParam<uint64_t> {};

TEST_P(Sweep, EveryLaunchKeepsTheBoundOfItsCertificate) {
  Totals totals;
  for (uint64_t i = 0; i < kProblemsPerShard; ++i) {
    ASSERT_NO_FATAL_FAILURE(run_case(GetParam() * kProblemsPerShard + i, totals));
  }
  RecordProperty("launches", std::to_string(totals.launches));
  RecordProperty("elements", std::to_string(totals.elements));
  // 8 shards x 37,500 = 300,000
  EXPECT_GE(totals.launches, 37500) << "the sweep shrank";
}

INSTANTIATE_TEST_SUITE_P(Shard, Sweep, testing::Range<uint64_t>(0, kShards));

}  // namespace
}  // namespace deepgemm::property
