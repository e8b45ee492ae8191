#include "random_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/formats.hpp"

namespace deepgemm::property {
namespace {

constexpr int64_t kGuardBytes = 256;
constexpr uint8_t kGuardByte = 0xA5;

using Random = std::mt19937_64;

int64_t pick(Random& random, std::initializer_list<int64_t> values) {
  return *(values.begin() + static_cast<int64_t>(random() % values.size()));
}

bool chance(Random& random, unsigned percent) { return random() % 100 < percent; }

int64_t random_size(Random& random) {
  if (chance(random, 1)) return 0;
  if (chance(random, 60)) return pick(random, {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17});
  if (chance(random, 80)) return pick(random, {24, 31, 32, 33, 48, 63, 64, 65});
  return pick(random, {100, 127, 128, 129, 200, 257});
}

// Declares a random layout for a stored matrix and returns its resolved form.
layout::MatrixLayout random_layout(Random& random, int64_t batch, int64_t rows, int64_t cols,
                                   bool is_output, gemm_layout_t& declared) {
  const uint64_t kind = random() % 8;
  if (chance(random, 50)) {
    declared.logical_shape[0] = batch;
    declared.logical_shape[1] = rows;
    declared.logical_shape[2] = cols;
  }
  declared.access_pattern = static_cast<gemm_access_pattern_t>(random() % 3);
  if (kind == 1) declared.physical_layout = LAYOUT_COL_MAJOR;
  if (kind == 2) declared.physical_layout = LAYOUT_BLOCKED_16x16;
  if (kind == 3) declared.physical_layout = LAYOUT_STREAMING;
  if (kind == 4) declared.physical_layout = LAYOUT_ROW_MAJOR;
  if (kind == 5 && rows > 0 && cols > 0) {  // both strides free, gaps in between
    const int64_t col_stride = pick(random, {1, 2, 3});
    const int64_t row_stride = cols * col_stride + pick(random, {0, 1, 5});
    declared.strides[2] = col_stride;
    declared.strides[1] = row_stride;
    declared.strides[0] = rows * row_stride + pick(random, {0, 7});
  }
  if (kind == 6 && rows > 0 && cols > 0) {  // rows backwards
    const int64_t row_stride = cols + pick(random, {0, 3});
    declared.strides[1] = -row_stride;
    declared.strides[2] = 1;
    declared.strides[0] = rows * row_stride;
  }
  if (kind == 7 && !is_output && rows > 1 && cols > 0) declared.strides[1] = GEMM_STRIDE_BROADCAST;
  auto resolved = layout::resolve(declared, batch, rows, cols, "operand", is_output);
  return resolved.ok() ? *resolved : layout::MatrixLayout{};
}

void random_epilogue(Random& random, Case& out) {
  gemm_intent_t& intent = out.intent;
  if (chance(random, 40)) intent.alpha = std::ldexp(static_cast<double>(random() % 7) - 3.5, -1);
  if (chance(random, 30)) intent.beta = std::ldexp(static_cast<double>(random() % 9) - 4, -2);
  if (chance(random, 30)) intent.epilogue.bias = true;
  if (chance(random, 20)) intent.epilogue.residual = true;
  if (chance(random, 40)) {
    intent.epilogue.activation = static_cast<gemm_activation_t>(random() % 6);
    if (intent.epilogue.activation == GEMM_ACTIVATION_SWIGLU && out.n % 2 != 0) ++out.n;
  }
}

void declare_contract(Random& random, Case& out) {
  numerical_contract_t& contract = out.intent.numerical_contract;
  const Recipe& recipe = *out.recipe;
  contract.input_precision = recipe.input;
  contract.activation_precision = recipe.activation;
  contract.weight_precision = recipe.weight;
  contract.output_precision = recipe.outputs[random() % recipe.outputs.size()];
  contract.max_relative_error = recipe.relative_limit;
  contract.bound_basis = chance(random, 50) ? BOUND_BASIS_WORST_CASE : BOUND_BASIS_DEFAULT;
  contract.reproducibility = static_cast<gemm_reproducibility_t>(random() % 3);
  if (base::is_int4(recipe.weight)) {
    contract.quantization_group_size = static_cast<int32_t>(pick(random, {-1, 16, 32, 64, 128}));
    contract.outlier_handling = static_cast<gemm_outlier_handling_t>(random() % 3);
    if (contract.outlier_handling == OUTLIER_FP16_CHANNEL) contract.outlier_fraction = 0.1;
  }
  if (recipe.scaled) {
    contract.dequant_strategy = static_cast<gemm_dequant_strategy_t>(
        base::is_fp8(recipe.weight) ? pick(random, {1, 2, 5}) : pick(random, {1, 2}));
  }
}

// Scales of one operand with `lines` rows (of A) or columns (of B): powers of two times a fraction.
std::vector<float> random_scales(Random& random, int64_t count) {
  std::vector<float> scales(static_cast<size_t>(count));
  for (float& scale : scales) {
    scale = std::ldexp(1.0F + static_cast<float>(random() % 1024) / 1024.0F,
                       static_cast<int>(random() % 9) - 6);
  }
  return scales;
}

int64_t blocks(int64_t size) { return (size + 127) / 128; }

void random_launch_scales(Random& random, Case& out) {
  switch (out.intent.numerical_contract.dequant_strategy) {
    case DEQUANT_STRATEGY_PER_TENSOR:
      out.scale_a = random_scales(random, 1);
      out.scale_b = random_scales(random, 1);
      break;
    case DEQUANT_STRATEGY_PER_CHANNEL:
      out.scale_a = random_scales(random, out.m);
      out.scale_b = random_scales(random, out.n);
      break;
    default:
      out.scale_a = random_scales(random, out.m * blocks(out.k));
      out.scale_b = random_scales(random, blocks(out.n) * blocks(out.k));
  }
}

double scale_of_a(const Case& c, int64_t row, int64_t k) {
  if (c.scale_a.empty()) return 1;
  if (c.scale_a.size() == 1) return c.scale_a[0];
  if (c.intent.numerical_contract.dequant_strategy == DEQUANT_STRATEGY_PER_CHANNEL) {
    return c.scale_a[static_cast<size_t>(row)];
  }
  return c.scale_a[static_cast<size_t>(row * blocks(c.k) + k / 128)];
}

double scale_of_b(const Case& c, int64_t k, int64_t col) {
  if (c.scale_b.empty()) return 1;
  if (c.scale_b.size() == 1) return c.scale_b[0];
  if (c.intent.numerical_contract.dequant_strategy == DEQUANT_STRATEGY_PER_CHANNEL) {
    return c.scale_b[static_cast<size_t>(col)];
  }
  return c.scale_b[static_cast<size_t>(col / 128 * blocks(c.k) + k / 128)];
}

contract::InputSet random_input_set(Random& random) {
  static constexpr contract::InputSet kSets[] = {
      contract::InputSet::kGaussian, contract::InputSet::kUniform, contract::InputSet::kExact,
      contract::InputSet::kCancellation, contract::InputSet::kOutlierChannels};
  return kSets[random() % std::size(kSets)];
}

bool a_transposed(const Case& c) {
  return c.intent.operation == GEMM_OP_TN || c.intent.operation == GEMM_OP_TT;
}
bool b_transposed(const Case& c) {
  return c.intent.operation == GEMM_OP_NT || c.intent.operation == GEMM_OP_TT;
}

// Stores the generated values and reads them back, so that the reference sees what lies in memory
// (broadcast layouts keep the last value written).
void fill_operands(Random& random, Case& out) {
  contract::InputSet set = random_input_set(random);
  for (int64_t batch = 0; batch < out.batch; ++batch) {
    contract::ReferenceProblem& reference = out.reference[static_cast<size_t>(batch)];
    contract::generate_inputs(set, random(), out.recipe->activation, out.recipe->weight, reference);
    for (int64_t i = 0; i < out.m; ++i) {
      for (int64_t l = 0; l < out.k; ++l) {
        const double value = reference.a[static_cast<size_t>(i * out.k + l)];
        a_transposed(out) ? out.a.store(batch, l, i, value) : out.a.store(batch, i, l, value);
      }
    }
    if (out.recipe->packed) continue;
    for (int64_t l = 0; l < out.k; ++l) {
      for (int64_t j = 0; j < out.n; ++j) {
        const double value = reference.b[static_cast<size_t>(l * out.n + j)];
        b_transposed(out) ? out.b.store(batch, j, l, value) : out.b.store(batch, l, j, value);
      }
    }
  }
}

void read_back(Case& out) {
  for (int64_t batch = 0; batch < out.batch; ++batch) {
    contract::ReferenceProblem& reference = out.reference[static_cast<size_t>(batch)];
    for (int64_t i = 0; i < out.m; ++i) {
      for (int64_t l = 0; l < out.k; ++l) {
        const double stored = a_transposed(out) ? out.a.load(batch, l, i) : out.a.load(batch, i, l);
        reference.a[static_cast<size_t>(i * out.k + l)] = stored * scale_of_a(out, i, l);
      }
    }
    if (out.recipe->packed) continue;
    for (int64_t l = 0; l < out.k; ++l) {
      for (int64_t j = 0; j < out.n; ++j) {
        const double stored = b_transposed(out) ? out.b.load(batch, j, l) : out.b.load(batch, l, j);
        reference.b[static_cast<size_t>(l * out.n + j)] = stored * scale_of_b(out, l, j);
      }
    }
  }
}

std::vector<uint8_t> random_vector(Random& random, gemm_precision_t precision, int64_t count,
                                   std::vector<double>& decoded) {
  std::vector<uint8_t> bytes(static_cast<size_t>(base::storage_bytes(precision, count)));
  decoded.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    base::encode(precision, bytes.data(), i, (static_cast<double>(random() % 2001) - 1000) / 500);
    decoded[static_cast<size_t>(i)] = base::decode(precision, bytes.data(), i);
  }
  return bytes;
}

void fill_epilogue_operands(Random& random, Case& out) {
  const gemm_precision_t precision = out.intent.numerical_contract.output_precision;
  const int64_t columns = out.reference.front().output_columns();
  std::vector<double> decoded;
  if (out.intent.epilogue.bias) {
    out.bias = random_vector(random, precision, out.n, decoded);
    for (auto& reference : out.reference) reference.bias = decoded;
  }
  if (out.intent.epilogue.residual) {
    out.residual = random_vector(random, precision, out.batch * out.m * columns, decoded);
    const auto per_batch = static_cast<std::ptrdiff_t>(out.m * columns);
    for (int64_t batch = 0; batch < out.batch; ++batch) {
      const auto first = decoded.begin() + batch * per_batch;
      out.reference[static_cast<size_t>(batch)].residual.assign(first, first + per_batch);
    }
  }
}

void fill_weights(Random& random, Case& out) {
  out.dense_weights.resize(static_cast<size_t>(out.n * out.k));
  std::normal_distribution<double> normal(0, 0.05);
  for (double& weight : out.dense_weights) weight = normal(random);
}

}  // namespace

const std::vector<Recipe>& recipes() {
  using P = gemm_precision_t;
  const std::vector<P> wide = {PRECISION_FP32, PRECISION_FP16, PRECISION_BF16};
  static const std::vector<Recipe> kRecipes = {
      {"fp64", PRECISION_FP64, PRECISION_FP64, PRECISION_FP64, {PRECISION_FP64}, 0, false, false},
      {"fp32", PRECISION_FP32, PRECISION_FP32, PRECISION_FP32, wide, 0, false, false},
      {"tight",
       PRECISION_FP32,
       PRECISION_FP32,
       PRECISION_FP32,
       {PRECISION_FP32},
       4e-7,
       false,
       false},
      {"fp16", PRECISION_FP16, PRECISION_FP16, PRECISION_FP16, wide, 0, false, false},
      {"bf16", PRECISION_BF16, PRECISION_BF16, PRECISION_BF16, wide, 0, false, false},
      {"fp8_e4m3", PRECISION_FP8_E4M3, PRECISION_FP8_E4M3, PRECISION_FP8_E4M3, wide, 0, false,
       true},
      {"fp8_e5m2", PRECISION_FP8_E5M2, PRECISION_FP8_E5M2, PRECISION_FP8_E5M2, wide, 0, false,
       true},
      {"int8", PRECISION_INT8, PRECISION_INT8, PRECISION_INT8, wide, 0, false, true},
      {"w4a16", PRECISION_INT4_AWQ, PRECISION_FP16, PRECISION_INT4_AWQ, wide, 0, true, false},
      {"w4a16_bf16", PRECISION_INT4, PRECISION_BF16, PRECISION_INT4, wide, 0, true, false},
      {"w8a16", PRECISION_INT8, PRECISION_FP16, PRECISION_INT8, wide, 0, true, false},
      {"fp32_packed", PRECISION_FP32, PRECISION_FP32, PRECISION_FP32, wide, 0, true, false},
      {"bf16_packed", PRECISION_BF16, PRECISION_BF16, PRECISION_BF16, wide, 0, true, false}};
  return kRecipes;
}

Buffer::Buffer(const layout::MatrixLayout& layout, gemm_precision_t precision)
    : layout_(layout), precision_(precision) {
  const auto range = layout::extent(layout);
  const int64_t elements = range.ok() ? range->last - range->first + 1 : 0;
  const int64_t unit = base::storage_bytes(precision, 1);
  bytes_ = std::make_shared<std::vector<uint8_t>>(
      static_cast<size_t>(elements * unit + 2 * kGuardBytes), kGuardByte);
  base_ = kGuardBytes - (range.ok() ? range->first : 0) * unit;
}

void* Buffer::data() const { return bytes_->data() + base_; }

void Buffer::fill(uint8_t byte) {
  std::fill(bytes_->begin() + kGuardBytes, bytes_->end() - kGuardBytes, byte);
}

void Buffer::store(int64_t batch, int64_t row, int64_t col, double value) {
  base::encode(precision_, data(), layout::element_offset(layout_, batch, row, col), value);
}

double Buffer::load(int64_t batch, int64_t row, int64_t col) const {
  return base::decode(precision_, data(), layout::element_offset(layout_, batch, row, col));
}

bool Buffer::guards_intact() const {
  const auto is_guard = [](uint8_t byte) { return byte == kGuardByte; };
  return std::all_of(bytes_->begin(), bytes_->begin() + kGuardBytes, is_guard) &&
         std::all_of(bytes_->end() - kGuardBytes, bytes_->end(), is_guard);
}

bool Buffer::gaps_intact(uint8_t byte) const {
  if (layout_.blocked) return true;  // padding of edge tiles may be written
  std::vector<bool> owned(bytes_->size(), false);
  const int64_t unit = base::storage_bytes(precision_, 1);
  for (int64_t batch = 0; batch < layout_.batch; ++batch) {
    for (int64_t row = 0; row < layout_.rows; ++row) {
      for (int64_t col = 0; col < layout_.cols; ++col) {
        const int64_t at = base_ + layout::element_offset(layout_, batch, row, col) * unit;
        for (int64_t i = 0; i < unit; ++i) owned[static_cast<size_t>(at + i)] = true;
      }
    }
  }
  for (size_t i = kGuardBytes; i + kGuardBytes < bytes_->size(); ++i) {
    if (!owned[i] && (*bytes_)[i] != byte) return false;
  }
  return true;
}

Case make_case(uint64_t seed) {
  Random random(seed * 0x9E3779B97F4A7C15ULL + 1);
  Case out;
  out.recipe = &recipes()[random() % recipes().size()];
  out.m = random_size(random);
  out.n = random_size(random);
  out.k = random_size(random);
  out.batch = chance(random, 15) && !out.recipe->packed && !out.recipe->scaled ? 3 : 1;
  out.intent.operation = static_cast<gemm_operation_t>(random() % 4);
  out.intent.role = static_cast<gemm_role_t>(random() % 9);
  out.intent.batch_count = out.batch;
  random_epilogue(random, out);
  declare_contract(random, out);

  contract::ReferenceProblem shape;
  shape.m = out.m, shape.n = out.n, shape.k = out.k;
  shape.alpha = out.intent.alpha == 0 ? 1 : out.intent.alpha;
  shape.beta = out.intent.beta;
  shape.activation = out.intent.epilogue.activation;
  shape.output = out.intent.numerical_contract.output_precision;
  out.reference.assign(static_cast<size_t>(out.batch), shape);

  const bool at = a_transposed(out), bt = b_transposed(out);
  const auto a = random_layout(random, out.batch, at ? out.k : out.m, at ? out.m : out.k, false,
                               out.intent.layout_a);
  out.a = Buffer(a, out.recipe->activation);
  if (!out.recipe->packed) {
    const auto b = random_layout(random, out.batch, bt ? out.n : out.k, bt ? out.k : out.n, false,
                                 out.intent.layout_b);
    out.b = Buffer(b, out.recipe->weight);
  }
  out.c_layout =
      random_layout(random, out.batch, out.m, shape.output_columns(), true, out.intent.layout_c);
  out.c = Buffer(out.c_layout, out.intent.numerical_contract.output_precision);
  if (out.recipe->scaled) random_launch_scales(random, out);
  if (out.recipe->packed) fill_weights(random, out);
  fill_operands(random, out);
  read_back(out);
  fill_epilogue_operands(random, out);
  return out;
}

}  // namespace deepgemm::property
