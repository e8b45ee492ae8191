// Products whose tiles skip blocks of K, for the tests of this folder: settings, inputs, norms, and
// a plain emulation of the path that skips.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "contract/skip.hpp"
#include "contract/verify.hpp"

namespace deepgemm::contract {

struct Setting {
  int64_t m = 5, n = 40, k = 1000;
  int64_t block_k = 128;
  double relative = 0, absolute = 0;  // limits
  double tolerance = 0.5;
  double alpha = 1;
  gemm_activation_t activation = GEMM_ACTIVATION_NONE;
  uint64_t seed = 1;

  int64_t blocks() const { return (k + block_k - 1) / block_k; }
};

inline Contract contract_of(const Setting& s) {
  Contract contract;
  contract.max_relative_error = s.relative;
  contract.max_absolute_error = s.absolute;
  contract.native = s.relative == 0 && s.absolute == 0;
  contract.skip_tolerance = s.tolerance;
  return contract;
}

// FP32 sums of block_k products, added up in FP64; worst case.
inline BoundInput bound_input(const Setting& s) {
  BoundInput input;
  input.path = PathId::kFp32;
  input.k = s.k;
  input.accumulation.chain = s.block_k;
  input.accumulation.promoted_bits = 53;
  input.activation = s.activation;
  input.alpha = s.alpha;
  return input;
}

inline ReferenceProblem normal_problem(const Setting& s) {
  ReferenceProblem problem;
  problem.m = s.m;
  problem.n = s.n;
  problem.k = s.k;
  problem.alpha = s.alpha;
  problem.activation = s.activation;
  problem.output = PRECISION_FP32;
  std::mt19937_64 engine(s.seed);
  std::normal_distribution<float> normal;
  problem.a.resize(static_cast<size_t>(s.m * s.k));
  problem.b.resize(static_cast<size_t>(s.k * s.n));
  for (double& value : problem.a) value = static_cast<double>(normal(engine));
  for (double& value : problem.b) value = static_cast<double>(normal(engine));
  return problem;
}

inline double& a_at(ReferenceProblem& p, int64_t i, int64_t k) {
  return p.a[static_cast<size_t>(i * p.k + k)];
}
inline double& b_at(ReferenceProblem& p, int64_t k, int64_t j) {
  return p.b[static_cast<size_t>(k * p.n + j)];
}

// Multiplies block `block` of K of A by `factor`; values stay FP32.
inline void scale_a(ReferenceProblem& p, const Setting& s, int64_t block, double factor) {
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t k = block * s.block_k; k < std::min((block + 1) * s.block_k, p.k); ++k) {
      a_at(p, i, k) = static_cast<double>(static_cast<float>(a_at(p, i, k) * factor));
    }
  }
}
inline void scale_b(ReferenceProblem& p, const Setting& s, int64_t block, double factor) {
  for (int64_t k = block * s.block_k; k < std::min((block + 1) * s.block_k, p.k); ++k) {
    for (int64_t j = 0; j < p.n; ++j) {
      b_at(p, k, j) = static_cast<double>(static_cast<float>(b_at(p, k, j) * factor));
    }
  }
}

// Norms of the vectors [first, first + count); value(vector, k).
struct Norms {
  std::vector<SkipNorm> norms;
  std::vector<double> weights;
};
inline Norms norms_of(int64_t vectors, int64_t k,
                      const std::function<double(int64_t, int64_t)>& value) {
  const int64_t granules = (k + kSkipGranule - 1) / kSkipGranule;
  Norms result;
  for (int64_t first = 0; first < vectors; first += kSkipLanes) {
    const int64_t lanes = std::min(kSkipLanes, vectors - first);
    std::array<double, static_cast<size_t>(kSkipLanes)> weights = {};
    std::vector<SkipNorm> norms(static_cast<size_t>(granules));
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t g = 0; g < granules; ++g) {
        const int64_t count = std::min(kSkipGranule, k - g * kSkipGranule);
        std::vector<double> values(static_cast<size_t>(kSkipGranule * kSkipLanes));
        for (int64_t i = 0; i < count; ++i) {
          for (int64_t lane = 0; lane < lanes; ++lane) {
            values[static_cast<size_t>(i * kSkipLanes + lane)] =
                value(first + lane, g * kSkipGranule + i);
          }
        }
        if (pass == 0) {
          add_weights(values.data(), count, lanes, weights.data());
        } else {
          add_norms(values.data(), count, lanes, weights.data(), norms[static_cast<size_t>(g)]);
        }
      }
    }
    result.norms.insert(result.norms.end(), norms.begin(), norms.end());
    result.weights.push_back(*std::ranges::max_element(weights));
  }
  return result;
}

inline SkipNorms view(const Norms& norms) {
  const auto tiles = static_cast<int64_t>(norms.weights.size());
  return {norms.norms.data(), norms.weights.data(), tiles,
          static_cast<int64_t>(norms.norms.size()) / tiles};
}

struct Outcome {
  std::vector<bool> skipped;  // block
  double worst = 0;           // largest share of the allowance that an element uses
  bool kept = false;          // result within the certificate
  bool within_limit = false;  // and the certificate within the contract
  int64_t count() const { return std::ranges::count(skipped, true); }
};

inline double computed(const ReferenceProblem& p, const Setting& s,
                       const std::vector<bool>& skipped, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t block = 0; block < s.blocks(); ++block) {
    if (skipped[static_cast<size_t>(block)]) continue;
    float part = 0;
    for (int64_t k = block * s.block_k; k < std::min((block + 1) * s.block_k, p.k); ++k) {
      part = std::fma(static_cast<float>(p.a[static_cast<size_t>(i * p.k + k)]),
                      static_cast<float>(p.b[static_cast<size_t>(k * p.n + j)]), part);
    }
    sum += static_cast<double>(part);
  }
  const double v = p.alpha * sum;
  const double x = p.activation == GEMM_ACTIVATION_SILU ? v / (1 + std::exp(-v)) : v;
  return static_cast<double>(static_cast<float>(x));
}

// Share of the allowance that an element uses; products that are not finite, none.
inline double share_used(const ReferenceProblem& p, const Setting& s,
                         const SkipAllowance& allowance, const std::vector<bool>& skipped,
                         int64_t i, int64_t j) {
  long double left_out = 0, all = 0;
  for (int64_t k = 0; k < p.k; ++k) {
    const long double product =
        std::abs(static_cast<long double>(p.a[static_cast<size_t>(i * p.k + k)]) *
                 p.b[static_cast<size_t>(k * p.n + j)]);
    all += product;
    if (skipped[static_cast<size_t>(k / s.block_k)]) left_out += product;
  }
  if (left_out == 0) return 0;
  const long double allowed =
      allowance.relative > 0 ? allowance.relative * all
                             : allowance.absolute / std::abs(static_cast<long double>(p.alpha));
  return static_cast<double>(left_out / allowed);
}

// One tile of all rows and columns.
inline Outcome run(const Setting& s, const ReferenceProblem& p) {
  const Contract contract = contract_of(s);
  BoundInput input = bound_input(s);
  ErrorBound bound = error_bound(input);
  const SkipAllowance allowance = skip_allowance(contract, input, bound);
  input.skip_relative = allowance.relative;
  input.skip_absolute = allowance.absolute;
  bound = error_bound(input);

  const Norms a = norms_of(
      p.m, p.k, [&](int64_t i, int64_t k) { return p.a[static_cast<size_t>(i * p.k + k)]; });
  const Norms b = norms_of(
      p.n, p.k, [&](int64_t j, int64_t k) { return p.b[static_cast<size_t>(k * p.n + j)]; });
  const TileSkips skips(allowance, p.alpha, p.k, s.block_k, view(a), view(b));
  Outcome outcome;
  for (int64_t block = 0; block < s.blocks(); ++block) {
    outcome.skipped.push_back(skips.skipped(block));
  }
  std::vector<double> result;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      outcome.worst = std::max(outcome.worst, share_used(p, s, allowance, outcome.skipped, i, j));
      result.push_back(computed(p, s, outcome.skipped, i, j));
    }
  }
  outcome.kept =
      compare(result, compute_reference(p), p.m, p.n, bound.relative, bound.absolute).passed();
  outcome.within_limit = admit(contract, path_info(input.path), bound, s.k).ok();
  return outcome;
}

inline Setting relative(double limit = 1e-3) {
  Setting s;
  s.relative = limit;
  return s;
}
inline Setting absolute(double limit) {
  Setting s;
  s.absolute = limit;
  return s;
}

}  // namespace deepgemm::contract
