#include <algorithm>
#include <cmath>
#include <numbers>

#include "contract/verify.hpp"

namespace deepgemm::contract {
namespace {

constexpr int64_t kColumnTile = 256;  // three accumulators of a tile stay in the first-level cache

// Compensated sums of one row over a tile of columns. Dot2 of Ogita, Rump & Oishi, SIAM J. Sci.
// Comput. 26 (2005): value + error is the sum to about 2^-106 K^2 of the magnitude.
struct RowSums {
  std::vector<double> value = std::vector<double>(kColumnTile);
  std::vector<double> error = std::vector<double>(kColumnTile);
  std::vector<double> magnitude = std::vector<double>(kColumnTile);

  void clear() {
    std::ranges::fill(value, 0.0);
    std::ranges::fill(error, 0.0);
    std::ranges::fill(magnitude, 0.0);
  }
};

// ExactProducts: a * b fits 53 bits, so that its error need not be computed.
template <bool ExactProducts>
void add_products(double a, const double* b, int64_t columns, RowSums& sums) {
  double* __restrict value = sums.value.data();
  double* __restrict error = sums.error.data();
  double* __restrict magnitude = sums.magnitude.data();
  for (int64_t j = 0; j < columns; ++j) {
    const double product = a * b[j];
    const double old = value[j];
    const double sum = old + product;
    const double shifted = sum - old;
    double lost = (old - (sum - shifted)) + (product - shifted);
    if constexpr (!ExactProducts) lost += std::fma(a, b[j], -product);
    value[j] = sum;
    error[j] += lost;
    magnitude[j] += std::abs(product);
  }
}

bool fits_float(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double value) {
    return std::isnan(value) || static_cast<double>(static_cast<float>(value)) == value;
  });
}

// Infinities and NaN make the error terms NaN: the plain sum then says what IEEE 754 says.
double plain_sum(const ReferenceProblem& problem, int64_t row, int64_t column) {
  double sum = 0;
  for (int64_t k = 0; k < problem.k; ++k) {
    sum += problem.a[static_cast<size_t>(row * problem.k + k)] *
           problem.b[static_cast<size_t>(k * problem.n + column)];
  }
  return sum;
}

// Products [m][n] and their magnitudes.
void multiply(const ReferenceProblem& problem, std::vector<double>& value,
              std::vector<double>& magnitude) {
  const bool exact = fits_float(problem.a) && fits_float(problem.b);
  RowSums sums;
  for (int64_t first = 0; first < problem.n; first += kColumnTile) {
    const int64_t columns = std::min(kColumnTile, problem.n - first);
    for (int64_t row = 0; row < problem.m; ++row) {
      sums.clear();
      for (int64_t k = 0; k < problem.k; ++k) {
        const double a = problem.a[static_cast<size_t>(row * problem.k + k)];
        const double* b = problem.b.data() + k * problem.n + first;
        exact ? add_products<true>(a, b, columns, sums) : add_products<false>(a, b, columns, sums);
      }
      for (int64_t j = 0; j < columns; ++j) {
        const auto at = static_cast<size_t>(row * problem.n + first + j);
        const auto in_tile = static_cast<size_t>(j);
        const double sum = sums.value[in_tile] + sums.error[in_tile];
        value[at] = std::isfinite(sum) ? sum : plain_sum(problem, row, first + j);
        magnitude[at] = sums.magnitude[in_tile];
      }
    }
  }
}

// NaN stays NaN in every activation.
double activate(gemm_activation_t activation, double x) {
  switch (activation) {
    case GEMM_ACTIVATION_RELU:
      return x < 0 ? 0 : x;
    case GEMM_ACTIVATION_GELU:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case GEMM_ACTIVATION_GELU_TANH: {
      // 0.5 (1 + tanh y) = 1 / (1 + exp(-2 y)) without cancellation.
      const double y = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * y));
    }
    case GEMM_ACTIVATION_SILU:
    case GEMM_ACTIVATION_SWIGLU:
      return x / (1 + std::exp(-x));
    case GEMM_ACTIVATION_NONE:
      break;
  }
  return x;
}

double at_or_zero(const std::vector<double>& values, int64_t index) {
  return values.empty() ? 0 : values[static_cast<size_t>(index)];
}

}  // namespace

Reference compute_reference(const ReferenceProblem& problem) {
  const auto products = static_cast<size_t>(problem.m * problem.n);
  std::vector<double> value(products), magnitude(products);
  if (problem.alpha != 0) multiply(problem, value, magnitude);

  const bool swiglu = problem.activation == GEMM_ACTIVATION_SWIGLU;
  const int64_t columns = problem.output_columns();
  const bool reads_c0 = problem.beta != 0 && !problem.c0.empty();
  Reference reference;
  reference.output = problem.output;
  reference.value.resize(static_cast<size_t>(problem.m * columns));
  reference.magnitude.resize(reference.value.size());
  for (int64_t row = 0; row < problem.m; ++row) {
    const auto scaled = [&](int64_t column) {
      const auto at = static_cast<size_t>(row * problem.n + column);
      return (problem.alpha != 0 ? problem.alpha * value[at] : 0) +
             at_or_zero(problem.bias, column);
    };
    const auto scaled_magnitude = [&](int64_t column) {
      return std::abs(problem.alpha) * magnitude[static_cast<size_t>(row * problem.n + column)] +
             std::abs(at_or_zero(problem.bias, column));
    };
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t at = row * columns + column;
      const double c0 = reads_c0 ? problem.beta * problem.c0[static_cast<size_t>(at)] : 0;
      const double residual = at_or_zero(problem.residual, at);
      double v = scaled(column), size = scaled_magnitude(column);
      if (swiglu) {
        v = activate(problem.activation, v) * scaled(columns + column) + c0;
        size *= scaled_magnitude(columns + column);
      } else {
        v = activate(problem.activation, v + c0);
      }
      reference.value[static_cast<size_t>(at)] = v + residual;
      reference.magnitude[static_cast<size_t>(at)] = size + std::abs(c0) + std::abs(residual);
    }
  }
  return reference;
}

}  // namespace deepgemm::contract
