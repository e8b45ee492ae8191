#include "contract/verify.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/formats.hpp"

namespace deepgemm::contract {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kTile = 16;

struct Tolerance {
  double relative;
  double absolute;
  double largest;  // largest finite value of the output format
  bool saturates;  // FP8: larger values become the largest

  explicit Tolerance(double relative_in, double absolute_in, gemm_precision_t output)
      : relative(relative_in),
        absolute(absolute_in),
        largest(base::find_format(output)->max_finite),
        saturates(base::is_fp8(output)) {}

  double of(double magnitude) const {
    return (relative > 0 ? (relative + kReferenceError) * magnitude : 0) + absolute;
  }
};

enum class Verdict { kInside, kOutside, kNonfinite };

Verdict judge_overflow(double result, double value, const Tolerance& tolerance) {
  const bool same_sign = std::signbit(result) == std::signbit(value);
  const bool overflowed = std::isinf(result) && !tolerance.saturates;
  const bool saturated = tolerance.saturates && std::abs(result) == tolerance.largest;
  if (same_sign && (overflowed || saturated)) return Verdict::kInside;
  return std::isfinite(result) ? Verdict::kOutside : Verdict::kNonfinite;
}

Verdict judge(double result, double value, double magnitude, const Tolerance& tolerance) {
  if (std::isnan(value)) return std::isnan(result) ? Verdict::kInside : Verdict::kOutside;
  if (std::isinf(value)) {
    if (result == value || std::isnan(result)) return Verdict::kInside;
    return judge_overflow(result, value, tolerance);
  }
  const double allowed = tolerance.of(magnitude);
  if (std::isfinite(result) && std::abs(result - value) <= allowed) return Verdict::kInside;
  if (std::abs(value) + allowed >= tolerance.largest)
    return judge_overflow(result, value, tolerance);
  return std::isfinite(result) ? Verdict::kOutside : Verdict::kNonfinite;
}

}  // namespace

Comparison compare(const std::vector<double>& result, const Reference& reference, int64_t rows,
                   int64_t columns, double relative, double absolute) {
  const Tolerance tolerance(relative, absolute, reference.output);
  const int64_t tile_columns = (columns + kTile - 1) / kTile;
  std::vector<bool> damaged_tiles(static_cast<size_t>((rows + kTile - 1) / kTile * tile_columns));
  Comparison comparison;
  comparison.elements = rows * columns;
  double worst_share = -1;
  for (int64_t row = 0; row < rows; ++row) {
    bool damaged_row = false;
    for (int64_t column = 0; column < columns; ++column) {
      const auto at = static_cast<size_t>(row * columns + column);
      const double value = reference.value[at], magnitude = reference.magnitude[at];
      const Verdict verdict = judge(result[at], value, magnitude, tolerance);
      const double error = std::abs(result[at] - value);
      double share = 0;
      if (std::isfinite(error)) {
        const double allowed = tolerance.of(magnitude);
        share = error == 0 ? 0 : allowed > 0 ? error / allowed : kInfinity;
        comparison.max_absolute = std::max(comparison.max_absolute, error);
        // Below the absolute tolerance a quotient says nothing, unless the element is outside.
        if (error > 0 && (magnitude > absolute || verdict == Verdict::kOutside)) {
          comparison.max_relative = std::max(comparison.max_relative, error / magnitude);
        }
      } else if (verdict != Verdict::kInside) {
        share = kInfinity;
      }
      const bool first_nonfinite = verdict == Verdict::kNonfinite && comparison.nonfinite == 0;
      if (first_nonfinite || (comparison.nonfinite == 0 && share > worst_share)) {
        worst_share = share;
        comparison.worst_row = row;
        comparison.worst_column = column;
      }
      if (verdict == Verdict::kInside) continue;
      ++comparison.outside;
      if (verdict == Verdict::kNonfinite) ++comparison.nonfinite;
      damaged_row = true;
      damaged_tiles[static_cast<size_t>(row / kTile * tile_columns + column / kTile)] = true;
    }
    if (damaged_row) ++comparison.damaged_rows;
  }
  comparison.damaged_tiles = std::ranges::count(damaged_tiles, true);
  return comparison;
}

KsTest kolmogorov_smirnov(std::vector<double> first, std::vector<double> second) {
  KsTest test;
  if (first.empty() || second.empty()) return test;
  for (std::vector<double>* sample : {&first, &second}) {
    for (double& value : *sample) {
      if (std::isnan(value)) value = kInfinity;
    }
    std::ranges::sort(*sample);
  }
  const auto first_size = static_cast<double>(first.size());
  const auto second_size = static_cast<double>(second.size());
  size_t i = 0, j = 0;
  while (i < first.size() && j < second.size()) {
    const double value = std::min(first[i], second[j]);
    while (i < first.size() && first[i] == value) ++i;
    while (j < second.size() && second[j] == value) ++j;
    const double distance =
        std::abs(static_cast<double>(i) / first_size - static_cast<double>(j) / second_size);
    test.statistic = std::max(test.statistic, distance);
  }
  const double size = std::sqrt(first_size * second_size / (first_size + second_size));
  const double x = (size + 0.12 + 0.11 / size) * test.statistic;
  if (x < 0.2) return test;  // the series converges slowly there, and p differs from 1 by 1e-12
  double p = 0;
  for (int term = 1; term <= 100; ++term) {
    const double part = std::exp(-2.0 * term * term * x * x);
    p += term % 2 == 1 ? part : -part;
    if (part < 1e-18) break;
  }
  test.p_value = std::clamp(2 * p, 0.0, 1.0);
  return test;
}

}  // namespace deepgemm::contract
