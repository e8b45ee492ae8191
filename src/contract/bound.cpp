#include "contract/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/formats.hpp"

namespace deepgemm::contract {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double power_of_two(int exponent) { return std::ldexp(1.0, exponent); }

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

const char* format_name(gemm_precision_t precision) {
  const base::FormatInfo* format = base::find_format(precision);
  return format != nullptr ? format->name : "default";
}

// Largest |code| of an integer format, zero point subtracted; 0 for floats.
double largest_code(gemm_precision_t precision) {
  if (base::is_int4(precision)) return 15;
  return precision == PRECISION_INT8 ? 128 : 0;
}

// Rounding stored values to a multiplicand: |rounded - x| <= relative * |x| + absolute.
struct Rounding {
  double relative = 0;
  double absolute = 0;
};

Rounding rounding_to(gemm_precision_t multiplicand) {
  const base::FormatInfo& to = *base::find_format(multiplicand);
  return {to.unit_roundoff, to.min_subnormal / 2};
}

Rounding operand_rounding(gemm_precision_t storage, gemm_precision_t multiplicand) {
  const base::FormatInfo& from = *base::find_format(storage);
  const base::FormatInfo& to = *base::find_format(multiplicand);
  if (from.is_integer) return {};  // 8 bits and a sign fit every multiplicand that paths use
  if (to.is_integer) return {kInfinity, 0};
  Rounding rounding;
  if (from.significand_bits > to.significand_bits) rounding.relative = to.unit_roundoff;
  if (from.min_subnormal < to.min_subnormal) rounding.absolute = to.min_subnormal / 2;
  return rounding;
}

// Roundings to nearest that the terms of a sum share: `count` of them with unit roundoff `u`.
struct Level {
  int64_t count;
  double u;
};

struct SumBound {
  double relative = 0;
  bool probabilistic = false;
};

// Worst case prod (1 + u)^count - 1. Probabilistic: Higham & Mary (2019), Theorem 2.4 and 3.1, for
// levels of different u: exp(lambda sqrt(sum count u^2) + sum count u^2 / (1 - u)) - 1.
SumBound nearest_bound(std::span<const Level> levels, double lambda) {
  double logarithm = 0, variance = 0, second_order = 0;
  for (const Level& level : levels) {
    const auto count = static_cast<double>(level.count);
    logarithm += count * std::log1p(level.u);
    variance += count * level.u * level.u;
    second_order += count * level.u * level.u / (1 - level.u);
  }
  const double worst = std::expm1(logarithm);
  if (lambda <= 0) return {worst, false};
  const double likely = std::expm1(lambda * std::sqrt(variance) + second_order);
  return likely < worst ? SumBound{likely, true} : SumBound{worst, false};
}

// Builds the bound step by step. Relative parts multiply up as (1 + r1)(1 + r2)... - 1.
class Builder {
 public:
  explicit Builder(const BoundInput& input)
      : input_(input),
        path_(path_info(input.path)),
        multiplicand_(multiplicand_of(path_, input.a)),
        u_epilogue_(epilogue_roundoff(path_)),
        failure_(input.confidence > 0 ? (1 - input.confidence) / sums_per_element() : 0) {
    if (failure_ > 0) {
      // Half of the failure probability for each of the two laws; SwiGLU needs two sums to hold.
      const double events = 4.0 * path_.parts * static_cast<double>(std::max<int64_t>(input.k, 1));
      lambda_sum_ = std::sqrt(2 * std::log(events / failure_));
      lambda_operand_ = std::sqrt(2 * std::log(4 / failure_));
    }
    magnitude_a_ = input.max_abs_a > 0 ? input.max_abs_a : 1;
    magnitude_b_ = input.max_abs_b > 0 ? input.max_abs_b : 1;
  }

  ErrorBound build() {
    const std::string refusal = storage_refusal(path_, input_.a, input_.b);
    if (!refusal.empty()) {
      add(refusal, kInfinity);
    } else {
      operands();
      accumulation();
      add("blocks of K that may be skipped", input_.skip_relative);
      scales();
      epilogue();
      activation();
      output();
    }
    finish();
    return std::move(bound_);
  }

 private:
  void add(std::string what, double relative) {
    if (relative <= 0) return;
    bound_.relative = bound_.relative + relative + bound_.relative * relative;
    bound_.terms.push_back({std::move(what), relative});
  }

  int sums_per_element() const { return input_.activation == GEMM_ACTIVATION_SWIGLU ? 2 : 1; }

  double k() const { return static_cast<double>(input_.k); }

  bool integer_sums() const {
    return largest_code(input_.a) > 0 && largest_code(input_.b) > 0 &&
           (input_.path == PathId::kInt8 || input_.path == PathId::kW4A8);
  }

  bool sums_in_double() const { return path_.accumulator_bits == 53; }

  // Largest (|A||B|)_ij for the declared magnitudes, or for magnitudes of 1.
  double magnitude() const { return k() * magnitude_a_ * magnitude_b_; }

  void operands() {
    bound_.operands_exact = true;
    if (integer_sums() || input_.path == PathId::kFp8) return;
    const bool split = path_.parts > 1;
    const gemm_precision_t seen = split ? PRECISION_FP32 : multiplicand_;
    Rounding a = operand_rounding(input_.a, seen);
    Rounding b = operand_rounding(input_.b, seen);
    if (input_.accumulation.dequant_rounds) b = rounding_to(multiplicand_);
    bound_.operands_exact = a.relative == 0 && b.relative == 0 && !split;
    if (!split) {
      rounded_operands(a, b);
    } else {
      split_operands();
      const double lost = base::find_format(smallest_part())->min_subnormal / 2;
      a.absolute += lost;
      b.absolute += lost;
    }
    bound_.absolute +=
        1.01 * k() *
        (a.absolute * magnitude_b_ + b.absolute * magnitude_a_ + a.absolute * b.absolute);
  }

  void rounded_operands(const Rounding& a, const Rounding& b) {
    if (a.relative == 0 && b.relative == 0) return;
    const double both = a.relative * b.relative;
    double relative = a.relative + b.relative + both;
    if (lambda_operand_ > 0) {
      const double spread = std::min(1.0, kSpread / std::sqrt(std::max(k(), 1.0)));
      const double likely = lambda_operand_ * std::hypot(a.relative, b.relative) * spread + both;
      if (likely < relative) {
        relative = likely;
        probabilistic_ = true;
        bound_.conditions.push_back(fmt::format(
            "operand roundings are independent and products spread: ||p||_2 <= {}/sqrt(K) ||p||_1",
            kSpread));
      }
    }
    const char* which = a.relative == 0 ? "B" : b.relative == 0 ? "A" : "A and B";
    add(fmt::format("{} rounded to {}", which, format_name(multiplicand_)), relative);
  }

  // The format of the last part of a split operand.
  gemm_precision_t smallest_part() const {
    return path_.id == PathId::kTf32Bf16 ? PRECISION_BF16 : path_.multiplicand;
  }

  // What a split leaves out of a product, and the sum of the magnitudes of what it multiplies, both
  // as a share of |a||b|. docs/contract.md, "Split paths".
  struct Split {
    double dropped, magnitude;
  };
  Split split() const {
    const double u = base::find_format(path_.multiplicand)->unit_roundoff;
    if (path_.id == PathId::kTf32x3) {
      return {3 * u * u * (1 + 2 * u), (1 + u) * (1 + u) * (1 + u) * (1 + u)};
    }
    if (path_.id == PathId::kTf32Bf16) {
      const double v = base::find_format(PRECISION_BF16)->unit_roundoff;
      return {4 * u * (2 * v + v * v) + 4 * u * u, 1 + 4 * u * (1 + v) * (1 + v)};
    }
    const double parts = (1 + u) * (1 + u + u * u);
    return {u * u * u * (2 + u) * (1 + u) * (1 + u), parts * parts};
  }

  void split_operands() {
    const Split split = this->split();
    add(fmt::format("what the split in parts of {} drops", format_name(smallest_part())),
        split.dropped);
    for (const gemm_precision_t stored : {input_.a, input_.b}) {
      if (stored == PRECISION_FP64) add("operand rounded to fp32", power_of_two(-24));
    }
    split_growth_ = split.magnitude;
  }

  void accumulation() {
    const Accumulation& sum = input_.accumulation;
    const int64_t chain = sum.chain > 0 ? sum.chain : std::max<int64_t>(input_.k, 1);
    const int64_t step = std::max<int64_t>(sum.step, 1);
    const int64_t splits = std::max<int64_t>(sum.splits, 1);
    const int64_t unit = std::max(step, sum.chain > 0 ? sum.chain : 1);
    const int64_t part = std::min(input_.k, divide_up(divide_up(input_.k, splits), unit) * unit);
    const int64_t inner = std::min(chain, part);
    const int64_t promotions = sum.chain > 0 && part > 0 ? divide_up(part, inner) : 0;
    const bool often = sum.chain > 0 && sum.chain <= kPromotionInterval;
    bound_.sum_bits = often ? std::max(sum.bits, sum.promoted_bits) : sum.bits;

    const double u_promoted = power_of_two(-(sum.chain > 0 ? sum.promoted_bits : sum.bits));
    Level inner_level{0, 0};
    if (integer_sums()) {
      inner_level = integer_sum(inner);
    } else if (sum.truncates) {
      truncated_sum(inner, step);
    } else {
      inner_level = {steps_of(inner, step) + (sum.product_rounds ? 1 : 0), power_of_two(-sum.bits)};
    }
    const bool widens = integer_sums() || sum.promoted_bits < sum.bits;
    const Level promoted{std::max<int64_t>(promotions - (widens ? 0 : 1), 0), u_promoted};
    const std::array<Level, 3> levels = {inner_level, promoted, Level{splits - 1, u_promoted}};
    const SumBound rounded = nearest_bound(levels, lambda_sum_ / (1 - u_promoted));
    probabilistic_ = probabilistic_ || rounded.probabilistic;
    add(fmt::format("sums rounded to nearest: {} inner, {} promotions, {} splits",
                    inner_level.count, promotions, splits - 1),
        rounded.relative * split_growth_);
    sum_underflow();
  }

  // Parts that a pass of the multiplier takes two of go through steps that are twice as long.
  int64_t steps_of(int64_t products, int64_t step) const {
    const int half = 2 * (path_.parts - path_.passes);
    return (path_.parts - half) * divide_up(products, step) + half * divide_up(products, 2 * step);
  }

  // Integers are exact up to INT32; converting a sum to float is exact up to 2^24.
  Level integer_sum(int64_t inner) {
    bound_.sum_bits = 0;
    const double largest =
        static_cast<double>(inner) * largest_code(input_.a) * largest_code(input_.b);
    if (largest >= power_of_two(31)) {
      add(fmt::format("INT32 overflows after {} products: promote more often", inner), kInfinity);
    }
    return {largest > power_of_two(24) ? 1 : 0, power_of_two(-24)};
  }

  // Rounding toward zero is biased: errors add up linearly, under every basis. |computed| never
  // exceeds the sum of |products|, so they do not compound.
  void truncated_sum(int64_t inner, int64_t step) {
    const Accumulation& sum = input_.accumulation;
    const auto products = static_cast<double>(path_.parts * inner);
    const auto steps = static_cast<double>(steps_of(inner, step));
    add(fmt::format("sums truncated to {} bits, {} times", sum.bits, steps),
        steps * power_of_two(1 - sum.bits) * split_growth_);
    const int aligned = sum.aligned_bits > 0 ? sum.aligned_bits : sum.bits < 24 ? sum.bits : 0;
    if (aligned > 0 && step > 1) {
      add(fmt::format("{} addends cut {} bits below the largest", products, aligned),
          products * power_of_two(1 - aligned) * split_growth_);
    }
  }

  // Rounding a sum below FP32's normal range loses up to half its smallest subnormal (a whole unit
  // of the last kept bit when truncating). Products of narrow formats stay above it.
  void sum_underflow() {
    if (integer_sums() || sums_in_double()) return;
    if (input_.accumulation.flushes_subnormals) {
      // Each product loses an operand, or itself and its sum, below FP32's normal range.
      bound_.absolute +=
          1.01 * k() * power_of_two(-126) * (magnitude_a_ + magnitude_b_ + 2 + power_of_two(-126));
      return;
    }
    const base::FormatInfo& seen = *base::find_format(multiplicand_);
    const bool narrow = !base::find_format(input_.b)->is_integer && path_.parts == 1 &&
                        seen.min_subnormal * seen.min_subnormal >= power_of_two(-126);
    if (narrow) return;
    const Accumulation& sum = input_.accumulation;
    const double unit =
        sum.truncates ? power_of_two(-125 - std::min(sum.bits, 24)) : power_of_two(-150);
    bound_.absolute += k() * path_.parts * unit;
  }

  void scales() {
    add("weights dequantised in registers", input_.accumulation.dequant_roundoff);
    if (!input_.scales) return;
    add("product of scales, and its application", 2 * u_epilogue_ + u_epilogue_ * u_epilogue_);
    const auto code = [](gemm_precision_t precision) {
      const double integer = largest_code(precision);
      return integer > 0               ? integer
             : base::is_fp8(precision) ? base::find_format(precision)->max_finite
                                       : 0;
    };
    bound_.absolute += k() * code(input_.a) * code(input_.b) * power_of_two(-150);
  }

  // alpha and beta are themselves rounded to the epilogue's precision when it is FP32.
  void epilogue() {
    const int conversions = sums_in_double() ? 0 : 1;
    const int roundings =
        1 + conversions + (input_.beta ? 2 + conversions : 0) + (input_.bias ? 1 + conversions : 0);
    add(input_.beta || input_.bias ? "alpha, beta and bias" : "alpha",
        std::expm1(roundings * std::log1p(u_epilogue_)));
    bound_.absolute *= std::abs(input_.alpha);
    bound_.absolute += input_.skip_absolute;
    if (!sums_in_double()) bound_.absolute += roundings * power_of_two(-150);
  }

  void activation() {
    const double slope = activation_slope(input_.activation);
    const double evaluation =
        input_.activation == GEMM_ACTIVATION_NONE || input_.activation == GEMM_ACTIVATION_RELU
            ? 0
            : kActivationUlps * u_epilogue_;
    const double before = bound_.relative;
    if (input_.activation == GEMM_ACTIVATION_SWIGLU) {
      swiglu(slope, evaluation);
    } else {
      bound_.relative = slope * before + evaluation * (1 + before);
      bound_.absolute = bound_.absolute * (slope + evaluation);
    }
    if (input_.activation != GEMM_ACTIVATION_NONE && evaluation > 0) {
      bound_.terms.push_back({"activation: slope and evaluation", bound_.relative - before});
      if (!sums_in_double()) bound_.absolute += kActivationUlps * power_of_two(-149);
    }
    if (input_.residual) {
      add("residual", (sums_in_double() ? 1 : 2) * u_epilogue_ * (1 + u_epilogue_));
    }
  }

  // |silu(g')u' - silu(g)u| <= slope |g' - g| |u'| + |g| |u' - u| with |g' - g| <= r G + t:
  // relative parts against G U, the rest against the largest magnitude.
  void swiglu(double slope, double evaluation) {
    const double r = bound_.relative;
    const double t = bound_.absolute;
    const double largest = std::abs(input_.alpha) * magnitude() + (input_.bias ? 1 : 0);
    const double gate = slope * r + evaluation * (1 + r);
    bound_.relative = gate * (1 + r) + r;
    if (input_.beta) bound_.relative += 3 * u_epilogue_;
    bound_.relative += 2 * u_epilogue_ * (1 + bound_.relative);
    bound_.absolute =
        t * ((slope + evaluation) * (1 + r) + 1 + gate) * largest + (slope + evaluation) * t * t;
  }

  void output() {
    const base::FormatInfo& format =
        *base::find_format(input_.output == PRECISION_TF32 ? PRECISION_FP32 : input_.output);
    if (format.is_integer) {
      bound_.absolute += 0.5;
      return;
    }
    if (format.unit_roundoff <= u_epilogue_) return;
    // To nearest: half a unit in the last place. Stochastically: either neighbour, a whole unit.
    const double units = input_.stochastic_output ? 2 : 1;
    const double u = units * format.unit_roundoff;
    add(fmt::format("output rounded {}to {}", input_.stochastic_output ? "stochastically " : "",
                    format.name),
        u);
    bound_.absolute = bound_.absolute * (1 + u) + units * format.min_subnormal / 2;
  }

  void finish() {
    bound_.stochastic_output = input_.stochastic_output;
    bound_.skip_relative = input_.skip_relative;
    bound_.skip_absolute = input_.skip_absolute;
    if (std::isnan(bound_.relative)) bound_.relative = kInfinity;
    if (probabilistic_) {
      bound_.basis = BOUND_BASIS_PROBABILISTIC;
      bound_.confidence = input_.confidence;
      bound_.conditions.emplace_back("roundings to nearest are mean-independent with mean zero");
    }
    if (bound_.absolute > 0 && (input_.max_abs_a <= 0 || input_.max_abs_b <= 0)) {
      bound_.conditions.emplace_back(
          "the absolute part holds for operands of magnitude 1 at most; declare max_abs_a and "
          "max_abs_b for others");
    }
  }

  const BoundInput& input_;
  const Path& path_;
  const gemm_precision_t multiplicand_;
  const double u_epilogue_;
  const double failure_;
  double lambda_sum_ = 0;
  double lambda_operand_ = 0;
  double magnitude_a_ = 1;
  double magnitude_b_ = 1;
  double split_growth_ = 1;
  bool probabilistic_ = false;
  ErrorBound bound_;
};

}  // namespace

double activation_slope(gemm_activation_t activation) {
  switch (activation) {
    case GEMM_ACTIVATION_SILU:
    case GEMM_ACTIVATION_SWIGLU:
      return 1.09984;  // 1.0998393...
    case GEMM_ACTIVATION_GELU:
      return 1.12891;  // at sqrt(2): 1.1289041...
    case GEMM_ACTIVATION_GELU_TANH:
      return 1.12900;  // 1.1289930...
    case GEMM_ACTIVATION_NONE:
    case GEMM_ACTIVATION_RELU:
      break;
  }
  return 1;
}

double epilogue_roundoff(const Path& path) {
  return power_of_two(path.accumulator_bits == 53 ? -53 : -24);
}

ErrorBound error_bound(const BoundInput& input) { return Builder(input).build(); }

}  // namespace deepgemm::contract
