#include "backend/cpu/launch_test_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/formats.hpp"
#include "schedule/family.hpp"

namespace deepgemm::cpu {
namespace {

constexpr size_t kGuard = 256;
constexpr uint8_t kNanFill = 0xFF;  // NaN in every float format

layout::MatrixLayout layout_of(Form form, int64_t batch, int64_t rows, int64_t cols) {
  layout::MatrixLayout layout{batch, rows, cols, rows * cols, cols, 1, false};
  switch (form) {
    case Form::kRows:
      break;
    case Form::kColumns:
      layout.row_stride = 1;
      layout.col_stride = rows;
      break;
    case Form::kPadded:
      layout.row_stride = cols + 3;
      layout.batch_stride = rows * (cols + 3) + 5;
      break;
    case Form::kScattered:
      layout.row_stride = 2 * cols + 1;
      layout.col_stride = 2;
      layout.batch_stride = rows * (2 * cols + 1);
      break;
    case Form::kReversed:
      layout.row_stride = -cols;
      break;
    case Form::kRepeated:
      layout.row_stride = 0;
      break;
    case Form::kBlocked: {
      const int64_t edge = layout::kBlockedTile;
      layout.blocked = true;
      layout.row_stride = 0;
      layout.batch_stride = (rows + edge - 1) / edge * edge * ((cols + edge - 1) / edge * edge);
      break;
    }
  }
  return layout;
}

bool transposes_a(gemm_operation_t operation) {
  return operation == GEMM_OP_TN || operation == GEMM_OP_TT;
}
bool transposes_b(gemm_operation_t operation) {
  return operation == GEMM_OP_NT || operation == GEMM_OP_TT;
}

}  // namespace

std::string Case::text() const {
  return fmt::format(
      "op {} m {} (of {}) n {} k {} batch {} a {} b {} c {} path {} forms {} {} {} alpha {} beta "
      "{} act {} "
      "bias {} residual {} strategy {} group {} scales {} {} packed {} blocks {} {} {} isa {} seed "
      "{}",
      static_cast<int>(operation), rows < 0 ? m : rows, m, n, k, batch, base::find_format(a)->name,
      base::find_format(b)->name, base::find_format(c)->name, contract::path_info(path).name,
      static_cast<int>(form_a), static_cast<int>(form_b), static_cast<int>(form_c), alpha, beta,
      static_cast<int>(activation), bias, residual, static_cast<int>(strategy), group_size, scale_a,
      scale_b, weights.has_value(), block_m, block_n, block_k, isa ? isa_name(*isa) : "default",
      seed);
}

// ---- Buffer -------------------------------------------------------------------------------------

Buffer::Buffer(const layout::MatrixLayout& layout, gemm_precision_t precision, uint8_t fill,
               size_t misaligned)
    : layout_(layout), precision_(precision) {
  const layout::Extent extent = *layout::extent(layout);
  const auto size = static_cast<size_t>(base::storage_bytes(precision, 1));
  const size_t before = static_cast<size_t>(-extent.first) * size;
  const size_t elements = static_cast<size_t>(extent.last - extent.first + 1);
  bytes_.assign(kGuard + elements * size + kGuard + 64, fill);
  const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
  start_ = (64 - address % 64) % 64 + kGuard / 2 + misaligned + before;
}

double Buffer::get(int64_t batch, int64_t row, int64_t column) const {
  return base::decode(precision_, base(), layout::element_offset(layout_, batch, row, column));
}

void Buffer::set(int64_t batch, int64_t row, int64_t column, double value) {
  base::encode(precision_, base(), layout::element_offset(layout_, batch, row, column), value);
}

int64_t Buffer::bytes_damaged(const Buffer& snapshot, int64_t rows) const {
  std::vector<bool> belongs(bytes_.size(), false);
  const auto size = base::storage_bytes(precision_, 1);
  for (int64_t b = 0; b < layout_.batch; ++b) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < layout_.cols; ++j) {
        const auto first =
            static_cast<int64_t>(start_) + layout::element_offset(layout_, b, i, j) * size;
        for (int64_t byte = 0; byte < size; ++byte)
          belongs[static_cast<size_t>(first + byte)] = true;
      }
    }
  }
  int64_t damaged = 0;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (!belongs[i] && bytes_[i] != snapshot.bytes_[i]) ++damaged;
  }
  return damaged;
}

bool Buffer::same_bytes(const Buffer& other) const {
  const size_t before = std::min(start_, other.start_);
  const size_t after = std::min(bytes_.size() - start_, other.bytes_.size() - other.start_);
  return std::memcmp(bytes_.data() + start_ - before, other.bytes_.data() + other.start_ - before,
                     before + after) == 0;
}

// ---- Product ------------------------------------------------------------------------------------

Product::Product(const Case& description) : case_(description), random_(description.seed) {
  make_problem();
  fill_operands();
}

void Product::make_problem() {
  const Case& c = case_;
  problem_.operation = c.operation;
  problem_.m = c.m;
  problem_.n = c.n;
  problem_.k = c.k;
  problem_.batch = c.batch;
  problem_.epilogue.activation = c.activation;
  problem_.epilogue.bias = c.bias;
  problem_.epilogue.residual = c.residual;
  problem_.epilogue.bias_precision = c.bias_precision;
  problem_.epilogue.residual_precision = c.residual_precision;
  problem_.epilogue.residual_row_stride = problem_.output_columns() + 2;
  problem_.contract.dequant_strategy = c.strategy;
  problem_.contract.group_size = c.group_size;
  const bool ta = transposes_a(c.operation);
  const bool tb = transposes_b(c.operation);
  problem_.a = {c.a, layout_of(c.form_a, c.batch, ta ? c.k : c.m, ta ? c.m : c.k)};
  problem_.b = {c.b, layout_of(c.form_b, c.batch, tb ? c.n : c.k, tb ? c.k : c.n)};
  problem_.c = {c.c, layout_of(c.form_c, c.batch, c.m, problem_.output_columns())};
}

// Values that the format holds. exact: at most 2 in magnitude, so that sums of some hundred
// products are exact in FP32 and even in FP32 after scaling.
double Product::draw(gemm_precision_t precision) {
  if (case_.exact) return static_cast<double>(static_cast<int>(random_() % 5) - 2);
  std::uniform_real_distribution<double> value(-1.0, 1.0);
  return base::round_to(precision, value(random_) * (precision == PRECISION_INT8 ? 127 : 1));
}

float Product::draw_scale() {
  if (case_.exact) return std::ldexp(1.0F, static_cast<int>(random_() % 3) - 1);
  std::uniform_real_distribution<float> value(0.01F, 2.0F);
  return value(random_);
}

void Product::fill_operands() {
  const auto fill = [&](const intent::Operand& operand, bool repeated) {
    const layout::MatrixLayout& layout = operand.layout;
    Buffer buffer(layout, operand.precision, kNanFill, case_.misaligned);
    for (int64_t b = 0; b < layout.batch; ++b) {
      for (int64_t i = 0; i < (repeated ? std::min<int64_t>(layout.rows, 1) : layout.rows); ++i) {
        for (int64_t j = 0; j < layout.cols; ++j) buffer.set(b, i, j, draw(operand.precision));
      }
    }
    return buffer;
  };
  a_ = fill(problem_.a, case_.form_a == Form::kRepeated);
  if (case_.weights) {
    auto packed = pack(*case_.weights);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    packed_ = *packed;
  } else {
    b_ = fill(problem_.b, case_.form_b == Form::kRepeated);
  }
  c_ = Buffer(problem_.c.layout, case_.c, kNanFill, case_.misaligned);
  if (case_.beta != 0) c_ = fill(problem_.c, false);
  c_before_ = c_;
  const int64_t columns = problem_.output_columns();
  residual_ =
      fill({case_.residual_precision,
            {case_.batch, case_.m, columns, case_.m * (columns + 2), columns + 2, 1, false}},
           false);
  bias_ = fill({case_.bias_precision, layout_of(Form::kRows, 1, 1, case_.n)}, false);
  const int64_t k_scales = case_.k + 1;  // enough for every granularity
  for (int64_t i = 0; i < (case_.m + 1) * k_scales; ++i) scale_a_.push_back(draw_scale());
  for (int64_t i = 0; i < (case_.n + 1) * k_scales; ++i) scale_b_.push_back(draw_scale());
}

Operands Product::operands() {
  Operands operands;
  operands.a = a_.base();
  operands.b = packed_ ? nullptr : b_.base();
  operands.packed_b = packed_.get();
  operands.c = c_.base();
  operands.bias = case_.bias ? bias_.base() : nullptr;
  operands.residual = case_.residual ? residual_.base() : nullptr;
  operands.scale_a = case_.scale_a ? scale_a_.data() : nullptr;
  operands.scale_b = case_.scale_b ? scale_b_.data() : nullptr;
  operands.alpha = case_.alpha;
  operands.beta = case_.beta;
  operands.m = rows();
  return operands;
}

base::Result<std::shared_ptr<const Executable>> Product::executable() const {
  schedule::Choice choice;
  choice.path = case_.path;
  choice.family = schedule::find_family(case_.family);
  choice.config.block_m = case_.block_m;
  choice.config.block_n = case_.block_n;
  choice.config.block_k = case_.block_k;
  choice.packed_b = case_.weights.has_value();
  return make_executable(problem_, choice, {case_.isa, case_.pool});
}

void Product::launch() {
  const auto made = executable();
  ASSERT_TRUE(made.ok()) << made.error().message << "\n" << case_.text();
  const size_t bytes = workspace_bytes(**made);
  // Scratch full of NaN: nothing may be read before it was written.
  std::vector<uint8_t> workspace(bytes + 128, kNanFill);
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  const size_t start = (64 - address % 64) % 64;
  cpu::launch(**made, operands(), workspace.data() + start);
  const bool kept = std::all_of(workspace.begin() + static_cast<std::ptrdiff_t>(start + bytes),
                                workspace.end(), [](uint8_t byte) { return byte == kNanFill; });
  EXPECT_TRUE(kept) << "wrote behind the workspace: " << case_.text();
}

// The granularities as include/deepgemm/types.h states them.
double Product::scale_of(bool is_b, int64_t outer, int64_t k) const {
  const std::vector<float>& scales = is_b ? scale_b_ : scale_a_;
  if (!(is_b ? case_.scale_b : case_.scale_a)) return 1;
  int64_t index = outer;
  switch (case_.strategy) {
    case DEQUANT_STRATEGY_PER_TENSOR:
      index = 0;
      break;
    case DEQUANT_STRATEGY_PER_GROUP: {
      const int64_t groups = (case_.k + case_.group_size - 1) / case_.group_size;
      index = outer * groups + k / case_.group_size;
      break;
    }
    case DEQUANT_STRATEGY_BLOCK_128:
      index = (is_b ? outer / 128 : outer) * ((case_.k + 127) / 128) + k / 128;
      break;
    default:
      break;
  }
  return static_cast<double>(scales[static_cast<size_t>(index)]);
}

contract::ReferenceProblem Product::reference_problem(int64_t batch) const {
  contract::ReferenceProblem reference;
  reference.m = rows();
  reference.n = case_.n;
  reference.k = case_.k;
  reference.alpha = case_.alpha;
  reference.beta = case_.beta;
  reference.activation = case_.activation;
  reference.output = case_.c;
  const bool ta = transposes_a(case_.operation);
  const bool tb = transposes_b(case_.operation);
  for (int64_t i = 0; i < rows(); ++i) {
    for (int64_t p = 0; p < case_.k; ++p) {
      const double value = ta ? a_.get(batch, p, i) : a_.get(batch, i, p);
      reference.a.push_back(value * scale_of(false, i, p));
    }
  }
  for (int64_t p = 0; p < case_.k; ++p) {
    for (int64_t j = 0; j < case_.n; ++j) {
      if (case_.weights) {
        reference.b.push_back(layout::weight_value(*case_.weights, p, j));
        continue;
      }
      const double value = tb ? b_.get(batch, j, p) : b_.get(batch, p, j);
      reference.b.push_back(value * scale_of(true, j, p));
    }
  }
  for (int64_t i = 0; i < rows(); ++i) {
    for (int64_t j = 0; j < columns(); ++j) {
      if (case_.beta != 0) reference.c0.push_back(c_before_.get(batch, i, j));
      if (case_.residual) reference.residual.push_back(residual_.get(batch, i, j));
    }
  }
  for (int64_t j = 0; j < case_.n && case_.bias; ++j) reference.bias.push_back(bias_.get(0, 0, j));
  return reference;
}

void Product::expect_exact() const {
  for (int64_t batch = 0; batch < case_.batch; ++batch) {
    const contract::Reference reference = contract::compute_reference(reference_problem(batch));
    for (int64_t i = 0; i < rows(); ++i) {
      for (int64_t j = 0; j < columns(); ++j) {
        const double expected =
            base::round_to(case_.c, reference.value[static_cast<size_t>(i * columns() + j)]);
        ASSERT_EQ(result(batch, i, j), expected)
            << "batch " << batch << " at " << i << "," << j << ": " << case_.text();
      }
    }
  }
}

contract::ErrorBound Product::bound() const {
  const schedule::Family& family = *schedule::find_family(case_.family);
  schedule::KernelConfig config;
  config.block_m = case_.block_m;
  config.block_n = case_.block_n;
  config.block_k = case_.block_k;
  contract::BoundInput input;
  input.path = case_.path;
  input.k = case_.k;
  input.a = case_.a;
  input.b = case_.b;
  input.output = case_.c;
  input.accumulation =
      schedule::accumulation(family, case_.path, config, {}, case_.k,
                             case_.weights ? case_.weights->group_size : case_.group_size);
  input.scales = case_.scale_a || case_.scale_b || case_.weights;
  input.beta = case_.beta != 0;
  input.bias = case_.bias;
  input.residual = case_.residual;
  input.activation = case_.activation;
  input.alpha = case_.alpha;
  return contract::error_bound(input);
}

void Product::expect_within_bound() const {
  const contract::ErrorBound limit = bound();
  ASSERT_TRUE(std::isfinite(limit.relative)) << case_.text();
  for (int64_t batch = 0; batch < case_.batch; ++batch) {
    const contract::Reference reference = contract::compute_reference(reference_problem(batch));
    std::vector<double> values;
    for (int64_t i = 0; i < rows(); ++i) {
      for (int64_t j = 0; j < columns(); ++j) values.push_back(result(batch, i, j));
    }
    const contract::Comparison comparison =
        contract::compare(values, reference, rows(), columns(), limit.relative, limit.absolute);
    ASSERT_TRUE(comparison.passed())
        << comparison.outside << " outside, " << comparison.nonfinite << " not finite, worst "
        << comparison.max_relative << " of " << limit.relative << ": " << case_.text();
  }
}

void Product::expect_guards_untouched() const {
  EXPECT_EQ(c_.bytes_damaged(c_before_, rows()), 0) << case_.text();
}

// ---- Weights ------------------------------------------------------------------------------------

namespace {

bool is_integer(const WeightCase& description) {
  return base::find_format(description.precision)->is_integer;
}

void draw_scales(const WeightCase& description, std::mt19937_64& random,
                 layout::QuantizedWeights& weights) {
  const bool int4 = base::is_int4(description.precision);
  const int64_t groups = (description.k + description.group_offset + description.group_size - 1) /
                         description.group_size;
  const int64_t columns = (description.n + description.block_n - 1) / description.block_n;
  std::uniform_real_distribution<float> scale(0.001F, 0.1F);
  for (int64_t i = 0; i < groups * columns; ++i) {
    const float value =
        description.exact ? std::ldexp(1.0F, -static_cast<int>(random() % 3)) : scale(random);
    weights.scales.push_back(base::fp16_to_float(base::float_to_fp16(value)));
  }
  for (int64_t i = 0; i < groups * description.n; ++i) {
    if (!is_integer(description) || !description.zeros) break;
    weights.zeros.push_back(static_cast<uint8_t>(int4 ? random() % 16 : 120 + random() % 16));
  }
  for (int64_t k = 0; k < description.k && description.act_order; ++k) {
    weights.g_idx.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(groups)));
  }
}

void draw_outliers(const WeightCase& description, std::mt19937_64& random,
                   layout::QuantizedWeights& weights) {
  std::set<int64_t> channels;
  while (static_cast<int>(channels.size()) < description.outliers) {
    channels.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(description.k)));
  }
  weights.outlier_channels.assign(channels.begin(), channels.end());
  for (size_t i = 0; i < channels.size() * static_cast<size_t>(description.n); ++i) {
    const double value = static_cast<double>(static_cast<int>(random() % 65) - 32);
    weights.outlier_values.push_back(
        base::double_to_fp16(description.exact ? value : value * 0.37));
  }
}

uint8_t draw_code(const WeightCase& description, std::mt19937_64& random) {
  if (base::is_int4(description.precision)) return static_cast<uint8_t>(random() % 16);
  // exact: near the zero point, so that sums stay small integers.
  return static_cast<uint8_t>(description.exact ? 126 + random() % 5 : random() % 256);
}

}  // namespace

layout::QuantizedWeights random_weights(const WeightCase& description) {
  std::mt19937_64 random(description.seed);
  layout::QuantizedWeights weights;
  weights.k = description.k;
  weights.n = description.n;
  weights.precision = description.precision;
  weights.group_size = description.group_size;
  weights.block_n = description.block_n;
  weights.group_offset = description.group_offset;
  draw_scales(description, random, weights);
  draw_outliers(description, random, weights);
  const auto zero_of = [&](int64_t k, int64_t n) {
    if (!weights.zeros.empty()) {
      return weights.zeros[static_cast<size_t>(weights.group_of(k) * description.n + n)];
    }
    return static_cast<uint8_t>(base::is_int4(description.precision) ? 8 : 128);
  };
  const auto& outliers = weights.outlier_channels;
  for (int64_t k = 0; k < description.k; ++k) {
    const bool outlier = std::binary_search(outliers.begin(), outliers.end(), k);
    for (int64_t n = 0; n < description.n; ++n) {
      if (is_integer(description)) {
        weights.codes.push_back(outlier ? zero_of(k, n) : draw_code(description, random));
        continue;
      }
      uint8_t code = 0;  // FP8
      base::encode(description.precision, &code, 0,
                   static_cast<double>(static_cast<int>(random() % 5) - 2));
      weights.codes.push_back(code);
    }
  }
  return weights;
}

void expect_exact(const Case& description) {
  Product product(description);
  product.launch();
  product.expect_exact();
  product.expect_guards_untouched();
}

void expect_bounded(Case description) {
  description.exact = false;
  Product product(description);
  product.launch();
  product.expect_within_bound();
  product.expect_guards_untouched();
}

std::vector<Isa> runnable_isas() {
  std::vector<Isa> isas = {Isa::kGeneric};
  if (cpu_device().best_isa >= Isa::kAvx2) isas.push_back(Isa::kAvx2);
  if (cpu_device().best_isa >= Isa::kAvx512) isas.push_back(Isa::kAvx512);
  if (cpu_device().best_isa >= Isa::kAmx) isas.push_back(Isa::kAmx);
  return isas;
}

}  // namespace deepgemm::cpu
