// Verification: results against an FP64 reference, element by element, per row and tile, as a
// distribution, and on adversarial inputs. docs/contract.md has the definitions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "contract/contract.hpp"
#include "deepgemm/types.h"

namespace deepgemm::contract {

// Operands decoded to double, contiguous row-major: a [m][k], b [k][n], bias [n] or empty, residual
// and c0 [m][n_out] or empty. n_out is n, or n/2 with SWIGLU. c0 is not read when beta is 0; a and
// b are not read when alpha is 0.
struct ReferenceProblem {
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1, beta = 0;
  gemm_activation_t activation = GEMM_ACTIVATION_NONE;
  std::vector<double> a, b, c0, bias, residual;
  gemm_precision_t output = PRECISION_FP64;  // format of the results that will be compared

  int64_t output_columns() const { return activation == GEMM_ACTIVATION_SWIGLU ? n / 2 : n; }
};

// What the reference itself can be off, of `magnitude`: its compensated sums are good to 2^-100,
// but rounding them to double, alpha, beta, bias, activation and residual are up to eight roundings
// of 2^-53. Comparisons grant it on top of a relative tolerance; it matters for FP64 results only.
constexpr double kReferenceError = 0x1p-50;

struct Reference {
  // [m][n_out], good to kReferenceError of `magnitude`. Not rounded to the output format.
  std::vector<double> value;
  // [m][n_out], what relative errors are measured against: |alpha| (|A||B|) + |beta C0| + |bias| +
  // |residual|; with SWIGLU gate magnitude times up magnitude + |beta C0| + |residual|.
  std::vector<double> magnitude;
  gemm_precision_t output = PRECISION_FP64;
};

Reference compute_reference(const ReferenceProblem& problem);

// Where the error sits and how it is spread.
struct Comparison {
  int64_t elements = 0;
  int64_t nonfinite = 0;    // not finite where the reference is finite
  int64_t outside = 0;      // |c - ref| > relative * magnitude + absolute
  double max_relative = 0;  // largest |c - ref| / magnitude
  double max_absolute = 0;
  int64_t worst_row = -1, worst_column = -1;
  int64_t damaged_rows = 0;   // rows with an element outside
  int64_t damaged_tiles = 0;  // 16 x 16 tiles with an element outside
  bool passed() const { return outside == 0 && nonfinite == 0; }
};

// `result` is the output decoded to double, [rows][columns]. An element is inside when
// |c - ref| <= (relative + kReferenceError) * magnitude + absolute; with relative = 0 the reference
// counts as exact. A NaN reference wants NaN, an infinite one the same
// infinity or NaN, one beyond the output format its infinity or (FP8) its largest value: see the
// table of docs/contract.md. Throws nothing; sizes must agree.
Comparison compare(const std::vector<double>& result, const Reference& reference, int64_t rows,
                   int64_t columns, double relative, double absolute);

// Two-sample Kolmogorov-Smirnov test of result against reference values. p by the asymptotic series
// 2 sum_j (-1)^(j-1) exp(-2 j^2 x^2), x = (sqrt(n) + 0.12 + 0.11 / sqrt(n)) D with n the harmonic
// size (Stephens, J. R. Stat. Soc. B 32, 1970). NaN counts as beyond every number.
struct KsTest {
  double statistic = 0;  // largest distance of the empirical distributions
  double p_value = 1;
};
KsTest kolmogorov_smirnov(std::vector<double> first, std::vector<double> second);

// Input generators for verification; deterministic by seed.
enum class InputSet : uint8_t {
  kGaussian,
  kUniform,
  kExact,         // small integers: every path must be bit-equal to the reference
  kCancellation,  // second half of K nearly cancels the first
  kHugeRange,     // magnitudes over the whole exponent range of the format, products finite
  kSubnormal,
  kSpecials,         // some inf and NaN
  kOutlierChannels,  // a few columns of A far larger than the rest
};
const char* input_set_name(InputSet set);
std::vector<InputSet> all_input_sets();

// Fills a [m][k] and b [k][n] with values representable in the given formats.
void generate_inputs(InputSet set, uint64_t seed, gemm_precision_t a_format,
                     gemm_precision_t b_format, ReferenceProblem& problem);

}  // namespace deepgemm::contract
