#include "backend/cpu/epilogue.hpp"

#include <cmath>
#include <cstring>
#include <numbers>

#include "backend/cpu/packed_panels.hpp"
#include "base/formats.hpp"
#include "contract/stochastic.hpp"

namespace deepgemm::cpu {
namespace {

double relu(double x) { return x < 0 ? 0.0 : x; }  // NaN stays NaN

double gelu(double x) { return 0.5 * x * std::erfc(-x * (1.0 / std::numbers::sqrt2)); }

// 0.5 (1 + tanh y) = 1 / (1 + exp(-2y)), which does not cancel for large negative x.
double gelu_tanh(double x) {
  const double y = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * y));
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

using Activation = double (*)(double);

Activation activation_function(gemm_activation_t activation) {
  switch (activation) {
    case GEMM_ACTIVATION_RELU:
      return relu;
    case GEMM_ACTIVATION_GELU:
      return gelu;
    case GEMM_ACTIVATION_GELU_TANH:
      return gelu_tanh;
    case GEMM_ACTIVATION_SILU:
      return silu;
    case GEMM_ACTIVATION_SWIGLU:  // combines two columns: see finish_row
    case GEMM_ACTIVATION_NONE:
      break;
  }
  return nullptr;
}

void add(double* values, const double* terms, int64_t count) {
  for (int64_t j = 0; j < count; ++j) values[j] += terms[j];
}

// Element `index` of a buffer whose elements have `bytes` bytes.
const void* element(const void* base, int64_t index, int64_t bytes) {
  return static_cast<const uint8_t*>(base) + index * bytes;
}

// Element j * stride of `to`, which may start at any byte, becomes kRound(values[j]).
template <class Out, auto kRound>
void encode_run(const double* values, void* to, int64_t stride, int64_t count) {
  uint8_t* out = static_cast<uint8_t*>(to);
  const int64_t step = stride * static_cast<int64_t>(sizeof(Out));
  for (int64_t j = 0; j < count; ++j) {
    const Out rounded = kRound(values[j]);
    std::memcpy(out + j * step, &rounded, sizeof(rounded));
  }
}

double to_fp64(double value) { return value; }
float to_fp32(double value) { return static_cast<float>(value); }

}  // namespace

Epilogue::Epilogue(const intent::Problem& problem, const Operands& operands,
                   const Kernels<double>& kernels)
    : problem_(problem), operands_(operands), kernels_(kernels) {}

void Epilogue::set_integer_scales(const ScaleView& rows, const ScaleView& columns,
                                  const PackedPanels* packed) {
  integer_scales_ = true;
  row_scales_ = rows;
  column_scales_ = columns;
  packed_ = packed;
}

void Epilogue::finish_row(int64_t batch, int64_t row, const TileColumns& tile, double* sums,
                          double* scratch) const {
  scale_sums(row, tile, sums);
  const bool swiglu = problem_.epilogue.activation == GEMM_ACTIVATION_SWIGLU;
  const int64_t half = problem_.n / 2;
  if (swiglu) {
    double* up = sums + tile.up;
    add_bias(tile.column, tile.columns, sums, scratch);
    add_bias(half + tile.column, tile.columns, up, scratch);
    for (int64_t j = 0; j < tile.columns; ++j) sums[j] = silu(sums[j]) * up[j];
    add_old_content(batch, row, tile, sums, scratch);
  } else {
    add_old_content(batch, row, tile, sums, scratch);
    add_bias(tile.column, tile.columns, sums, scratch);
    if (const Activation function = activation_function(problem_.epilogue.activation)) {
      for (int64_t j = 0; j < tile.columns; ++j) sums[j] = function(sums[j]);
    }
  }
  add_residual(batch, row, tile, sums, scratch);
  if (stochastic_) {  // storing is exact then
    contract::round_stochastically(problem_.c.precision, {problem_.contract.seed, batch, row},
                                   tile.column, tile.columns, sums);
  }
  store(batch, row, tile, sums);
}

void Epilogue::apply_integer_scales(int64_t row, int64_t column, int64_t columns,
                                    double* sums) const {
  const double row_scale = row_scales_.base != nullptr ? row_scales_.at(row, 0) : 1.0;
  for (int64_t j = 0; j < columns; ++j) {
    double scale = row_scale;
    if (packed_ != nullptr) {
      scale *= static_cast<double>(column_scale(*packed_, column + j));
    } else if (column_scales_.base != nullptr) {
      scale *= static_cast<double>(column_scales_.at(column + j, 0));
    }
    sums[j] *= scale;
  }
}

void Epilogue::scale_sums(int64_t row, const TileColumns& tile, double* sums) const {
  const bool swiglu = problem_.epilogue.activation == GEMM_ACTIVATION_SWIGLU;
  for (int half = 0; half < (swiglu ? 2 : 1); ++half) {
    double* part = sums + (half == 0 ? 0 : tile.up);
    if (operands_.alpha == 0) {  // the product was skipped: 0, also where alpha * sum would be NaN
      for (int64_t j = 0; j < tile.columns; ++j) part[j] = 0;
      continue;
    }
    if (integer_scales_) {
      apply_integer_scales(row, tile.column + half * (problem_.n / 2), tile.columns, part);
    }
    if (operands_.alpha == 1) continue;
    for (int64_t j = 0; j < tile.columns; ++j) part[j] *= operands_.alpha;
  }
}

void Epilogue::add_bias(int64_t column, int64_t columns, double* values, double* scratch) const {
  if (!problem_.epilogue.bias || operands_.bias == nullptr) return;
  const Source source = *source_of(problem_.epilogue.bias_precision);
  kernels_.widen(source, element(operands_.bias, column, source_bytes(source)), 0, scratch, 0, 1,
                 columns);
  add(values, scratch, columns);
}

void Epilogue::add_residual(int64_t batch, int64_t row, const TileColumns& tile, double* values,
                            double* scratch) const {
  const intent::Epilogue& epilogue = problem_.epilogue;
  if (!epilogue.residual || operands_.residual == nullptr) return;
  const Source source = *source_of(epilogue.residual_precision);
  const int64_t index = (batch * problem_.m + row) * epilogue.residual_row_stride + tile.column;
  kernels_.widen(source, element(operands_.residual, index, source_bytes(source)), 0, scratch, 0, 1,
                 tile.columns);
  add(values, scratch, tile.columns);
}

void Epilogue::add_old_content(int64_t batch, int64_t row, const TileColumns& tile, double* values,
                               double* scratch) const {
  if (operands_.beta == 0) return;
  const MatrixView view{operands_.c, *source_of(problem_.c.precision), problem_.c.layout, false};
  load_block(kernels_, view, batch, {row, 1, tile.column, tile.columns}, scratch, tile.columns);
  for (int64_t j = 0; j < tile.columns; ++j) values[j] += operands_.beta * scratch[j];
}

void Epilogue::store(int64_t batch, int64_t row, const TileColumns& tile,
                     const double* values) const {
  const gemm_precision_t precision = problem_.c.precision;
  const int64_t bytes = base::storage_bytes(precision, 1);
  const auto store_run = [&](int64_t offset, int64_t stride, int64_t start, int64_t count) {
    void* to = static_cast<uint8_t*>(operands_.c) + offset * bytes;
    const double* from = values + start;
    switch (precision) {
      case PRECISION_FP64:
        return encode_run<double, to_fp64>(from, to, stride, count);
      case PRECISION_FP32:
        return encode_run<float, to_fp32>(from, to, stride, count);
      case PRECISION_FP16:
        return encode_run<uint16_t, base::double_to_fp16>(from, to, stride, count);
      case PRECISION_BF16:
        return encode_run<uint16_t, base::double_to_bf16>(from, to, stride, count);
      default:
        for (int64_t j = 0; j < count; ++j) base::encode(precision, to, j * stride, from[j]);
    }
  };
  for_each_run(problem_.c.layout, batch, row, tile.column, tile.columns, store_run);
}

}  // namespace deepgemm::cpu
