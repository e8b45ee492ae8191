// A-priori error bounds. docs/contract.md states the definitions, derivations and sources.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/path.hpp"

namespace deepgemm::contract {

// One contribution to a bound, for reports: "A rounded to tf32", 4.9e-4.
struct BoundTerm {
  std::string what;
  double relative = 0;
};

// |c - ref| <= relative * (|alpha|(|A||B|) + |beta C0|) + absolute, for each element; with a
// probabilistic basis it fails for one element with probability at most 1 - confidence.
struct ErrorBound {
  double relative = 0;
  double absolute = 0;  // underflow of operands, products and output
  gemm_bound_basis_t basis = BOUND_BASIS_WORST_CASE;
  double confidence = 1;
  std::vector<BoundTerm> terms;
  // What the bound rests on besides the basis, one sentence each.
  std::vector<std::string> conditions;
  bool operands_exact = false;  // no operand (dequantised weights included) is rounded
  // Significand bits of the sums: 0 for exact integers; the promoted accumulator's when promotion
  // comes at least every kPromotionInterval products.
  int sum_bits = 24;
  // The output is rounded stochastically (stochastic.hpp); its part of the bound is 2 u then.
  bool stochastic_output = false;
  // Tile skipping may leave out so much of the sum of an element (skip.hpp); 0, 0: none.
  double skip_relative = 0;  // of (|A||B|)_ij
  double skip_absolute = 0;  // of |alpha| (|A||B|)_ij as it is
};

// Promotion at least this often counts as summing in the promoted accumulator.
constexpr int64_t kPromotionInterval = 128;

// Assumption of probabilistic operand terms: sqrt(sum_k p_k^2) <= kSpread / sqrt(K) * sum_k |p_k|
// for the products p_k of an element. Normal operands have 1.6, all products equal 1.
constexpr double kSpread = 4;

// Activations are evaluated with an error of at most kActivationUlps * u * |x|, u being the unit
// roundoff of the epilogue's arithmetic.
constexpr double kActivationUlps = 8;

// Largest slope of an activation (1 for none): |f(x) - f(y)| <= slope * |x - y|.
double activation_slope(gemm_activation_t activation);

// Unit roundoff of the epilogue: FP64 for paths that sum in FP64, else FP32.
double epilogue_roundoff(const Path& path);

// What a bound is computed from.
struct BoundInput {
  PathId path = PathId::kFp32;
  int64_t k = 0;
  gemm_precision_t a = PRECISION_FP32;  // storage
  gemm_precision_t b = PRECISION_FP32;
  gemm_precision_t output = PRECISION_FP32;
  Accumulation accumulation;
  bool scales = false;  // scales are multiplied in
  bool beta = false;
  bool bias = false;
  bool residual = false;
  gemm_activation_t activation = GEMM_ACTIVATION_NONE;
  double confidence = 0;  // 0: worst case only
  // Magnitudes for the absolute part (underflow scales with the other operand); 0: at most 1.
  double max_abs_a = 0;
  double max_abs_b = 0;
  double alpha = 1;
  bool stochastic_output = false;
  double skip_relative = 0;  // as in ErrorBound
  double skip_absolute = 0;
};

// Worst case, or probabilistic when input.confidence > 0 (then the smaller of both).
ErrorBound error_bound(const BoundInput& input);

}  // namespace deepgemm::contract
