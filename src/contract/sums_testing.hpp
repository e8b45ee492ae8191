// Emulated paths, for the tests of this folder: sums with any number of bits, rounding or
// truncating, aligned or not, in steps, chains and splits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/formats.hpp"
#include "contract/bound.hpp"
#include "contract/verify.hpp"

namespace deepgemm::contract {

// x with `bits` significand bits, not below the quantum of FP32 (or FP64) subnormals.
inline double round_bits(long double x, int bits, bool truncate) {
  if (x == 0) return 0;
  const int exponent = std::ilogb(x);
  const int smallest = (bits > 24 ? -1022 : -126) + 1 - bits;
  const int quantum = std::max(exponent + 1 - bits, smallest);
  const long double units = std::ldexp(x, -quantum);
  return static_cast<double>(
      std::ldexp(truncate ? std::trunc(units) : std::nearbyint(units), quantum));
}

// One step of an aligned adder: every addend cut to `bits` below the largest.
inline long double aligned_sum(std::span<const double> addends, double accumulator, int bits) {
  double largest = std::abs(accumulator);
  for (const double addend : addends) largest = std::max(largest, std::abs(addend));
  if (largest == 0) return 0;
  const int quantum = std::ilogb(largest) + 1 - bits;
  const auto cut = [quantum](double x) {
    return std::ldexp(std::trunc(std::ldexp(static_cast<long double>(x), -quantum)), quantum);
  };
  long double sum = cut(accumulator);
  for (const double addend : addends) sum += cut(addend);
  return sum;
}

inline double chain_sum(std::span<const double> products, const Accumulation& how) {
  const int aligned = how.aligned_bits > 0 ? how.aligned_bits : how.bits < 24 ? how.bits : 0;
  double accumulator = 0;
  for (size_t first = 0; first < products.size(); first += static_cast<size_t>(how.step)) {
    const auto step =
        products.subspan(first, std::min(static_cast<size_t>(how.step), products.size() - first));
    long double sum = 0;
    if (how.truncates && aligned > 0 && how.step > 1) {
      sum = aligned_sum(step, accumulator, aligned);
    } else {
      sum = accumulator;
      for (const double product : step) {
        sum += how.product_rounds ? round_bits(product, how.bits, false) : product;
      }
    }
    accumulator = round_bits(sum, how.bits, how.truncates);
  }
  return accumulator;
}

// Parts of an operand that the path multiplies: one, or the parts of a split.
inline std::vector<double> parts_of(double x, const Path& path) {
  if (path.parts == 1) return {base::round_to(path.multiplicand, x)};
  const double first = base::round_to(path.multiplicand, x);
  const double second = base::round_to(path.multiplicand, x - first);
  if (path.parts == 3) return {first, second};
  return {first, second, base::round_to(path.multiplicand, x - first - second)};
}

// Products of one element in the order of k; small parts first.
inline std::vector<double> products_of(const ReferenceProblem& problem, const BoundInput& input,
                                       int64_t row, int64_t column) {
  const Path& path = path_info(input.path);
  const size_t kept = path.parts == 3 ? 1 : 2;  // sum of part indices that is still multiplied
  std::vector<double> products;
  for (int64_t k = 0; k < problem.k; ++k) {
    const double a = problem.a[static_cast<size_t>(row * problem.k + k)];
    double b = problem.b[static_cast<size_t>(k * problem.n + column)];
    if (input.accumulation.dequant_rounds) b = base::round_to(multiplicand_of(path, input.a), b);
    if (path.multiplicand == PRECISION_DEFAULT || input.path == PathId::kFp8) {
      products.push_back(a * b);
      continue;
    }
    const std::vector<double> as = parts_of(a, path), bs = parts_of(b, path);
    for (size_t order = path.parts == 1 ? 0 : kept; order + 1 > 0; --order) {
      for (size_t i = 0; i <= order; ++i) {
        if (i < as.size() && order - i < bs.size()) products.push_back(as[i] * bs[order - i]);
      }
    }
  }
  return products;
}

// Cut to TF32, and BF16 products of what that loses. Those go through half of the steps: as two of
// them, added, in the place of one.
inline std::vector<double> mixed_products(const ReferenceProblem& problem, const BoundInput& input,
                                          int64_t row, int64_t column) {
  constexpr int kTf32Bits = 11;
  const auto step = static_cast<size_t>(input.accumulation.step);
  std::vector<double> products;
  for (int64_t begin = 0; begin < problem.k; begin += static_cast<int64_t>(2 * step)) {
    std::vector<double> block(4 * step);
    const int64_t end = std::min(problem.k, begin + static_cast<int64_t>(2 * step));
    for (int64_t k = begin; k < end; ++k) {
      const auto at = static_cast<size_t>(k - begin);
      const double a = problem.a[static_cast<size_t>(row * problem.k + k)];
      const double b = problem.b[static_cast<size_t>(k * problem.n + column)];
      const double cut_a = round_bits(a, kTf32Bits, true), cut_b = round_bits(b, kTf32Bits, true);
      const auto bf16 = [](double x) { return base::round_to(PRECISION_BF16, x); };
      block[at % step] += bf16(a - cut_a) * bf16(b);
      block[step + at % step] += bf16(a) * bf16(b - cut_b);
      block[2 * step + at] = cut_a * cut_b;
    }
    products.insert(products.end(), block.begin(), block.end());
  }
  return products;
}

inline double split_sum(std::span<const double> products, const BoundInput& input) {
  const Accumulation& how = input.accumulation;
  const auto passes = static_cast<size_t>(path_info(input.path).passes);
  const auto unit = static_cast<size_t>(std::max(how.step, how.chain)) * passes;
  const auto splits = static_cast<size_t>(how.splits);
  const size_t length = ((products.size() + splits - 1) / splits + unit - 1) / unit * unit;
  const size_t chain = how.chain > 0 ? static_cast<size_t>(how.chain) * passes : products.size();
  const int outer_bits = how.chain > 0 ? how.promoted_bits : how.bits;
  double total = 0;
  for (size_t first = 0; first < products.size(); first += length) {
    const auto part = products.subspan(first, std::min(length, products.size() - first));
    double promoted = 0;
    for (size_t at = 0; at < part.size(); at += chain) {
      const double sum = chain_sum(part.subspan(at, std::min(chain, part.size() - at)), how);
      promoted = round_bits(static_cast<long double>(promoted) + sum, outer_bits, false);
    }
    total = round_bits(static_cast<long double>(total) + promoted, outer_bits, false);
  }
  return total;
}

inline std::vector<double> emulate(const ReferenceProblem& problem, const BoundInput& input) {
  const int bits = path_info(input.path).accumulator_bits == 53 ? 53 : 24;
  std::vector<double> result;
  for (int64_t row = 0; row < problem.m; ++row) {
    for (int64_t column = 0; column < problem.n; ++column) {
      const auto products = input.path == PathId::kTf32Bf16
                                ? mixed_products(problem, input, row, column)
                                : products_of(problem, input, row, column);
      const double sum = split_sum(products, input);
      const double alpha = round_bits(input.alpha, bits, false);
      const double scaled = round_bits(static_cast<long double>(alpha) * sum, bits, false);
      result.push_back(base::round_to(input.output, scaled));
    }
  }
  return result;
}

}  // namespace deepgemm::contract
