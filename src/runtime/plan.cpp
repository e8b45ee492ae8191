#include "runtime/plan.hpp"

#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/trace.hpp"
#include "contract/path.hpp"
#include "layout/matrix_layout.hpp"
#include "runtime/handle_registry.hpp"
#include "runtime/immortal.hpp"
#include "runtime/plan_cache.hpp"

namespace deepgemm::runtime {
namespace {

HandleRegistry& live_plans() {
  static Immortal<HandleRegistry> registry;
  return registry.get();
}

base::Result<schedule::Report> plan_for(const gemm_intent_t& intent, int64_t m, int64_t n,
                                        int64_t k, const Device& device,
                                        const std::optional<deepgemm_hooks_t>& hooks) {
  DEEPGEMM_TRY_ASSIGN(problem, intent::resolve(intent, m, n, k));
  DEEPGEMM_TRACE("plan", intent::format_line(problem));
  schedule::PlannerOptions options;
  options.hopper_opt = hopper_opt();
  options.hooks = hooks ? &*hooks : nullptr;
  return schedule::plan(problem, device.profile, schedule::DeviceState{}, options);
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

base::Result<std::shared_ptr<const PlanData>> make_plan(
    const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k, const Device& device,
    const std::optional<deepgemm_hooks_t>& hooks) {
  auto plan = std::make_shared<PlanData>();
  DEEPGEMM_TRY_ASSIGN(report, plan_for(intent, m, n, k, device, hooks));
  if (!report.choice) {
    return report.failure.value_or(
        base::make_error(DEEPGEMM_ERROR_INTERNAL, "planning gave neither a choice nor a reason"));
  }
  plan->report = std::move(report);
  plan->device = &device;
  intent::Problem& problem = plan->report.problem;
  const schedule::Choice& choice = plan->choice();
  DEEPGEMM_TRY(settle_layout(problem.a, choice.layout_a, "layout_a", false));
  DEEPGEMM_TRY(settle_layout(problem.b, choice.layout_b, "layout_b", false));
  DEEPGEMM_TRY(settle_layout(problem.c, choice.layout_c, "layout_c", true));
  if (device.launchable) {
    DEEPGEMM_TRY_ASSIGN(executable, cpu::make_executable(problem, choice));
    plan->executable = executable;
    plan->workspace_bytes = cpu::workspace_bytes(*executable);
    DEEPGEMM_TRY_ASSIGN(scratch, process_scratch().reserve(plan->workspace_bytes));
    plan->scratch = std::move(scratch);
  }
  return std::shared_ptr<const PlanData>(std::move(plan));
}

void log_choice(const PlanData& plan) {
  if (!base::log_enabled(DEEPGEMM_LOG_INFO)) return;
  const schedule::Choice& choice = plan.choice();
  base::log(DEEPGEMM_LOG_INFO, base::LogCategory::kPlan, "{} on {}: {} {}, bound {:.3g}",
            intent::format_line(plan.problem()), plan.device->profile.name, choice.family->name,
            contract::path_info(choice.path).name, choice.certificate.bound.relative);
}

std::string device_of(const gemm_intent_t& intent) {
  return intent.device != nullptr ? intent.device : current_device();
}

}  // namespace

base::Result<schedule::Report> plan_report(const gemm_intent_t& intent, int64_t m, int64_t n,
                                           int64_t k) {
  DEEPGEMM_TRY_ASSIGN(device, find_device(device_of(intent)));
  return plan_for(intent, m, n, k, *device, hooks());
}

base::Result<std::shared_ptr<const PlanData>> get_plan(const gemm_intent_t& intent, int64_t m,
                                                       int64_t n, int64_t k) {
  const std::string device_name = device_of(intent);
  const auto current_hooks = hooks();
  std::optional<PlanKey> key;
  if (!current_hooks) key = make_plan_key(intent, m, n, k, device_name, hopper_opt());
  PlanCache& cache = process_plan_cache();
  if (key) {
    if (auto found = cache.find(*key)) return found;
  }
  DEEPGEMM_TRY_ASSIGN(device, find_device(device_name));
  auto made = make_plan(intent, m, n, k, *device, current_hooks);
  if (made) log_choice(**made);
  if (made && key) return cache.insert(*key, *made);
  return made;
}

base::Result<void> require_launchable(const PlanData& plan) {
  if (plan.executable) return {};
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                          "plan: made for device '{}', which this process cannot run on (the plan "
                          "can be explained); make "
                          "the plan with intent.device \"cpu\" to launch it here",
                          plan.device->profile.name);
}

deepgemm_plan_info_t plan_info(const PlanData& plan) {
  const schedule::Choice& choice = plan.choice();
  const contract::ErrorBound& bound = choice.certificate.bound;
  deepgemm_plan_info_t info = {};
  info.device = plan.device->profile.name.c_str();
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
  info.workspace_bytes = plan.workspace_bytes;
  return info;
}

base::Result<deepgemm_plan*> create_plan(const gemm_intent_t& intent, int64_t m, int64_t n,
                                         int64_t k) {
  DEEPGEMM_TRY_ASSIGN(data, get_plan(intent, m, n, k));
  auto handle = std::make_unique<deepgemm_plan>();
  handle->data = std::move(data);
  live_plans().add(handle.get());
  return handle.release();
}

base::Result<deepgemm_plan*> find_plan(const gemm_plan_t* plan) {
  if (plan == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "plan: is NULL; pass the plan that deepgemm_create_plan filled");
  }
  if (plan->handle == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "plan: is empty; deepgemm_create_plan has not succeeded for it, or it "
                            "was destroyed");
  }
  if (!live_plans().contains(plan->handle)) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "plan: its handle {} is no live plan (a copy of a destroyed plan, or "
                            "uninitialised); make it with deepgemm_create_plan",
                            static_cast<const void*>(plan->handle));
  }
  return plan->handle;
}

base::Result<void> destroy_plan(const gemm_plan_t& plan) {
  DEEPGEMM_TRY_ASSIGN(handle, find_plan(&plan));
  if (live_plans().remove(handle)) delete handle;
  return {};
}

}  // namespace deepgemm::runtime
