// "Plans" of deepgemm.h.
#include <string>

#include "api/guard.hpp"
#include "deepgemm/deepgemm.h"
#include "runtime/context.hpp"
#include "runtime/launch.hpp"
#include "runtime/plan_handle.hpp"
#include "runtime/prepare.hpp"
#include "runtime/report.hpp"
#include "runtime/verify.hpp"

using deepgemm::api::copy_text;
using deepgemm::api::guard;
using deepgemm::api::require;
using deepgemm::api::require_known;
using Result = deepgemm::base::Result<void>;
namespace runtime = deepgemm::runtime;

deepgemm_status_t deepgemm_create_plan(gemm_plan_t* plan, const gemm_intent_t* intent, int64_t M,
                                       int64_t N, int64_t K) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(plan, "plan"));
    *plan = {};
    DEEPGEMM_TRY(require(intent, "intent"));
    DEEPGEMM_TRY_ASSIGN(handle, runtime::create_plan(*intent, M, N, K));
    plan->handle = handle;
    plan->stream = runtime::default_stream();
    return {};
  });
}

deepgemm_status_t deepgemm_destroy_plan(gemm_plan_t* plan) {
  return guard([&]() -> Result {
    if (plan == nullptr || plan->handle == nullptr) return {};
    DEEPGEMM_TRY(runtime::destroy_plan(*plan));
    *plan = {};
    return {};
  });
}

deepgemm_status_t deepgemm_launch_plan(const gemm_plan_t* plan, const void* A, const void* B,
                                       void* C) {
  gemm_launch_args_t args = {};
  args.A = A;
  args.B = B;
  args.C = C;
  return deepgemm_launch_plan_args(plan, &args);
}

deepgemm_status_t deepgemm_launch_plan_args(const gemm_plan_t* plan,
                                            const gemm_launch_args_t* args) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY_ASSIGN(handle, runtime::find_plan(plan));
    DEEPGEMM_TRY(require(args, "args"));
    return runtime::launch(*handle, *args, plan->stream);
  });
}

deepgemm_status_t deepgemm_get_plan_info(const gemm_plan_t* plan, deepgemm_plan_info_t* info) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY_ASSIGN(handle, runtime::find_plan(plan));
    DEEPGEMM_TRY(require(info, "info"));
    *info = runtime::plan_info(handle->data());
    return {};
  });
}

deepgemm_status_t deepgemm_explain_plan(const gemm_plan_t* plan, deepgemm_explain_format_t format,
                                        char* buffer, size_t capacity, size_t* needed) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY_ASSIGN(handle, runtime::find_plan(plan));
    DEEPGEMM_TRY(require_known(format, DEEPGEMM_EXPLAIN_JSON, "format"));
    const std::string text = runtime::explain_plan(*handle, format);
    return copy_text(text, buffer, capacity, needed);
  });
}

deepgemm_status_t deepgemm_explain_problem(const gemm_intent_t* intent, int64_t M, int64_t N,
                                           int64_t K, deepgemm_explain_format_t format,
                                           char* buffer, size_t capacity, size_t* needed) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(intent, "intent"));
    DEEPGEMM_TRY(require_known(format, DEEPGEMM_EXPLAIN_JSON, "format"));
    DEEPGEMM_TRY_ASSIGN(report, runtime::plan_report(*intent, M, N, K));
    const std::string text = runtime::explain_report(report, format);
    return copy_text(text, buffer, capacity, needed);
  });
}

deepgemm_status_t deepgemm_check_problem(const gemm_intent_t* intent, int64_t M, int64_t N,
                                         int64_t K) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(intent, "intent"));
    DEEPGEMM_TRY_ASSIGN(plan, runtime::get_plan(*intent, M, N, K));
    return runtime::require_launchable(*plan);
  });
}

deepgemm_status_t deepgemm_prepare(const gemm_intent_t* intent, const deepgemm_shape_t* shapes,
                                   size_t shape_count, deepgemm_prepare_report_t* report) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(intent, "intent"));
    if (shape_count > 0) DEEPGEMM_TRY(require(shapes, "shapes"));
    DEEPGEMM_TRY_ASSIGN(prepared, runtime::prepare(*intent, {shapes, shape_count}));
    if (report != nullptr) *report = prepared;
    return {};
  });
}

deepgemm_status_t deepgemm_verify_plan(const gemm_plan_t* plan, const gemm_launch_args_t* args,
                                       deepgemm_verification_t* result) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY_ASSIGN(handle, runtime::find_plan(plan));
    DEEPGEMM_TRY(require(args, "args"));
    DEEPGEMM_TRY(require(result, "result"));
    DEEPGEMM_TRY_ASSIGN(verified, runtime::verify_plan(*handle, *args, plan->stream));
    *result = verified;
    return {};
  });
}

deepgemm_status_t deepgemm_set_hooks(const deepgemm_hooks_t* hooks) {
  return guard([&]() -> Result {
    runtime::set_hooks(hooks);
    return {};
  });
}
