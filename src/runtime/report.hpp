// Reports of plans with what the run time adds to the planner's.
#pragma once

#include <optional>
#include <string>

#include "deepgemm/types.h"
#include "runtime/plan_handle.hpp"

namespace deepgemm::runtime {

// The planner's report, whether and with what workspace the plan can be launched here, and the
// measured error once deepgemm_verify_plan ran.
std::string explain_plan(const deepgemm_plan& plan, deepgemm_explain_format_t format);
// The planner's report alone.
std::string explain_report(const schedule::Report& report, deepgemm_explain_format_t format);

}  // namespace deepgemm::runtime
