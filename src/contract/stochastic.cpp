#include "contract/stochastic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/formats.hpp"

namespace deepgemm::contract {
namespace {

constexpr int kDoubleBits = 53;
constexpr int kDoubleBias = 1023;

// Format facts in the terms of a double's bits.
struct Target {
  int dropped;            // bits of a double's significand that a normal value of the format lacks
  int smallest_exponent;  // of the smallest normal value
  double smallest;        // positive value
  double largest;

  explicit Target(const base::FormatInfo& format)
      : dropped(kDoubleBits - format.significand_bits),
        smallest_exponent(std::ilogb(format.min_normal)),
        smallest(format.min_subnormal),
        largest(format.max_finite) {}
};

// `bits` are uniform. Adding uniform bits to the part that is dropped, and dropping it, carries
// into the kept part with the probability that the dropped part is of its unit.
double round_one(const Target& target, double value, uint64_t bits) {
  const double magnitude = std::abs(value);
  if (magnitude < target.smallest) {  // the neighbours are zero and the smallest value
    constexpr double kUnit = 0x1p-53;
    const double draw = static_cast<double>(bits >> 11) * kUnit;
    return std::copysign(draw * target.smallest < magnitude ? target.smallest : 0.0, value);
  }
  const uint64_t stored = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>(stored >> 52 & 0x7FF) - kDoubleBias;
  const int dropped = target.dropped + std::max(target.smallest_exponent - exponent, 0);
  const uint64_t mask = (uint64_t{1} << dropped) - 1;
  return std::bit_cast<double>((stored + (bits & mask)) & ~mask);
}

// One block of Philox serves two columns.
std::array<uint64_t, 2> random_pair(const ElementRow& place, int64_t pair) {
  const auto low = [](int64_t index) { return static_cast<uint32_t>(index); };
  const auto high = [](int64_t index) { return static_cast<uint32_t>(index >> 32) & 0x3FF; };
  const std::array<uint32_t, 4> counter = {
      low(pair), low(place.row), low(place.batch),
      high(pair) | high(place.row) << 10 | high(place.batch) << 20};
  const auto words =
      philox(counter, {static_cast<uint32_t>(place.seed), static_cast<uint32_t>(place.seed >> 32)});
  return {uint64_t{words[1]} << 32 | words[0], uint64_t{words[3]} << 32 | words[2]};
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

OutputRounding output_rounding(const Contract& contract, int reliability_level) {
  if (contract.seed == 0) return OutputRounding::kNearest;
  if (reliability_level < kStochasticReliability) return OutputRounding::kUnreliable;
  const bool narrow = contract.output == PRECISION_FP16 || contract.output == PRECISION_BF16 ||
                      base::is_fp8(contract.output);
  if (!narrow) return OutputRounding::kWideOutput;
  if (contract.reproducibility == REPRODUCIBILITY_BATCH_INVARIANT) {
    return OutputRounding::kDependsOnRow;
  }
  return OutputRounding::kStochastic;
}

void round_stochastically(gemm_precision_t format, const ElementRow& place, int64_t column,
                          int64_t count, double* values) {
  const Target target(*base::find_format(format));
  std::array<uint64_t, 2> random = {};
  for (int64_t j = 0; j < count; ++j) {
    const int64_t at = column + j;
    if (j == 0 || at % 2 == 0) random = random_pair(place, at / 2);
    double& value = values[j];
    const bool inside = std::abs(value) < target.largest;  // false for NaN
    value = inside ? round_one(target, value, random[static_cast<size_t>(at % 2)])
                   : base::round_to(format, value);
  }
}

}  // namespace deepgemm::contract
