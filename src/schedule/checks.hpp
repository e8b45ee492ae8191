// Checks of a family, and of a path on a family, that do not depend on the configuration.
#pragma once

#include <optional>

#include "schedule/candidates.hpp"

namespace deepgemm::schedule {

// backend, architecture, hopper_opt, max_m, alignment, reproducibility.
std::optional<Refusal> check_family(const PlanContext& context, const Family& family);

// path, formats, unit.
std::optional<Refusal> check_path(const PlanContext& context, const Family& family,
                                  contract::PathId path);

}  // namespace deepgemm::schedule
