#include "schedule/outcome.hpp"

#include <algorithm>
#include <vector>

#include "schedule/refusal.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

std::string describe(const Candidate& candidate) {
  if (candidate.whole_family) return candidate.family->name;
  return fmt::format("{} on {}{}{}", contract::path_info(candidate.path).name,
                     candidate.family->name, candidate.any_config ? "" : " ",
                     candidate.any_config ? "" : config_name(candidate.config));
}

// The candidate with the smallest figure among those refused by one check; nullptr without any.
template <class Figure>
const Candidate* least(const Report& report, Check check, Figure figure) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : report.candidates) {
    if (!refused_by(candidate, check)) continue;
    if (best == nullptr || figure(candidate) < figure(*best)) best = &candidate;
  }
  return best;
}

base::Error latency_failure(const Report& report, const Candidate& best) {
  return base::make_error(DEEPGEMM_ERROR_BUDGET_INFEASIBLE,
                          "budget.max_latency_us is {:.4g}, but the best reachable on {} is a "
                          "predicted {:.4g} us ({}, bound by "
                          "{}): raise it to {:.4g} or more.",
                          report.problem.budget.max_latency_us, report.device, best.cost->us,
                          describe(best), best.cost->bound_by, best.cost->us * 1.001);
}

base::Error energy_failure(const Report& report, const Candidate& best) {
  return base::make_error(DEEPGEMM_ERROR_BUDGET_INFEASIBLE,
                          "budget.energy_cap_mj is {:.4g}, but the best reachable on {} is a "
                          "predicted {:.4g} mJ ({}): raise it "
                          "to {:.4g} or more.",
                          report.problem.budget.energy_cap_mj, report.device, best.cost->energy_mj,
                          describe(best), best.cost->energy_mj * 1.001);
}

base::Error contract_failure(const Report& report, const Candidate& best) {
  return base::make_error(DEEPGEMM_ERROR_CONTRACT_UNMET,
                          "No arithmetic on {} keeps the contract. Nearest is {}: {}.",
                          report.device, describe(best), best.refusal->reason);
}

// The most telling refusals first: those that were reached last in the order of checks.
base::Error unsupported_failure(const Report& report) {
  constexpr Check kTelling[] = {Check::kCaller,       Check::kReproducibility,
                                Check::kKernel,       Check::kSharedMemory,
                                Check::kTilingPolicy, Check::kAlignment,
                                Check::kMaxM,         Check::kUnit,
                                Check::kFormats,      Check::kPath,
                                Check::kHopperOpt,    Check::kArchitecture,
                                Check::kBackend};
  constexpr size_t kShown = 3;
  std::vector<std::string> reasons;
  for (const Check check : kTelling) {
    for (const Candidate& candidate : report.candidates) {
      if (!refused_by(candidate, check) || reasons.size() >= kShown) continue;
      std::string reason = fmt::format("{} ({}): {}", describe(candidate), candidate.refusal->check,
                                       candidate.refusal->reason);
      if (std::ranges::count(reasons, reason) == 0) reasons.push_back(std::move(reason));
    }
  }
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                          "No kernel family for this problem on {}. {}.", report.device,
                          fmt::join(reasons, "; "));
}

}  // namespace

base::Error explain_failure(const Report& report) {
  if (const Candidate* best =
          least(report, Check::kMemory, [](const Candidate& c) { return c.cost->us; })) {
    return base::make_error(DEEPGEMM_ERROR_OUT_OF_MEMORY,
                            "{}: give a smaller problem or free memory.", best->refusal->reason);
  }
  if (const Candidate* best = least(report, Check::kBudgetEnergy,
                                    [](const Candidate& c) { return c.cost->energy_mj; })) {
    return energy_failure(report, *best);
  }
  if (const Candidate* best =
          least(report, Check::kBudgetLatency, [](const Candidate& c) { return c.cost->us; })) {
    return latency_failure(report, *best);
  }
  if (const Candidate* best =
          least(report, Check::kContract, [](const Candidate& c) { return c.bound->relative; })) {
    return contract_failure(report, *best);
  }
  return unsupported_failure(report);
}

const Candidate* chosen_candidate(const Report& report) {
  if (!report.choice) return nullptr;
  for (const Candidate& candidate : report.candidates) {
    if (!candidate.refusal && same_kernel(*report.choice, candidate)) return &candidate;
  }
  return nullptr;
}

std::string compare_with_next(const Report& report) {
  const Candidate* chosen = chosen_candidate(report);
  if (chosen == nullptr) return {};
  const Candidate* next = nullptr;
  for (const Candidate& candidate : report.candidates) {
    if (candidate.refusal || &candidate == chosen) continue;
    if (candidate.family == chosen->family && candidate.path == chosen->path) continue;
    if (next == nullptr || *candidate.score < *next->score) next = &candidate;
  }
  if (next == nullptr) return "the only path and family that passes every check";
  const double ratio = *chosen->score > 0 ? *next->score / *chosen->score : 1;
  if (ratio < 1.0005) {
    return fmt::format("as fast as {}, and its arithmetic is nearest to the storage",
                       describe(*next));
  }
  return fmt::format("next best is {}, {:.3g} times the score", describe(*next), ratio);
}

}  // namespace deepgemm::schedule
