#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/formats.hpp"
#include "contract/verify.hpp"

namespace deepgemm::contract {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr std::array<const char*, 8> kNames = {"gaussian",     "uniform",         "exact",
                                               "cancellation", "huge_range",      "subnormal",
                                               "specials",     "outlier_channels"};

// Own generator: the distributions of the standard library differ between implementations.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea & Flood, OOPSLA 2014).
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  double between(double low, double high) { return low + (high - low) * unit(); }
  int64_t below(int64_t count) {
    return static_cast<int64_t>(bits() % static_cast<uint64_t>(std::max<int64_t>(count, 1)));
  }
  double sign() { return (bits() & 1) != 0 ? 1.0 : -1.0; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }

 private:
  uint64_t state_;
};

// One operand: where its values go and what they must fit.
struct Operand {
  std::vector<double>& values;
  const base::FormatInfo& format;
  int64_t channel_stride;  // distance of neighbours along K
  int64_t other_stride;    // along M or N
  int64_t others;

  double& at(int64_t channel, int64_t other) const {
    return values[static_cast<size_t>(channel * channel_stride + other * other_stride)];
  }
  void set(int64_t channel, int64_t other, double value) const {
    if (std::isfinite(value)) value = std::clamp(value, -format.max_finite, format.max_finite);
    at(channel, other) = base::round_to(format.precision, value);
  }
  // Unit of random values: integers use a good part of their range.
  double scale() const { return format.is_integer ? format.max_finite / 4 : 1; }
  int min_exponent() const { return format.is_integer ? 0 : std::ilogb(format.min_normal); }
  int max_exponent() const { return std::ilogb(format.max_finite); }
};

template <class Value>
void fill(const Operand& operand, int64_t k, Value&& value) {
  for (int64_t channel = 0; channel < k; ++channel) {
    for (int64_t other = 0; other < operand.others; ++other) {
      operand.set(channel, other, value(channel));
    }
  }
}

void fill_gaussian(const Operand& operand, int64_t k, Random& random) {
  fill(operand, k, [&](int64_t) { return operand.scale() * random.normal(); });
}

// Sums of |products| stay below 2^13, so that sums of 14 bits are exact as well.
void fill_exact(const Operand& a, const Operand& b, int64_t k, Random& random) {
  constexpr int64_t kMaxNonzeros = 1024;
  for (int64_t row = 0; row < a.others; ++row) {
    int64_t nonzeros = 0;
    for (int64_t channel = 0; channel < k; ++channel) {
      const bool zero = nonzeros >= kMaxNonzeros || random.below(k) >= kMaxNonzeros;
      const auto value = static_cast<double>(random.below(5) - 2);
      a.set(channel, row, zero ? 0 : value);
      nonzeros += zero ? 0 : 1;
    }
  }
  fill(b, k, [&](int64_t) { return static_cast<double>(random.below(5) - 2); });
}

void fill_cancellation(const Operand& a, const Operand& b, int64_t k, Random& random) {
  fill_gaussian(a, k, random);
  fill_gaussian(b, k, random);
  const int64_t half = k / 2;
  for (int64_t channel = 0; channel < half; ++channel) {
    for (int64_t row = 0; row < a.others; ++row) {
      const double perturbed = 1 + 4 * a.format.unit_roundoff * random.between(-1, 1);
      a.set(channel + half, row, -a.at(channel, row) * perturbed);
    }
    for (int64_t column = 0; column < b.others; ++column) {
      b.set(channel + half, column, b.at(channel, column));
    }
  }
}

// Normal values only. Each channel gets the largest exponents of A and B that keep the sum of
// products finite in FP32, or in FP64 when an operand has it.
void fill_huge_range(const Operand& a, const Operand& b, int64_t k, Random& random) {
  const bool wide = a.format.precision == PRECISION_FP64 || b.format.precision == PRECISION_FP64;
  const int sum_exponent =
      (wide ? 1020 : 124) - static_cast<int>(std::ceil(std::log2(static_cast<double>(k) + 1)));
  const auto draw = [&](const Operand& operand, int64_t channel, int64_t other, int largest) {
    const int low = operand.min_exponent();
    const int exponent = low + static_cast<int>(random.below(std::max(largest - low, 0) + 1));
    operand.set(channel, other, random.sign() * std::ldexp(random.between(1, 2), exponent));
  };
  for (int64_t channel = 0; channel < k; ++channel) {
    const int a_span =
        std::min(a.max_exponent() - 1, sum_exponent - b.min_exponent()) - a.min_exponent();
    const int a_largest =
        a.min_exponent() + static_cast<int>(random.below(std::max(a_span, 0) + 1));
    const int b_largest = std::min(b.max_exponent() - 1, sum_exponent - a_largest);
    for (int64_t row = 0; row < a.others; ++row) draw(a, channel, row, a_largest);
    for (int64_t column = 0; column < b.others; ++column) draw(b, channel, column, b_largest);
  }
}

// Channels alternate between subnormal A with B up to 1, and the other way round.
void fill_subnormal(const Operand& a, const Operand& b, int64_t k, Random& random) {
  const auto part = [&](const Operand& operand, int64_t parity) {
    fill(operand, k, [&, parity](int64_t channel) {
      const double largest =
          channel % 2 == parity && !operand.format.is_integer ? operand.format.min_normal : 1.0;
      return largest * random.between(-1, 1);
    });
  };
  part(a, 0);
  part(b, 1);
}

// Infinity and NaN in a few rows of A and one column of B, so that most elements stay finite.
// Formats without infinity get NaN, integers nothing.
void fill_specials(const Operand& a, const Operand& b, int64_t k, Random& random) {
  fill_gaussian(a, k, random);
  fill_gaussian(b, k, random);
  if (k == 0) return;
  const auto put = [&](const Operand& operand, double value) {
    if (operand.others == 0 || operand.format.is_integer) return;
    const double stored = base::round_to(operand.format.precision, value);
    const bool kept = std::isinf(value) ? std::isinf(stored) : std::isnan(stored);
    operand.at(random.below(k), random.below(operand.others)) = kept ? stored : kNaN;
  };
  put(a, kInfinity);
  put(a, -kInfinity);
  put(a, kNaN);
  put(b, kInfinity);
}

void fill_outlier_channels(const Operand& a, const Operand& b, int64_t k, Random& random) {
  fill_gaussian(a, k, random);
  fill_gaussian(b, k, random);
  for (int64_t count = std::max<int64_t>(k / 100, 1); count > 0 && k > 0; --count) {
    const int64_t channel = random.below(k);
    for (int64_t row = 0; row < a.others; ++row) {
      a.set(channel, row, 100 * a.scale() * random.normal());
    }
  }
}

}  // namespace

const char* input_set_name(InputSet set) { return kNames[static_cast<size_t>(set)]; }

std::vector<InputSet> all_input_sets() {
  std::vector<InputSet> sets;
  for (size_t set = 0; set < kNames.size(); ++set) sets.push_back(static_cast<InputSet>(set));
  return sets;
}

void generate_inputs(InputSet set, uint64_t seed, gemm_precision_t a_format,
                     gemm_precision_t b_format, ReferenceProblem& problem) {
  problem.a.assign(static_cast<size_t>(problem.m * problem.k), 0.0);
  problem.b.assign(static_cast<size_t>(problem.k * problem.n), 0.0);
  const Operand a{problem.a, *base::find_format(a_format), 1, problem.k, problem.m};
  const Operand b{problem.b, *base::find_format(b_format), problem.n, 1, problem.n};
  Random random(seed * 8 + static_cast<uint64_t>(set));
  switch (set) {
    case InputSet::kGaussian:
      fill_gaussian(a, problem.k, random);
      fill_gaussian(b, problem.k, random);
      break;
    case InputSet::kUniform:
      for (const Operand* operand : {&a, &b}) {
        fill(*operand, problem.k,
             [&](int64_t) { return operand->scale() * random.between(-1, 1); });
      }
      break;
    case InputSet::kExact:
      fill_exact(a, b, problem.k, random);
      break;
    case InputSet::kCancellation:
      fill_cancellation(a, b, problem.k, random);
      break;
    case InputSet::kHugeRange:
      fill_huge_range(a, b, problem.k, random);
      break;
    case InputSet::kSubnormal:
      fill_subnormal(a, b, problem.k, random);
      break;
    case InputSet::kSpecials:
      fill_specials(a, b, problem.k, random);
      break;
    case InputSet::kOutlierChannels:
      fill_outlier_channels(a, b, problem.k, random);
      break;
  }
}

}  // namespace deepgemm::contract
