#include "schedule/notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/formats.hpp"
#include "contract/skip.hpp"
#include "contract/stochastic.hpp"
#include "schedule/cost.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;
using Notes = std::vector<std::string>;

bool on_cpu(const PlanContext& context) { return context.profile.backend == Backend::kCpu; }

void note_tiling(const PlanContext& context, Notes& notes) {
  const gemm_tiling_policy_t& policy = context.problem.tiling;
  if (on_cpu(context)) {
    if (policy.warp_m > 0 || policy.warp_n > 0 || policy.warp_k > 0) {
      notes.push_back(fmt::format("tiling_policy.warp {}x{}x{}: not applicable, a CPU has no warps",
                                  policy.warp_m, policy.warp_n, policy.warp_k));
    }
    if (policy.l2_prefetch != L2_PREFETCH_DEFAULT) {
      notes.emplace_back(
          "tiling_policy.l2_prefetch: not applicable, this backend leaves prefetching to "
          "the CPU");
    }
  }
  if (policy.sm_partition == SM_PARTITION_DYNAMIC) {
    notes.push_back(fmt::format("sm_partition dynamic: {} of {} {} granted at a load of {:.0f} %",
                                context.units, context.profile.units,
                                on_cpu(context) ? "threads" : "SMs", 100 * context.state.load));
  }
}

// Share of L2 that may be set aside for persisting data (compute capability 8.0 and up).
constexpr double kPersistingShare = 0.75;

void note_l2_wish(const PlanContext& context, const char* name, const intent::Operand& operand,
                  Notes& notes) {
  if (operand.space != MEM_SPACE_L2_CACHE) return;
  if (on_cpu(context) || context.profile.sm < 80) {
    notes.push_back(fmt::format("{}: residency in L2 is wished; {} cannot grant it", name,
                                context.profile.name));
    return;
  }
  const auto bytes = layout::buffer_bytes(operand.layout, operand.precision);
  const double wished = bytes.ok() ? static_cast<double>(*bytes) : 0;
  const double most = kPersistingShare * static_cast<double>(context.profile.l2_bytes);
  notes.push_back(
      fmt::format("{}: residency of {:.3g} MB in L2 is wished; at most {:.3g} MB can be granted, "
                  "what is granted is "
                  "known at launch",
                  name, wished / 1e6, std::min(wished, most) / 1e6));
}

void note_wishes(const PlanContext& context, Notes& notes) {
  const intent::Problem& problem = context.problem;
  struct Named {
    const char* name;
    const intent::Operand& operand;
  };
  for (const Named& entry : {Named{"A", problem.a}, Named{"B", problem.b}, Named{"C", problem.c}}) {
    note_l2_wish(context, entry.name, entry.operand, notes);
    const bool once = entry.operand.access == ACCESS_PATTERN_STREAMING ||
                      entry.operand.physical == LAYOUT_STREAMING;
    if (once && !on_cpu(context)) {
      notes.push_back(fmt::format("{}: read with evict-first hints", entry.name));
    }
    if (entry.operand.space == MEM_SPACE_HOST_PINNED && on_cpu(context)) {
      notes.push_back(
          fmt::format("{}: pinned memory is wished; a CPU reads all memory alike", entry.name));
    }
  }
}

void note_family(const PlanContext& context, const Candidate& best, Notes& notes) {
  if (std::string_view(best.family->name) == "simt") {
    notes.emplace_back(
        "the portable family of last resort was taken: right, but without tensor cores; the "
        "refusals "
        "tell what the faster families miss");
  }
  if (!on_cpu(context) && best.cost->waves > 0 && best.cost->waves < 0.5) {
    notes.push_back(fmt::format("only {:.0f} % of the {} SMs have work: the product is small",
                                100 * best.cost->waves, context.units));
  }
}

void note_energy(const PlanContext& context, Notes& notes) {
  if (context.problem.budget.energy_cap_mj > 0 && context.profile.board_power_w <= 0) {
    notes.push_back(
        fmt::format("energy_cap_mj {:.4g} is not enforced: the profile of {} states no power",
                    context.problem.budget.energy_cap_mj, context.profile.name));
  }
}

void note_reproducibility(const PlanContext& context, const Report& report, const Candidate& best,
                          Notes& notes) {
  const auto clause = context.problem.contract.reproducibility;
  if (clause == REPRODUCIBILITY_RUN_TO_RUN) {
    notes.emplace_back("run-to-run reproducible: partial sums are added in a fixed order");
  }
  if (clause != REPRODUCIBILITY_BATCH_INVARIANT) return;
  double fastest = best.cost->us;
  for (const Candidate& candidate : report.candidates) {
    if (candidate.cost) fastest = std::min(fastest, candidate.cost->us);
  }
  notes.push_back(
      fmt::format("batch-invariant: K is summed in the same order for every M; among the "
                  "families that serve every M this costs a factor of {:.3g} here",
                  best.cost->us / fastest));
}

// ---- Stochastic rounding and tile skipping
// ------------------------------------------------------------------------

void note_output_rounding(const PlanContext& context, const Candidate& best, Notes& notes) {
  const contract::Contract& contract = context.problem.contract;
  const int level = context.problem.budget.reliability_level;
  switch (contract::output_rounding(contract, level)) {
    case contract::OutputRounding::kNearest:
      return;
    case contract::OutputRounding::kUnreliable:
      notes.push_back(
          fmt::format("seed {}: not used, reliability_level {} rounds to nearest; "
                      "stochastic rounding is allowed from {} on",
                      contract.seed, level, contract::kStochasticReliability));
      return;
    case contract::OutputRounding::kWideOutput:
      notes.push_back(fmt::format("seed {}: not used, {} output is rounded to nearest",
                                  contract.seed, base::find_format(contract.output)->name));
      return;
    case contract::OutputRounding::kDependsOnRow:
      notes.push_back(
          fmt::format("seed {}: not used, the output is rounded to nearest: with stochastic "
                      "rounding the bits of a row would depend on its place in the batch",
                      contract.seed));
      return;
    case contract::OutputRounding::kStochastic:
      break;
  }
  const char* outcome = best.bound->stochastic_output
                            ? "the output is rounded stochastically, the same for every schedule"
                            : "not used, the error limit leaves no room for stochastic rounding";
  notes.push_back(fmt::format("seed {}: {}", contract.seed, outcome));
}

// Why nothing is skipped; empty when blocks may be.
std::string no_skipping_reason(const PlanContext& context, const Candidate& best) {
  const intent::Problem& problem = context.problem;
  switch (contract::skip_rule(problem.contract, problem.epilogue.activation)) {
    case contract::SkipRule::kOff:
    case contract::SkipRule::kAllowed:
      break;
    case contract::SkipRule::kStrict:
      return "the contract gives no error limit of which skipping could use a share";
    case contract::SkipRule::kBatchInvariant:
      return "what a tile leaves out depends on all of its rows, and the contract is "
             "batch-invariant";
    case contract::SkipRule::kSwigluAbsolute:
      return "with SWIGLU it needs a relative limit";
  }
  if (best.bound->skip_relative > 0 || best.bound->skip_absolute > 0) return {};
  if (!family_skips(*best.family)) return fmt::format("{} does not skip yet", best.family->name);
  if (!skipping_pays(context)) {
    return fmt::format(
        "each launch would look for the norms of B, which pays from M = {} on; "
        "packed weights keep theirs",
        kSkipRows);
  }
  return "the bound of the path leaves no room below the error limit";
}

void note_skipping(const PlanContext& context, const Candidate& best, Notes& notes) {
  const double tolerance = context.problem.contract.skip_tolerance;
  if (tolerance == 0) return;
  const contract::ErrorBound& bound = *best.bound;
  const std::string reason = no_skipping_reason(context, best);
  if (!reason.empty()) {
    notes.push_back(
        fmt::format("skip_tolerance {:.3g}: nothing is skipped, {}", tolerance, reason));
    return;
  }
  const bool relative = bound.skip_relative > 0;
  notes.push_back(fmt::format(
      "skip_tolerance {:.3g}: a tile leaves out blocks of {} values of k that are "
      "proved to add at most {:.3g} {} to an element",
      tolerance, best.config.block_k, relative ? bound.skip_relative : bound.skip_absolute,
      relative ? "of (|A||B|)" : "in all"));
}

// ---- INT4 against dense weights
// ------------------------------------------------------------------------

// Fastest predicted time for `rows` rows over every family and tile of one path on this chip.
std::optional<double> fastest(const PlanContext& context, const intent::Problem& problem,
                              PathId path, int64_t rows) {
  std::optional<double> best;
  for (const Family& family : all_families()) {
    const bool runs = family.backend == context.profile.backend && family.supports(path) &&
                      (on_cpu(context) || (context.profile.sm >= family.sm_min &&
                                           context.profile.sm <= family.sm_max)) &&
                      (family.max_m == 0 || rows <= family.max_m) &&
                      (!family.hopper_opt || context.options.hopper_opt);
    if (!runs) continue;
    for (const KernelConfig& config : family_configs(family)) {
      const double us =
          estimate_cost(cost_input(problem, family, path, config, rows, context.units),
                        context.profile, context.state)
              .us;
      if (!best || us < *best) best = us;
    }
  }
  return best;
}

std::optional<PathId> dense_path(gemm_precision_t activations) {
  switch (activations) {
    case PRECISION_FP16:
      return PathId::kFp16;
    case PRECISION_BF16:
      return PathId::kBf16;
    case PRECISION_FP32:
      return PathId::kFp32;
    default:
      return std::nullopt;
  }
}

// From which M on dense weights of the activations' format would be faster than INT4 weights (P1).
void note_crossover(const PlanContext& context, const Candidate& best, Notes& notes) {
  const intent::Problem& packed = context.problem;
  const auto path = dense_path(packed.a.precision);
  if (!packed.requires_packed_b() || !path || packed.n == 0 || packed.k == 0) return;
  constexpr int64_t kLargestM = 16384;
  constexpr double kClearly = 1.05;
  intent::Problem dense = packed;
  dense.b.precision = packed.a.precision;
  std::optional<int64_t> crossover;
  for (int64_t m = kLargestM; m >= 1; m /= 2) {
    const auto with_int4 = fastest(context, packed, best.path, m);
    const auto with_dense = fastest(context, dense, *path, m);
    if (!with_int4 || !with_dense || *with_int4 <= kClearly * *with_dense) break;
    crossover = m;
  }
  const char* format = base::find_format(packed.a.precision)->name;
  if (!crossover) {
    notes.push_back(fmt::format(
        "INT4 weights are predicted to be no slower than {} weights for every M", format));
    return;
  }
  notes.push_back(fmt::format(
      "INT4 weights are predicted to be more than 5 % slower than {0} weights from M = {1} on{2}",
      format, *crossover,
      packed.m >= *crossover
          ? fmt::format(", as here: keep {} weights too if speed at such M matters", format)
          : ""));
}

}  // namespace

std::vector<std::string> make_notes(const PlanContext& context, const Report& report,
                                    const Candidate& best) {
  Notes notes;
  note_family(context, best, notes);
  note_tiling(context, notes);
  note_wishes(context, notes);
  note_energy(context, notes);
  note_reproducibility(context, report, best, notes);
  note_crossover(context, best, notes);
  note_output_rounding(context, best, notes);
  note_skipping(context, best, notes);
  if (best.cost->repack_us > 0) {
    notes.push_back(fmt::format("packing B is predicted to take {:.3g} us, once; no launch repacks",
                                best.cost->repack_us));
  }
  return notes;
}

}  // namespace deepgemm::schedule
