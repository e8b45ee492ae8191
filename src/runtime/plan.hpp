// Plans: what planning decided and what launching needs, shared by every handle made from the same
// declaration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "intent/problem.hpp"
#include "runtime/device.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::runtime {

// Immutable once made; read by any number of threads.
struct PlanData {
  schedule::Report report;  // its problem has the layouts that the choice settled
  const Device* device = nullptr;
  bool hooked = false;  // hooks of the caller took part in the choice
  // For operands at addresses that the choice does not serve.
  std::optional<schedule::Choice> fallback;
  std::shared_ptr<const Executable> executable;  // null: not launchable here

  size_t workspace_bytes() const { return executable ? executable->workspace_bytes() : 0; }
  const intent::Problem& problem() const { return report.problem; }
  const schedule::Choice& choice() const { return *report.choice; }
};

// The report of planning, also when nothing is admissible (then report.failure is set). Errors:
// what makes the declaration itself invalid or unsupported.
base::Result<schedule::Report> plan_report(const gemm_intent_t& intent, int64_t m, int64_t n,
                                           int64_t k);

// What serves operands at addresses that the report's choice does not: nothing where it serves all,
// or where nothing else keeps its bound.
std::optional<schedule::Choice> fallback_choice(const gemm_intent_t& intent,
                                                const schedule::Report& report,
                                                const Device& device);

// The plan of a declaration: from the cache of the process, or planned and put there; planned
// without the cache while hooks are set.
base::Result<std::shared_ptr<const PlanData>> get_plan(const gemm_intent_t& intent, int64_t m,
                                                       int64_t n, int64_t k);

// UNSUPPORTED with the way out when this process cannot run the plan.
base::Result<void> require_launchable(const PlanData& plan);

deepgemm_plan_info_t plan_info(const PlanData& plan);

}  // namespace deepgemm::runtime
