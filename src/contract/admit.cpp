#include <algorithm>
#include <cmath>
#include <limits>

#include "base/formats.hpp"
#include "contract/contract.hpp"

namespace deepgemm::contract {
namespace {

using base::make_error;
using base::Result;

constexpr auto kUnmet = DEEPGEMM_ERROR_CONTRACT_UNMET;
constexpr double kMaxFp32 = 3.4028234663852886e38;

// Largest magnitude a stored operand can have: declared, or what its format can hold. Quantised
// values are codes times scales, and scales are taken to be at most 65504 (checked at packing).
double largest_operand(double declared, gemm_precision_t storage) {
  if (declared > 0) return declared;
  const base::FormatInfo& format = *base::find_format(storage);
  if (base::is_int4(storage)) return 15 * 65504.0;
  if (format.is_integer) return 128 * 65504.0;
  if (base::is_fp8(storage)) return format.max_finite * 65504.0;
  return format.max_finite;
}

// Rounding to a multiplicand of smaller exponent range turns finite operands into infinities, under
// any contract.
Result<void> check_range(const Contract& contract, const Path& path) {
  const gemm_precision_t seen = multiplicand_of(path, contract.a);
  struct Operand {
    const char* name;
    gemm_precision_t storage;
    double declared;
  };
  for (const Operand& operand : {Operand{"a", contract.a, contract.max_abs_a},
                                 Operand{"b", contract.b, contract.max_abs_b}}) {
    const base::FormatInfo& from = *base::find_format(operand.storage);
    const base::FormatInfo& to = *base::find_format(seen);
    if (from.is_integer || to.is_integer || path.id == PathId::kFp8) continue;
    // Formats that differ in the last binade only (FP32, TF32, BF16) count as one range.
    if (from.max_finite < 2 * to.max_finite) continue;
    if (operand.declared > 0 && operand.declared <= to.max_finite) continue;
    return make_error(kUnmet,
                      "path {} rounds {} operands to {}, whose largest value is {:.6g}: declare "
                      "max_abs_{} of at most that, or use bf16, tf32 or fp32",
                      path.name, from.name, to.name, to.max_finite, operand.name);
  }
  return {};
}

// No inf or NaN where the exact result is finite: the sum of magnitudes must stay below the largest
// value of the accumulator. INT32 sums are covered by their bound.
Result<void> check_overflow(const Contract& contract, const Path& path, int64_t k) {
  if (!contract.safe_accumulation || path.accumulator_bits == 0) return {};
  const double largest = static_cast<double>(std::max<int64_t>(k, 1)) *
                         largest_operand(contract.max_abs_a, contract.a) *
                         largest_operand(contract.max_abs_b, contract.b);
  const bool in_double = path.accumulator_bits == 53;
  const double limit = in_double ? std::numeric_limits<double>::max() : kMaxFp32;
  // A margin of 2 covers the rounding errors of operands and sums.
  if (largest <= limit / 2) return {};
  return make_error(kUnmet,
                    "safe_accumulation: the {} sums of path {} can overflow where the result is "
                    "finite, as K * max|A| * max|B| may reach {:.3g} with K = {}; {}",
                    in_double ? "fp64" : "fp32", path.name, largest, k,
                    in_double || base::is_int4(contract.b)
                        ? "declare max_abs_a and max_abs_b that keep it lower"
                        : "declare max_abs_a and max_abs_b that keep it lower, or use fp32_acc64");
}

Result<void> check_native(const Contract& contract, const Path& path, const ErrorBound& bound) {
  if (!contract.native) return {};
  const bool tf32 = path.id == PathId::kTf32 && contract.tf32_allowed;
  if (!bound.operands_exact && !tf32) {
    return make_error(
        kUnmet,
        "the contract gives no error limit, so operands may not be rounded; path {} "
        "rounds them (bound {:.3g}): set max_relative_error to {:.2g} or more to allow it",
        path.name, bound.relative, bound.relative * 1.01);
  }
  if (bound.sum_bits != 0 && bound.sum_bits < 24) {
    return make_error(
        kUnmet,
        "the contract gives no error limit, so sums need FP32; path {} keeps {} bits here "
        "without promotion every {} products: set max_relative_error to {:.2g} or more, "
        "or use a kernel that promotes",
        path.name, bound.sum_bits, kPromotionInterval, bound.relative * 1.01);
  }
  if (!std::isfinite(bound.relative)) {
    return make_error(kUnmet, "path {} has no finite error bound: {}", path.name,
                      bound.terms.empty() ? "unknown" : bound.terms.back().what);
  }
  return {};
}

const BoundTerm* largest_term(const ErrorBound& bound) {
  const auto less = [](const BoundTerm& x, const BoundTerm& y) { return x.relative < y.relative; };
  const auto found = std::max_element(bound.terms.begin(), bound.terms.end(), less);
  return found != bound.terms.end() ? &*found : nullptr;
}

Result<void> check_relative(const Contract& contract, const Path& path, const ErrorBound& bound) {
  const double limit = contract.max_relative_error;
  if (limit == 0 || bound.relative <= limit) return {};
  const base::FormatInfo& output = *base::find_format(contract.output);
  const char* basis = bound.basis == BOUND_BASIS_WORST_CASE ? "worst case" : "probabilistic";
  if (output.unit_roundoff > limit) {
    return make_error(
        kUnmet,
        "output rounding to {} alone is {:.3g}, above max_relative_error {:.3g}: raise "
        "the limit to {:.3g} or set output_precision to FP32",
        output.name, output.unit_roundoff, limit,
        std::max(bound.relative, output.unit_roundoff) * 1.01);
  }
  const BoundTerm* term = largest_term(bound);
  return make_error(
      kUnmet,
      "path {} is bounded by {:.3g} ({}), above max_relative_error {:.3g}; the largest "
      "part is {:.3g}: {}. Raise the limit to {:.2g}, or use a more exact path",
      path.name, bound.relative, basis, limit, term != nullptr ? term->relative : 0,
      term != nullptr ? term->what : "none", bound.relative * 1.01);
}

Result<void> check_absolute(const Contract& contract, const Path& path, const ErrorBound& bound,
                            int64_t k, Certificate& certificate) {
  const double limit = contract.max_absolute_error;
  if (limit == 0) return {};
  const bool declared = contract.max_abs_a > 0 && contract.max_abs_b > 0;
  const double magnitude =
      declared ? static_cast<double>(k) * contract.max_abs_a * contract.max_abs_b : 1;
  const double reached = bound.relative * magnitude + bound.absolute;
  if (!(reached <= limit)) {
    return make_error(kUnmet,
                      "path {} is bounded by {:.3g} at magnitude (|A||B|) = {:.3g} ({}), above "
                      "max_absolute_error {:.3g}: raise the limit to {:.3g}, {}",
                      path.name, reached, magnitude,
                      declared ? "K * max_abs_a * max_abs_b" : "the reference magnitude", limit,
                      reached * 1.01,
                      declared ? "declare smaller max_abs_a and max_abs_b, or use a more exact path"
                               : "or use a more exact path or output_precision FP32");
  }
  if (!declared && bound.relative > 0) {
    certificate.magnitude_limit = (limit - bound.absolute) / bound.relative;
  }
  return {};
}

}  // namespace

Result<Certificate> admit(const Contract& contract, const Path& path, const ErrorBound& bound,
                          int64_t k) {
  const std::string storage = storage_refusal(path, contract.a, contract.b);
  if (!storage.empty()) return make_error(kUnmet, "{}", storage);
  DEEPGEMM_TRY(check_range(contract, path));
  DEEPGEMM_TRY(check_overflow(contract, path, k));
  DEEPGEMM_TRY(check_native(contract, path, bound));
  DEEPGEMM_TRY(check_relative(contract, path, bound));
  Certificate certificate;
  DEEPGEMM_TRY(check_absolute(contract, path, bound, k, certificate));
  certificate.bound = bound;
  certificate.relative_limit = contract.max_relative_error;
  certificate.absolute_limit = contract.max_absolute_error;
  return certificate;
}

}  // namespace deepgemm::contract
