#include "schedule/planner.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/formats.hpp"
#include "schedule/candidates.hpp"
#include "schedule/cost.hpp"
#include "schedule/notes.hpp"
#include "schedule/outcome.hpp"
#include "schedule/refusal.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;

// ---- Layouts
// -----------------------------------------------------------------------------------------

// A declaration that resolves to `stored` again.
gemm_layout_t declared_layout(const intent::Operand& operand, bool packed) {
  const layout::MatrixLayout& stored = operand.layout;
  gemm_layout_t declared = {};
  declared.memory_space = operand.space;
  declared.access_pattern = operand.access;
  declared.physical_layout = operand.physical;
  if (packed) return declared;
  if (operand.physical == LAYOUT_ANY) declared.physical_layout = LAYOUT_ROW_MAJOR;
  declared.logical_shape[0] = stored.batch;
  declared.logical_shape[1] = stored.rows;
  declared.logical_shape[2] = stored.cols;
  if (stored.blocked) return declared;
  const auto stride = [](int64_t value, int64_t extent) {
    return value == 0 && extent > 1 ? GEMM_STRIDE_BROADCAST : value;
  };
  declared.strides[0] = stride(stored.batch_stride, stored.batch);
  declared.strides[1] = stride(stored.row_stride, stored.rows);
  declared.strides[2] = stride(stored.col_stride, stored.cols);
  return declared;
}

// Lets the caller choose the layout of an operand declared ANY without strides.
base::Result<void> ask_for_layout(const deepgemm_hooks_t& hooks, deepgemm_operand_t which,
                                  const char* name, intent::Operand& operand) {
  gemm_layout_t proposed = declared_layout(operand, false);
  const layout::MatrixLayout stored = operand.layout;
  hooks.choose_layout(hooks.user, which, stored.rows, stored.cols, &proposed);
  const bool is_output = which == GEMM_OPERAND_C;
  auto chosen = layout::resolve(proposed, stored.batch, stored.rows, stored.cols, name, is_output);
  if (!chosen.ok()) {
    return base::make_error(chosen.error().code,
                            "The hook choose_layout gave an illegal layout: {}",
                            chosen.error().message);
  }
  operand.layout = *chosen;
  operand.physical =
      proposed.physical_layout == LAYOUT_ANY ? LAYOUT_ROW_MAJOR : proposed.physical_layout;
  operand.space = proposed.memory_space;
  operand.access = proposed.access_pattern;
  return {};
}

base::Result<void> choose_layouts(intent::Problem& problem, const PlannerOptions& options) {
  if (options.hooks == nullptr || options.hooks->choose_layout == nullptr) return {};
  struct Entry {
    deepgemm_operand_t which;
    const char* name;
    intent::Operand& operand;
  };
  for (const Entry& entry :
       {Entry{GEMM_OPERAND_A, "A", problem.a}, Entry{GEMM_OPERAND_B, "B", problem.b},
        Entry{GEMM_OPERAND_C, "C", problem.c}}) {
    if (entry.operand.physical != LAYOUT_ANY || base::is_int4(entry.operand.precision)) continue;
    DEEPGEMM_TRY(ask_for_layout(*options.hooks, entry.which, entry.name, entry.operand));
  }
  return {};
}

// ---- Batch invariance
// --------------------------------------------------------------------------------

// What decides the order in which an element's products are summed.
using SumOrder = std::tuple<const Family*, PathId, int32_t, int32_t, int32_t>;

SumOrder sum_order(const Candidate& candidate) {
  const KernelConfig& config = candidate.config;
  return {candidate.family, candidate.path, config.block_k, config.warp_k, config.split_k};
}

bool better(double score, PathId path, double best_score, PathId best_path) {
  constexpr double kTie = 1e-9;  // equal up to rounding: the arithmetic nearest to the storage
  if (std::isinf(best_score)) return score < best_score || path > best_path;
  if (std::abs(score - best_score) <= kTie * std::abs(best_score)) return path > best_path;
  return score < best_score;
}

// Under batch invariance one order of summation serves all M: the best for kReferenceRows rows.
void keep_one_order(const PlanContext& context, std::vector<Candidate>& candidates) {
  constexpr int64_t kReferenceRows = 128;
  if (context.problem.contract.reproducibility != REPRODUCIBILITY_BATCH_INVARIANT) return;
  const Candidate* best = nullptr;
  double best_score = 0;
  for (const Candidate& candidate : candidates) {
    if (candidate.refusal) continue;
    const double score = score_for(context, candidate, kReferenceRows);
    if (best != nullptr && !better(score, candidate.path, best_score, best->path)) continue;
    best = &candidate;
    best_score = score;
  }
  if (best == nullptr) return;
  const SumOrder order = sum_order(*best);
  const std::string kept = fmt::format("{} on {}, block_k {}", contract::path_info(best->path).name,
                                       best->family->name, best->config.block_k);
  for (Candidate& candidate : candidates) {
    if (candidate.refusal || sum_order(candidate) == order) continue;
    candidate.refusal = refuse(Check::kReproducibility,
                               "batch invariance keeps one order of summation for all M: {}", kept);
  }
}

// ---- Budget and memory
// ---------------------------------------------------------------------------------

// Bytes of A, B and C together.
double operand_bytes(const intent::Problem& problem) {
  double bytes = 0;
  for (const intent::Operand* operand : {&problem.a, &problem.b, &problem.c}) {
    const auto size = layout::buffer_bytes(operand->layout, operand->precision);
    if (size.ok()) bytes += static_cast<double>(*size);
  }
  return bytes;
}

std::optional<Refusal> check_memory(const PlanContext& context) {
  const bool measured = context.state.free_memory_bytes > 0;
  const double free = measured ? context.state.free_memory_bytes
                               : static_cast<double>(context.profile.memory_bytes);
  const double needed = operand_bytes(context.problem);
  if (free <= 0 || needed <= free) return std::nullopt;
  return refuse(Check::kMemory, "A, B and C take {:.4g} GB; {} has {:.4g} GB {}", needed / 1e9,
                context.profile.name, free / 1e9, measured ? "free" : "in all");
}

void apply_limits(const PlanContext& context, std::vector<Candidate>& candidates) {
  const intent::Budget& budget = context.problem.budget;
  const std::optional<Refusal> memory = check_memory(context);
  for (Candidate& candidate : candidates) {
    if (candidate.refusal) continue;
    const CostEstimate& cost = *candidate.cost;
    if (budget.max_latency_us > 0 && cost.us > budget.max_latency_us) {
      candidate.refusal =
          refuse(Check::kBudgetLatency, "predicted {:.4g} us, max_latency_us is {:.4g}", cost.us,
                 budget.max_latency_us);
    } else if (budget.energy_cap_mj > 0 && cost.energy_mj > budget.energy_cap_mj) {
      candidate.refusal =
          refuse(Check::kBudgetEnergy, "predicted {:.4g} mJ, energy_cap_mj is {:.4g}",
                 cost.energy_mj, budget.energy_cap_mj);
    } else if (memory) {
      candidate.refusal = memory;
    }
  }
}

const Candidate* choose(const std::vector<Candidate>& candidates) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.refusal) continue;
    if (best == nullptr || better(*candidate.score, candidate.path, *best->score, best->path)) {
      best = &candidate;
    }
  }
  return best;
}

Choice make_choice(const PlanContext& context, const Candidate& best) {
  const intent::Problem& problem = context.problem;
  Choice choice;
  choice.path = best.path;
  choice.family = best.family;
  choice.config = best.config;
  const auto certificate =
      contract::admit(problem.contract, contract::path_info(best.path), *best.bound, problem.k);
  if (certificate.ok()) choice.certificate = *certificate;
  choice.cost = *best.cost;
  choice.m_bucket = context.bucket;
  choice.threads = context.units;
  choice.packed_b = problem.requires_packed_b();
  choice.layout_a = declared_layout(problem.a, false);
  choice.layout_b = declared_layout(problem.b, choice.packed_b);
  choice.layout_c = declared_layout(problem.c, false);
  return choice;
}

}  // namespace

int64_t m_bucket(int64_t m) {
  constexpr int64_t kLargestBucket = int64_t{1} << 62;
  int64_t bucket = 1;
  while (bucket < m && bucket < kLargestBucket) bucket *= 2;
  return bucket;
}

bool same_kernel(const Choice& x, const Choice& y) {
  return x.path == y.path && x.family == y.family && x.config == y.config;
}

bool same_kernel(const Choice& choice, const Candidate& candidate) {
  return choice.path == candidate.path && choice.family == candidate.family &&
         choice.config == candidate.config;
}

Report plan(const intent::Problem& problem, const DeviceProfile& profile, const DeviceState& state,
            const PlannerOptions& options) {
  Report report;
  report.problem = problem;
  report.device = profile.name;
  report.title = profile.title;
  if (const auto chosen = choose_layouts(report.problem, options); !chosen.ok()) {
    report.failure = chosen.error();
    return report;
  }
  const PlanContext context{report.problem,
                            profile,
                            state,
                            options,
                            m_bucket(problem.m),
                            granted_units(problem.tiling, profile, state)};
  report.candidates = enumerate_candidates(context);
  keep_one_order(context, report.candidates);
  apply_limits(context, report.candidates);
  const Candidate* best = choose(report.candidates);
  if (best == nullptr) {
    report.failure = explain_failure(report);
    return report;
  }
  report.choice = make_choice(context, *best);
  report.choice->notes = make_notes(context, report, *best);
  return report;
}

}  // namespace deepgemm::schedule
