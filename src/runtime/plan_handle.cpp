#include "runtime/plan_handle.hpp"

#include <utility>

#include "runtime/handle_registry.hpp"
#include "runtime/immortal.hpp"

namespace deepgemm::runtime {
namespace {

HandleRegistry& live_plans() {
  static Immortal<HandleRegistry> registry;
  return registry.get();
}

}  // namespace

base::Result<deepgemm_plan*> create_plan(const gemm_intent_t& intent, int64_t m, int64_t n,
                                         int64_t k) {
  DEEPGEMM_TRY_ASSIGN(data, get_plan(intent, m, n, k));
  auto handle = std::make_unique<deepgemm_plan>(std::move(data));
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
