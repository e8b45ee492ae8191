#include "schedule/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/formats.hpp"
#include "contract/skip.hpp"
#include "contract/stochastic.hpp"
#include "schedule/checks.hpp"
#include "schedule/cost.hpp"
#include "schedule/refusal.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;

bool has_scales(gemm_precision_t precision) {
  return base::is_fp8(precision) || precision == PRECISION_INT8;
}

// 0 when no operand is quantised in groups.
int64_t group_size_of(const intent::Problem& problem) {
  const bool quantised = has_scales(problem.a.precision) || has_scales(problem.b.precision) ||
                         problem.requires_packed_b();
  return quantised ? problem.contract.group_size : 0;
}

contract::BoundInput bound_input(const PlanContext& context, PathId path,
                                 const contract::Accumulation& accumulation) {
  const intent::Problem& problem = context.problem;
  contract::BoundInput input;
  input.path = path;
  input.k = problem.k;
  input.a = problem.a.precision;
  input.b = problem.b.precision;
  input.output = problem.c.precision;
  input.accumulation = accumulation;
  input.scales = has_scales(problem.a.precision) || has_scales(problem.b.precision);
  input.beta = problem.beta != 0;
  input.bias = problem.epilogue.bias;
  input.residual = problem.epilogue.residual;
  input.activation = problem.epilogue.activation;
  input.confidence = problem.contract.confidence;
  input.max_abs_a = problem.contract.max_abs_a;
  input.max_abs_b = problem.contract.max_abs_b;
  input.alpha = problem.alpha;
  return input;
}

bool same_sums(const contract::Accumulation& x, const contract::Accumulation& y) {
  return std::tie(x.bits, x.truncates, x.step, x.chain, x.promoted_bits, x.splits, x.dequant_rounds,
                  x.dequant_roundoff, x.aligned_bits, x.flushes_subnormals, x.product_rounds) ==
         std::tie(y.bits, y.truncates, y.step, y.chain, y.promoted_bits, y.splits, y.dequant_rounds,
                  y.dequant_roundoff, y.aligned_bits, y.flushes_subnormals, y.product_rounds);
}

// Bound and admissibility of the configurations of one family and path. Configurations that sum
// alike share one computation.
class Admission {
 public:
  Admission(const PlanContext& context, const Family& family, PathId path)
      : context_(context), family_(family), path_(path) {}

  void judge(Candidate& candidate) {
    const contract::Accumulation sums =
        accumulation(family_, path_, candidate.config, context_.profile, context_.problem.k,
                     group_size_of(context_.problem));
    const Entry* entry = nullptr;
    for (const Entry& known : entries_) {
      if (same_sums(known.sums, sums)) entry = &known;
    }
    if (entry == nullptr) entry = &entries_.emplace_back(compute(sums));
    candidate.bound = entry->bound;
    candidate.refusal = entry->refusal;
  }

 private:
  struct Entry {
    contract::Accumulation sums;
    contract::ErrorBound bound;
    std::optional<Refusal> refusal;
  };

  Entry compute(const contract::Accumulation& sums) const {
    contract::BoundInput input = bound_input(context_, path_, sums);
    input.stochastic_output = rounds_stochastically(context_);
    Entry entry{sums, contract::error_bound(input), std::nullopt};
    auto admitted = admit(entry.bound);
    if (!admitted.ok() && input.stochastic_output) {  // only where the limits leave room for it
      input.stochastic_output = false;
      entry.bound = contract::error_bound(input);
      admitted = admit(entry.bound);
    }
    if (admitted.ok()) {
      allow_skipping(input, entry.bound);
    } else {
      entry.refusal = Refusal{check_name(Check::kContract), admitted.error().message};
    }
    return entry;
  }

  base::Result<contract::Certificate> admit(const contract::ErrorBound& bound) const {
    return contract::admit(context_.problem.contract, contract::path_info(path_), bound,
                           context_.problem.k);
  }

  void allow_skipping(contract::BoundInput& input, contract::ErrorBound& bound) const {
    if (!family_skips(family_) || !skipping_pays(context_)) return;
    const auto allowance = contract::skip_allowance(context_.problem.contract, input, bound);
    if (!allowance.any()) return;
    input.skip_relative = allowance.relative;
    input.skip_absolute = allowance.absolute;
    contract::ErrorBound with_skipping = contract::error_bound(input);
    if (admit(with_skipping).ok()) bound = std::move(with_skipping);
  }

  const PlanContext& context_;
  const Family& family_;
  PathId path_;
  std::vector<Entry> entries_;
};

int bits_of(gemm_precision_t precision) { return base::find_format(precision)->storage_bits; }

// Elements as tiles hold them: as the multiplier takes them, but packed weights as stored.
struct TileBits {
  int a, b;
};
TileBits tile_bits(const PlanContext& context, const Family& family, PathId path) {
  const intent::Problem& problem = context.problem;
  const int seen = tile_element_bits(family, path, problem.a.precision);
  return {seen, problem.requires_packed_b() ? bits_of(problem.b.precision) : seen};
}

std::optional<Refusal> check_config(const PlanContext& context, const Candidate& candidate) {
  const KernelConfig& config = candidate.config;
  const TileBits bits = tile_bits(context, *candidate.family, candidate.path);
  const int64_t shared = shared_bytes(*candidate.family, config, bits.a, bits.b);
  if (shared > context.profile.shared_bytes_per_block) {
    return refuse(Check::kSharedMemory, "tile {} stages {} bytes; a block of {} has {}",
                  config_name(config), shared, context.profile.name,
                  context.profile.shared_bytes_per_block);
  }
  if (context.options.kernel_check) {
    auto missing = context.options.kernel_check(context.problem, candidate);
    if (missing) return Refusal{check_name(Check::kKernel), std::move(*missing)};
  }
  const bool invariant =
      context.problem.contract.reproducibility == REPRODUCIBILITY_BATCH_INVARIANT;
  if (invariant && config.split_k > 1) {
    return refuse(Check::kReproducibility,
                  "tile {} splits K in {}, which suits some M only: a row's bits would depend on M",
                  config_name(config), config.split_k);
  }
  return std::nullopt;
}

std::optional<Refusal> ask_caller(const PlanContext& context, const Candidate& candidate) {
  const deepgemm_hooks_t* hooks = context.options.hooks;
  if (hooks == nullptr || hooks->admit_candidate == nullptr) return std::nullopt;
  const double us = estimate_cost(cost_input(context.problem, *candidate.family, candidate.path,
                                             candidate.config, context.bucket, context.units),
                                  context.profile, context.state)
                        .us;
  const deepgemm_candidate_t view = hook_view(context, candidate, context.bucket, us);
  if (hooks->admit_candidate(hooks->user, &view)) return std::nullopt;
  return refuse(Check::kCaller, "refused by caller");
}

void price(const PlanContext& context, Candidate& candidate) {
  const CostInput input = cost_input(context.problem, *candidate.family, candidate.path,
                                     candidate.config, context.problem.m, context.units);
  candidate.cost = estimate_cost(input, context.profile, context.state);
  candidate.score = score_for(context, candidate, context.bucket);
}

bool all_refused_alike(const std::vector<Candidate>& candidates, size_t first) {
  for (size_t i = first; i < candidates.size(); ++i) {
    if (!candidates[i].refusal) return false;
    if (candidates[i].refusal->check != candidates[first].refusal->check) return false;
  }
  return first < candidates.size();
}

void add_configs(const PlanContext& context, const Family& family, PathId path,
                 std::vector<Candidate>& candidates) {
  Candidate proto;
  proto.path = path;
  proto.family = &family;
  Tilings tilings = apply_policy(family, context.problem.tiling, context.profile.units,
                                 tile_bits(context, family, path).a);
  if (tilings.refusal) {
    proto.any_config = true;
    proto.refusal = std::move(tilings.refusal);
    candidates.push_back(std::move(proto));
    return;
  }
  Admission admission(context, family, path);
  const size_t first = candidates.size();
  for (const KernelConfig& config : tilings.configs) {
    Candidate candidate = proto;
    candidate.config = config;
    candidate.refusal = check_config(context, candidate);
    if (!candidate.refusal) admission.judge(candidate);
    if (!candidate.refusal) candidate.refusal = ask_caller(context, candidate);
    if (!candidate.refusal) price(context, candidate);
    candidates.push_back(std::move(candidate));
  }
  if (all_refused_alike(candidates, first)) {
    // The one nearest to the contract, if bounds are known, stands for all.
    size_t best = first;
    for (size_t i = first; i < candidates.size(); ++i) {
      const auto& bound = candidates[i].bound;
      if (bound && bound->relative < candidates[best].bound->relative) best = i;
    }
    std::swap(candidates[first], candidates[best]);
    candidates.resize(first + 1);
    candidates[first].any_config = true;
  }
}

void add_family(const PlanContext& context, const Family& family,
                std::vector<Candidate>& candidates) {
  if (auto refusal = check_family(context, family)) {
    Candidate candidate;
    candidate.family = &family;
    candidate.whole_family = true;
    candidate.any_config = true;
    candidate.refusal = std::move(refusal);
    candidates.push_back(std::move(candidate));
    return;
  }
  for (const contract::Path& path : contract::all_paths()) {
    auto refusal = check_path(context, family, path.id);
    if (!refusal) {
      add_configs(context, family, path.id, candidates);
      continue;
    }
    Candidate candidate;
    candidate.path = path.id;
    candidate.family = &family;
    candidate.any_config = true;
    candidate.refusal = std::move(refusal);
    candidates.push_back(std::move(candidate));
  }
}

}  // namespace

bool rounds_stochastically(const PlanContext& context) {
  const intent::Problem& problem = context.problem;
  return contract::output_rounding(problem.contract, problem.budget.reliability_level) ==
         contract::OutputRounding::kStochastic;
}

bool family_skips(const Family& family) { return std::string_view(family.name) == "cpu_blocked"; }

bool skipping_pays(const PlanContext& context) {
  return context.problem.requires_packed_b() || context.problem.m >= kSkipRows;
}

std::vector<Candidate> enumerate_candidates(const PlanContext& context) {
  std::vector<Candidate> candidates;
  for (const Family& family : all_families()) add_family(context, family, candidates);
  return candidates;
}

deepgemm_candidate_t hook_view(const PlanContext& context, const Candidate& candidate, int64_t rows,
                               double predicted_us) {
  const KernelConfig& config = candidate.config;
  deepgemm_candidate_t view = {};
  view.device = context.profile.name.c_str();
  view.path = contract::path_info(candidate.path).name;
  view.family = candidate.family->name;
  view.m = rows;
  view.n = context.problem.n;
  view.k = context.problem.k;
  view.tiling = context.problem.tiling;
  view.tiling.block_m = config.block_m;
  view.tiling.block_n = config.block_n;
  view.tiling.block_k = config.block_k;
  view.tiling.warp_m = config.warp_m;
  view.tiling.warp_n = config.warp_n;
  view.tiling.warp_k = config.warp_k;
  view.bound_relative = candidate.bound ? candidate.bound->relative : 0;
  view.predicted_us = predicted_us;
  return view;
}

double score_for(const PlanContext& context, const Candidate& candidate, int64_t rows) {
  const CostInput input = cost_input(context.problem, *candidate.family, candidate.path,
                                     candidate.config, rows, context.units);
  const double us = estimate_cost(input, context.profile, context.state).us;
  const deepgemm_hooks_t* hooks = context.options.hooks;
  if (hooks == nullptr || hooks->score_candidate == nullptr) return us;
  const deepgemm_candidate_t view = hook_view(context, candidate, rows, us);
  const double score = hooks->score_candidate(hooks->user, &view);
  // NaN would make the order of candidates arbitrary.
  return std::isnan(score) ? HUGE_VAL : score;
}

}  // namespace deepgemm::schedule
