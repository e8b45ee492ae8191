#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "intent/problem.hpp"

namespace deepgemm::intent {
namespace {

using testing::HasSubstr;

Problem problem_of(const std::string& line) {
  auto spec = parse_line(line);
  EXPECT_TRUE(spec.ok()) << line << ": " << (spec.ok() ? "" : spec.error().message);
  if (!spec.ok()) return {};
  auto problem = resolve(spec->intent, spec->m, spec->n, spec->k);
  EXPECT_TRUE(problem.ok()) << line << ": " << (problem.ok() ? "" : problem.error().message);
  return problem.ok() ? *problem : Problem{};
}

std::string error_of(const std::string& line) {
  const auto spec = parse_line(line);
  if (spec.ok()) return "no error";
  EXPECT_EQ(spec.error().code, DEEPGEMM_ERROR_FORMAT);
  return spec.error().message;
}

TEST(Line, LeavesOutDefaults) {
  EXPECT_EQ(format_line(problem_of("nn m=2 n=3 k=4")), "nn m=2 n=3 k=4 a=fp32");
  EXPECT_EQ(
      format_line(problem_of("nt k=4 n=3 m=2 a=fp16 b=fp16 c=fp16 batch=1 alpha=1 beta=0 sm=all "
                             "prefetch=default la=any basis=probabilistic")),
      "nt m=2 n=3 k=4 a=fp16");
}

TEST(Line, NamesAnInt4ProblemAsDocumented) {
  const std::string line = "nt m=1 n=4096 k=4096 a=fp16 b=int4_awq abs=0.002 outlier=fp16 group=64";
  const Problem problem = problem_of(line);
  EXPECT_EQ(problem.contract.output, PRECISION_FP16);
  EXPECT_EQ(problem.contract.group_size, 64);
  EXPECT_TRUE(problem.requires_packed_b());
  EXPECT_EQ(format_line(problem), line);
}

TEST(Line, KeepsEveryField) {
  const std::string line =
      "tt m=7 n=8 k=9 batch=3 a=fp8_e4m3 b=int8 c=bf16 role=scores alpha=0.1 beta=-2 rel=0.001 "
      "abs=1e-05 safe dequant=channel repro=batch confidence=0.5 max_a=2.5 max_b=0.3 skip=0.25 "
      "seed=18446744073709551615 act=gelu_tanh bias=fp64 residual=fp32 residual_stride=11 "
      "latency_us=12.5 energy_mj=3 reliability=2 tile=64x128x32 warp=16x16x16 sm=dynamic "
      "prefetch=aggressive la=col/l2 lb=row/pinned/once:*,13,1 lc=row/reused:200,1,9";
  const Problem problem = problem_of(line);
  EXPECT_EQ(problem.b.layout.batch_stride, 0);
  EXPECT_EQ(problem.c.layout.col_stride, 9);
  EXPECT_EQ(problem.contract.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(problem_of(format_line(problem)), problem) << format_line(problem);
}

TEST(Line, KeepsTf32AsInputFormat) {
  const Problem problem = problem_of("nt m=4 n=4 k=4 a=tf32");
  EXPECT_TRUE(problem.contract.tf32_allowed);
  EXPECT_EQ(problem.contract.a, PRECISION_FP32);
  EXPECT_EQ(format_line(problem), "nt m=4 n=4 k=4 a=fp32 in=tf32");
  EXPECT_EQ(problem_of(format_line(problem)), problem);
}

// One group over all of K is what INT8 weights have by default, but not what dequant=group means.
TEST(Line, WritesAGroupThatIsNotTheUsualOneOfItsStrategy) {
  const std::string line = "nn m=1 n=16 k=4096 a=int8 rel=1 dequant=group group=-1";
  const Problem problem = problem_of(line);
  EXPECT_EQ(problem.contract.group_size, 4096);
  EXPECT_EQ(format_line(problem), line);
}

TEST(Line, CarriesTheDeviceBesideTheProblem) {
  const auto spec = parse_line("nt m=1 n=1 k=1 device=cuda:1");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->device, "cuda:1");
  EXPECT_EQ(spec->intent.device, nullptr);
}

TEST(Line, NamesTheNearestKeyAndWord) {
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 latencyus=3"), HasSubstr("the nearest is 'latency_us'"));
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 a=fp15"), HasSubstr("the nearest is a=fp16"));
  EXPECT_THAT(error_of("nu m=1 n=1 k=1"), HasSubstr("the nearest is operation=nn"));
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 la=roww/l2"), HasSubstr("the nearest is la=row"));
}

TEST(Line, RefusesWhatItCannotRead) {
  EXPECT_THAT(error_of(""), HasSubstr("empty"));
  EXPECT_THAT(error_of("  \n"), HasSubstr("empty"));
  EXPECT_THAT(error_of("nt m=1 n=1"), HasSubstr("no k="));
  EXPECT_THAT(error_of("nt m=1 m=2 n=1 k=1"), HasSubstr("given twice"));
  EXPECT_THAT(error_of("nt m=1 n=1 k="), HasSubstr("no value"));
  EXPECT_THAT(error_of("nt m=1 n=1 k"), HasSubstr("no value"));
  EXPECT_THAT(error_of("nt m=1x n=1 k=1"), HasSubstr("not a number"));
  EXPECT_THAT(error_of("nt m=99999999999999999999 n=1 k=1"), HasSubstr("too large"));
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 tile=64x64"), HasSubstr("three sizes"));
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 tile=64x64x64x64"), HasSubstr("three sizes"));
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 la=row:1,2"), HasSubstr("three numbers"));
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 safe=yes"), HasSubstr("stands alone"));
  EXPECT_THAT(error_of("nt m=1 n=1 k=1 =3"), HasSubstr("no field"));
}

// ---- Round trip over random problems
// -------------------------------------------------------------

template <class T>
T one_of(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

bool sometimes() { return *rc::gen::inRange(0, 4) == 0; }

double some_number() {
  return one_of({0.0, 0.001, 1e-300, 0.1, 1.0 / 3, 2.5, 12345.678901234567, 1e20});
}

gemm_layout_t some_layout(int64_t rows, int64_t cols, bool is_output) {
  gemm_layout_t layout = {};
  layout.physical_layout = static_cast<gemm_physical_layout_t>(*rc::gen::inRange(0, 5));
  layout.memory_space = static_cast<gemm_memory_space_t>(*rc::gen::inRange(0, 3));
  layout.access_pattern = static_cast<gemm_access_pattern_t>(*rc::gen::inRange(0, 3));
  if (layout.physical_layout == LAYOUT_BLOCKED_16x16 || !sometimes()) return layout;
  const int64_t padding = *rc::gen::inRange<int64_t>(0, 5);
  if (sometimes()) {
    layout.strides[1] = cols + padding;
    layout.strides[2] = 1;
  } else if (sometimes()) {
    layout.strides[1] = 1;
    layout.strides[2] = rows + padding;
  } else if (!is_output) {
    layout.strides[one_of({0, 1, 2})] = GEMM_STRIDE_BROADCAST;
  }
  return layout;
}

bool is_quantised(const numerical_contract_t& contract) {
  const gemm_precision_t weights = contract.weight_precision != PRECISION_DEFAULT
                                       ? contract.weight_precision
                                       : contract.input_precision;
  return weights >= PRECISION_FP8_E4M3;
}

void choose_formats(numerical_contract_t& contract) {
  contract.input_precision = static_cast<gemm_precision_t>(*rc::gen::inRange(0, 12));
  if (sometimes()) {
    contract.activation_precision = static_cast<gemm_precision_t>(*rc::gen::inRange(0, 9));
    contract.weight_precision = static_cast<gemm_precision_t>(*rc::gen::inRange(0, 12));
  }
  contract.output_precision = one_of({PRECISION_DEFAULT, PRECISION_FP32, PRECISION_FP16,
                                      PRECISION_BF16, PRECISION_FP8_E4M3, PRECISION_TF32});
}

void choose_quantisation(numerical_contract_t& contract) {
  if (!is_quantised(contract)) return;
  if (contract.input_precision >= PRECISION_INT4 && sometimes()) {
    contract.outlier_handling = one_of({OUTLIER_FP16_CHANNEL, OUTLIER_CLAMP_TO_99TH_PERCENTILE});
    if (contract.outlier_handling == OUTLIER_FP16_CHANNEL && sometimes()) {
      contract.outlier_fraction = 0.02;
    }
  }
  if (!sometimes()) return;
  contract.dequant_strategy = static_cast<gemm_dequant_strategy_t>(*rc::gen::inRange(0, 6));
  contract.quantization_group_size = one_of({-1, 0, 0, 0, 16, 32, 64, 128, 256});
}

numerical_contract_t some_contract() {
  numerical_contract_t contract = {};
  choose_formats(contract);
  choose_quantisation(contract);
  contract.safe_accumulation = sometimes();
  contract.max_relative_error = some_number();
  contract.max_absolute_error = some_number();
  if (contract.max_relative_error > 0 && sometimes()) {
    contract.error_model = ERROR_MODEL_RELATIVE_EPSILON;
  }
  contract.reproducibility = static_cast<gemm_reproducibility_t>(*rc::gen::inRange(0, 3));
  contract.bound_basis = static_cast<gemm_bound_basis_t>(*rc::gen::inRange(0, 3));
  if (contract.bound_basis != BOUND_BASIS_WORST_CASE && sometimes()) contract.confidence = 0.99;
  if (sometimes()) contract.max_abs_a = some_number();
  if (sometimes()) contract.max_abs_b = some_number();
  if (sometimes()) contract.skip_tolerance = 0.125;
  if (sometimes()) contract.seed = *rc::gen::arbitrary<uint64_t>();
  return contract;
}

gemm_epilogue_t some_epilogue(int64_t n) {
  gemm_epilogue_t epilogue = {};
  epilogue.activation = static_cast<gemm_activation_t>(*rc::gen::inRange(0, 6));
  const auto precision = [] {
    return one_of({PRECISION_DEFAULT, PRECISION_FP64, PRECISION_FP32, PRECISION_BF16});
  };
  epilogue.bias = sometimes();
  epilogue.bias_precision = precision();
  epilogue.residual = sometimes();
  epilogue.residual_precision = precision();
  if (epilogue.residual && sometimes()) epilogue.residual_row_stride = n + 5;
  return epilogue;
}

gemm_intent_t some_intent(int64_t m, int64_t n, int64_t k) {
  gemm_intent_t intent = {};
  intent.operation = static_cast<gemm_operation_t>(*rc::gen::inRange(0, 4));
  intent.role = static_cast<gemm_role_t>(*rc::gen::inRange(0, 9));
  intent.alpha = some_number();
  intent.beta = -some_number();
  intent.numerical_contract = some_contract();
  intent.epilogue = some_epilogue(n);
  intent.budget = {some_number(), some_number(), *rc::gen::inRange(0, 4)};
  if (sometimes()) {
    intent.tiling_policy = {
        64, 128, one_of({0, 32}),    16,
        16, 0,   one_of({-1, 0, 5}), static_cast<gemm_l2_prefetch_t>(*rc::gen::inRange(0, 4)),
        {}};
  }
  if (sometimes()) intent.batch_count = *rc::gen::inRange<int64_t>(0, 4);
  const StoredShape a = stored_shape_a(intent.operation, m, k);
  const StoredShape b = stored_shape_b(intent.operation, n, k);
  const bool pairs = intent.epilogue.activation == GEMM_ACTIVATION_SWIGLU;
  intent.layout_a = some_layout(a.rows, a.cols, false);
  if (sometimes()) intent.layout_b = some_layout(b.rows, b.cols, false);
  intent.layout_c = some_layout(m, pairs ? n / 2 : n, true);
  return intent;
}

// False when the random intent does not resolve.
bool check_round_trip() {
  const auto size = [] { return one_of<int64_t>({0, 1, 2, 16, 48, 64, 127, 128, 200, 4096}); };
  const int64_t m = size(), n = size(), k = size();
  const auto problem = resolve(some_intent(m, n, k), m, n, k);
  if (!problem.ok()) return false;
  const std::string line = format_line(*problem);
  const auto spec = parse_line(line);
  RC_LOG() << line << "\n" << (spec.ok() ? "" : spec.error().message);
  RC_ASSERT(spec.ok());
  const auto again = resolve(spec->intent, spec->m, spec->n, spec->k);
  if (!again.ok()) RC_LOG() << again.error().message;
  RC_ASSERT(again.ok());
  RC_ASSERT(*again == *problem);
  RC_ASSERT(format_line(*again) == line);
  return true;
}

RC_GTEST_PROP(Line, RoundTripsEveryProblem, ()) {
  int resolved = 0;
  for (int i = 0; i < 50; ++i) resolved += check_round_trip() ? 1 : 0;
  RC_ASSERT(resolved >= 5);  // else the generator tests too little
}

RC_GTEST_PROP(Line, NeverCrashesOnAnyText, (const std::string& text)) {
  const auto spec = parse_line("nt m=1 n=1 k=1 " + text);
  if (!spec.ok()) RC_ASSERT(spec.error().code == DEEPGEMM_ERROR_FORMAT);
}

}  // namespace
}  // namespace deepgemm::intent
