// Notes of a plan: fields that do not apply, wishes and what becomes of them, prices and
// crossovers.
#pragma once

#include <string>
#include <vector>

#include "schedule/candidates.hpp"

namespace deepgemm::schedule {

std::vector<std::string> make_notes(const PlanContext& context, const Report& report,
                                    const Candidate& best);

}  // namespace deepgemm::schedule
