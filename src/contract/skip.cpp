#include "contract/skip.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace deepgemm::contract {
namespace {

constexpr double kSmallest = std::numeric_limits<double>::min();
constexpr double kLargest = std::numeric_limits<double>::max();

// Covers the roundings of norms (sums of at most kSkipGranule magnitudes), and those of sums over
// the granules of K, of which there are fewer than 2^26: together less than 2^27 times 2^-53.
constexpr double kMargin = 0x1p-26;
constexpr int64_t kLargestK = kSkipGranule << 26;

// Products of norms below this are not told from underflow: no allowance is that small.
constexpr double kNegligible = 1e-250;

// Part of the mean magnitude that a value must reach to count in SkipNorm::above: a smaller part
// counts more values and makes less of each. For normal values a quarter counts 84 %.
constexpr double kThresholdOfMean = 0.25;

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Largest sum of |a||b| that an element can have within a granule, by Hoelder's inequality.
double upper_bound(const SkipNorm& a, const SkipNorm& b) {
  if (!std::isfinite(a.sum) || !std::isfinite(b.sum)) {
    return std::numeric_limits<double>::infinity();
  }
  if (a.largest == 0 || b.largest == 0) return 0;
  const double bound = std::min(a.sum * b.largest, a.largest * b.sum) * (1 + kMargin);
  return std::max(bound, kSmallest);
}

// Least sum of |a||b| over `count` values of k: of the values that reach a threshold, above_a +
// above_b - count at least meet one that does.
double lower_bound(const SkipNorm& a, const SkipNorm& b, int64_t count) {
  const double meet = a.above + b.above - static_cast<double>(count);
  if (!(meet > 0) || !std::isfinite(meet)) return 0;
  return a.threshold * b.threshold * meet * (1 - kMargin);
}

// Where admission looks at an absolute limit (docs/contract.md, "Absolute limits").
double reference_magnitude(const Contract& contract, int64_t k) {
  const bool declared = contract.max_abs_a > 0 && contract.max_abs_b > 0;
  return declared ? static_cast<double>(k) * contract.max_abs_a * contract.max_abs_b : 1;
}

// Of both limits what the relative part of the bound may reach.
double relative_limit(const Contract& contract, const ErrorBound& bound, double magnitude) {
  if (contract.max_absolute_error == 0) return contract.max_relative_error;
  return std::min(contract.max_relative_error,
                  (contract.max_absolute_error - bound.absolute) / magnitude);
}

// What |alpha| |a||b| may add up to, divided by the weights. Factors are rounded up so far that
// their product cannot underflow.
double absolute_budget(const SkipAllowance& allowance, double alpha, const SkipNorms& a,
                       const SkipNorms& b) {
  constexpr double kTiny = 1e-100;
  return allowance.absolute / (std::max(std::abs(alpha), kTiny) * std::max(a.weight(), kTiny) *
                               std::max(b.weight(), kTiny));
}

// Each block may be charged the same, so that all of them together stay within the budget.
double share_of_block(double budget, int64_t blocks) {
  const double safe = std::min(budget * (1 - kMargin), kLargest);
  return safe > kNegligible ? safe / static_cast<double>(blocks) : 0;
}

// A bound grows with the allowance as a convex function does: scaled down by the excess, it grows
// by no more than `room`.
double fit(double room, double growth) {
  constexpr double kRounding = 1 - 1e-9;
  if (!(growth > 0) || !std::isfinite(growth)) return 0;
  return room * std::min(1.0, room / growth) * kRounding;
}

}  // namespace

SkipRule skip_rule(const Contract& contract, gemm_activation_t activation) {
  if (contract.skip_tolerance == 0) return SkipRule::kOff;
  if (contract.native) return SkipRule::kStrict;
  if (contract.reproducibility == REPRODUCIBILITY_BATCH_INVARIANT) {
    return SkipRule::kBatchInvariant;
  }
  if (contract.max_relative_error == 0 && activation == GEMM_ACTIVATION_SWIGLU) {
    return SkipRule::kSwigluAbsolute;
  }
  return SkipRule::kAllowed;
}

SkipAllowance skip_allowance(const Contract& contract, const BoundInput& input,
                             const ErrorBound& bound) {
  SkipAllowance allowance;
  if (skip_rule(contract, input.activation) != SkipRule::kAllowed) return allowance;
  const double magnitude = reference_magnitude(contract, input.k);
  BoundInput trial = input;
  if (contract.max_relative_error > 0) {
    const double room = std::min(contract.skip_tolerance * contract.max_relative_error,
                                 relative_limit(contract, bound, magnitude) - bound.relative);
    if (!(room > 0)) return allowance;
    trial.skip_relative = room;
    allowance.relative = fit(room, error_bound(trial).relative - bound.relative);
  } else {
    const double limit = contract.max_absolute_error;
    const double room = std::min(contract.skip_tolerance * limit,
                                 limit - (bound.relative * magnitude + bound.absolute));
    if (!(room > 0)) return allowance;
    trial.skip_absolute = room;
    allowance.absolute = fit(room, error_bound(trial).absolute - bound.absolute);
  }
  return allowance;
}

void SkipNorm::merge(const SkipNorm& other) {
  sum = std::max(sum, other.sum);
  largest = std::max(largest, other.largest);
  threshold = std::min(threshold, other.threshold);
  above = std::min(above, other.above);
}

void add_weights(const double* values, int64_t count, int64_t lanes, double* weights) {
  std::array<double, kSkipLanes> sums = {};
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t lane = 0; lane < kSkipLanes; ++lane) {
      sums[static_cast<size_t>(lane)] += std::abs(values[k * kSkipLanes + lane]);
    }
  }
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const double sum = sums[static_cast<size_t>(lane)];
    if (std::isfinite(sum)) weights[lane] = std::min(weights[lane] + sum, kLargest);
  }
}

void add_norms(const double* values, int64_t count, int64_t lanes, const double* weights,
               SkipNorm& norm) {
  std::array<double, kSkipLanes> sums = {}, largest = {}, thresholds = {}, above = {};
  for (int64_t k = 0; k < count; ++k) {
    for (size_t lane = 0; lane < kSkipLanes; ++lane) {
      const double magnitude = std::abs(values[k * kSkipLanes + static_cast<int64_t>(lane)]);
      sums[lane] += magnitude;
      largest[lane] = magnitude > largest[lane] ? magnitude : largest[lane];
    }
  }
  for (size_t lane = 0; lane < kSkipLanes; ++lane) {
    thresholds[lane] = sums[lane] * (kThresholdOfMean / static_cast<double>(count));
  }
  for (int64_t k = 0; k < count; ++k) {
    for (size_t lane = 0; lane < kSkipLanes; ++lane) {
      const double magnitude = std::abs(values[k * kSkipLanes + static_cast<int64_t>(lane)]);
      above[lane] += magnitude >= thresholds[lane] ? 1.0 : 0.0;
    }
  }
  for (size_t lane = 0; lane < static_cast<size_t>(lanes); ++lane) {
    const bool finite = std::isfinite(sums[lane]);
    if (finite && weights[lane] == 0) continue;  // zero everywhere that it is finite
    SkipNorm vector;
    if (!finite) {
      vector.sum = vector.largest = std::numeric_limits<double>::infinity();
      vector.threshold = vector.above = 0;
    } else {
      // A quotient that underflows must not look like zero.
      const double least = largest[lane] > 0 ? kSmallest : 0;
      vector.sum = std::max(sums[lane] / weights[lane], least);
      vector.largest = std::max(largest[lane] / weights[lane], least);
      vector.threshold = thresholds[lane] / weights[lane];
      vector.above = above[lane];
    }
    norm.merge(vector);
  }
}

SkipNorm SkipNorms::granule(int64_t index) const {
  SkipNorm merged = norms[index];
  for (int64_t tile = 1; tile < tiles; ++tile) merged.merge(norms[tile * granules + index]);
  return merged;
}

double SkipNorms::weight() const { return *std::max_element(weights, weights + tiles); }

TileSkips::TileSkips(const SkipAllowance& allowance, double alpha, int64_t k, int64_t block_k,
                     const SkipNorms& a, const SkipNorms& b) {
  if (!allowance.any() || k <= 0 || k > kLargestK) return;
  const int64_t blocks = divide_up(k, block_k);
  const int64_t judged = std::min(blocks, kMostBlocks);
  std::array<double, kMostBlocks> charges = {};  // a granule is charged to every block it touches
  double least = 0;
  for (int64_t granule = 0; granule < a.granules; ++granule) {
    const SkipNorm norm_a = a.granule(granule), norm_b = b.granule(granule);
    const int64_t begin = granule * kSkipGranule;
    const int64_t end = std::min(begin + kSkipGranule, k);
    least += lower_bound(norm_a, norm_b, end - begin);
    const double most = upper_bound(norm_a, norm_b);
    for (int64_t block = begin / block_k; block < judged && block * block_k < end; ++block) {
      charges[static_cast<size_t>(block)] += most;
    }
  }
  const double budget =
      allowance.relative > 0 ? allowance.relative * least : absolute_budget(allowance, alpha, a, b);
  const double share = share_of_block(budget, blocks);
  for (int64_t block = 0; block < judged; ++block) {
    const auto at = static_cast<size_t>(block);
    skipped_[at] = charges[at] <= share;
  }
}

}  // namespace deepgemm::contract
