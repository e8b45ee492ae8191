#include "runtime/plan.hpp"

#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/trace.hpp"
#include "contract/path.hpp"
#include "layout/matrix_layout.hpp"
#include "runtime/context.hpp"
#include "runtime/plan_cache.hpp"

namespace deepgemm::runtime {
namespace {

// Choices that were of no use, and why.
struct Missing {
  schedule::Choice choice;
  std::string reason;
};

// The caller's hooks do not see candidates twice, nor do fallbacks ask them.
struct Wishes {
  std::optional<deepgemm_hooks_t> hooks;
  std::vector<Missing> missing;
  bool any_address = false;
};

schedule::KernelCheck check_for(const Device& device, const Wishes& wishes) {
  schedule::KernelCheck check = device.kernel_check(wishes.any_address);
  if (wishes.missing.empty()) return check;
  return [check, &missing = wishes.missing](
             const intent::Problem& problem,
             const schedule::Candidate& candidate) -> std::optional<std::string> {
    for (const Missing& known : missing) {
      if (schedule::same_kernel(known.choice, candidate)) return known.reason;
    }
    return check ? check(problem, candidate) : std::nullopt;
  };
}

base::Result<schedule::Report> plan_for(const gemm_intent_t& intent, int64_t m, int64_t n,
                                        int64_t k, const Device& device, const Wishes& wishes) {
  DEEPGEMM_TRY_ASSIGN(problem, intent::resolve(intent, m, n, k));
  DEEPGEMM_TRACE("plan", intent::format_line(problem));
  schedule::PlannerOptions options;
  options.hopper_opt = hopper_opt();
  options.hooks = wishes.hooks ? &*wishes.hooks : nullptr;
  options.kernel_check = check_for(device, wishes);
  return schedule::plan(problem, device.profile(), schedule::DeviceState{}, options);
}

// Puts the layout that the choice settled in place of one declared ANY.
base::Result<void> settle_layout(intent::Operand& operand, const gemm_layout_t& chosen,
                                 const char* name, bool is_output) {
  const layout::MatrixLayout& stored = operand.layout;
  DEEPGEMM_TRY_ASSIGN(
      settled, layout::resolve(chosen, stored.batch, stored.rows, stored.cols, name, is_output));
  operand.layout = settled;
  return {};
}

base::Result<std::shared_ptr<PlanData>> chosen_plan(const gemm_intent_t& intent,
                                                    schedule::Report report, const Device& device) {
  if (!report.choice) {
    return report.failure.value_or(
        base::make_error(DEEPGEMM_ERROR_INTERNAL, "planning gave neither a choice nor a reason"));
  }
  auto plan = std::make_shared<PlanData>();
  plan->fallback = fallback_choice(intent, report, device);
  plan->report = std::move(report);
  plan->device = &device;
  intent::Problem& problem = plan->report.problem;
  const schedule::Choice& choice = plan->choice();
  DEEPGEMM_TRY(settle_layout(problem.a, choice.layout_a, "layout_a", false));
  DEEPGEMM_TRY(settle_layout(problem.b, choice.layout_b, "layout_b", false));
  DEEPGEMM_TRY(settle_layout(problem.c, choice.layout_c, "layout_c", true));
  if (plan->fallback) {
    plan->report.choice->notes.push_back(
        fmt::format("operands at addresses that are not multiples of 16 bytes: {} on {}",
                    contract::path_info(plan->fallback->path).name, plan->fallback->family->name));
  }
  return plan;
}

bool lacks_compiler(const base::Error& error) {
  return error.code == DEEPGEMM_ERROR_COMPILER_MISSING || error.code == DEEPGEMM_ERROR_NOT_PREPARED;
}

// Where there is no compiler the best candidate whose kernel is in a pack or a cache serves.
base::Result<std::shared_ptr<const PlanData>> make_plan(
    const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k, const Device& device,
    const std::optional<deepgemm_hooks_t>& hooks) {
  Wishes wishes{hooks, {}, false};
  std::optional<base::Error> first;
  while (true) {
    DEEPGEMM_TRY_ASSIGN(report, plan_for(intent, m, n, k, device, wishes));
    if (!report.choice && first) return *first;
    DEEPGEMM_TRY_ASSIGN(plan, chosen_plan(intent, std::move(report), device));
    plan->hooked = hooks.has_value();
    if (!device.launchable()) return std::shared_ptr<const PlanData>(std::move(plan));
    auto executable = device.make_executable(plan->problem(), plan->choice(),
                                             plan->fallback ? &*plan->fallback : nullptr);
    if (executable.ok()) {
      plan->executable = std::move(*executable);
      return std::shared_ptr<const PlanData>(std::move(plan));
    }
    if (!lacks_compiler(executable.error())) return executable.error();
    if (!first) first = executable.error();
    wishes.missing.push_back({plan->choice(), executable.error().message});
  }
}

void log_choice(const PlanData& plan) {
  if (!base::log_enabled(DEEPGEMM_LOG_INFO)) return;
  const schedule::Choice& choice = plan.choice();
  base::log(DEEPGEMM_LOG_INFO, base::LogCategory::kPlan, "{} on {}: {} {}, bound {:.3g}",
            intent::format_line(plan.problem()), plan.device->profile().name, choice.family->name,
            contract::path_info(choice.path).name, choice.certificate.bound.relative);
}

bool is_current(const PlanData& plan) {
  return plan.executable == nullptr || plan.executable->is_current();
}

std::string device_of(const gemm_intent_t& intent) {
  return intent.device != nullptr ? intent.device : current_device();
}

}  // namespace

base::Result<schedule::Report> plan_report(const gemm_intent_t& intent, int64_t m, int64_t n,
                                           int64_t k) {
  DEEPGEMM_TRY_ASSIGN(device, find_device(device_of(intent)));
  return plan_for(intent, m, n, k, *device, {hooks(), {}, false});
}

std::optional<schedule::Choice> fallback_choice(const gemm_intent_t& intent,
                                                const schedule::Report& report,
                                                const Device& device) {
  const intent::Problem& problem = report.problem;
  if (device.takes_any_address(problem, *report.choice)) return std::nullopt;
  const contract::ErrorBound& promised = report.choice->certificate.bound;
  Wishes wishes;
  wishes.any_address = true;
  while (true) {
    const auto other = plan_for(intent, problem.m, problem.n, problem.k, device, wishes);
    if (!other.ok() || !other->choice) return std::nullopt;
    const contract::ErrorBound& bound = other->choice->certificate.bound;
    if (bound.relative <= promised.relative && bound.absolute <= promised.absolute &&
        bound.confidence >= promised.confidence) {
      return other->choice;
    }
    wishes.missing.push_back({*other->choice, "its bound is above the plan's"});
  }
}

base::Result<std::shared_ptr<const PlanData>> get_plan(const gemm_intent_t& intent, int64_t m,
                                                       int64_t n, int64_t k) {
  const std::string device_name = device_of(intent);
  const auto current_hooks = hooks();
  std::optional<PlanKey> key;
  if (!current_hooks) key = make_plan_key(intent, m, n, k, device_name, hopper_opt());
  PlanCache& cache = process_plan_cache();
  if (key) {
    auto found = cache.find(*key);
    if (found != nullptr && is_current(*found)) return found;
    if (found != nullptr) cache.erase(*key);
  }
  DEEPGEMM_TRY_ASSIGN(device, find_device(device_name));
  auto made = make_plan(intent, m, n, k, *device, current_hooks);
  if (made) log_choice(**made);
  if (made && key) return cache.insert(*key, *made);
  return made;
}

base::Result<void> require_launchable(const PlanData& plan) {
  if (plan.executable) return {};
  auto refused = plan.device->make_executable(plan.problem(), plan.choice(), nullptr);
  return refused.ok() ? base::Result<void>{} : refused.error();
}

deepgemm_plan_info_t plan_info(const PlanData& plan) {
  const schedule::Choice& choice = plan.choice();
  const contract::ErrorBound& bound = choice.certificate.bound;
  deepgemm_plan_info_t info = {};
  info.device = plan.device->profile().name.c_str();
  info.path = contract::path_info(choice.path).name;
  info.family = choice.family->name;
  info.launchable = plan.executable != nullptr;
  info.packed_b = choice.packed_b;
  info.m_bucket = choice.m_bucket;
  info.tiling = plan.problem().tiling;
  info.tiling.block_m = choice.config.block_m;
  info.tiling.block_n = choice.config.block_n;
  info.tiling.block_k = choice.config.block_k;
  info.tiling.warp_m = choice.config.warp_m;
  info.tiling.warp_n = choice.config.warp_n;
  info.tiling.warp_k = choice.config.warp_k;
  info.tiling.sm_partition = choice.threads;
  info.layout_a = choice.layout_a;
  info.layout_b = choice.layout_b;
  info.layout_c = choice.layout_c;
  info.predicted_us = choice.cost.us;
  info.predicted_mj = choice.cost.energy_mj;
  info.bound_relative = bound.relative;
  info.bound_absolute = bound.absolute;
  info.bound_basis = bound.basis;
  info.bound_confidence = bound.confidence;
  info.workspace_bytes = plan.workspace_bytes();
  return info;
}

}  // namespace deepgemm::runtime
