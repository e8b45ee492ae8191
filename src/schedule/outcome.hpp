// Why there is no choice, and why a choice beats the next: sentences made from the candidates.
#pragma once

#include <optional>
#include <string>

#include "schedule/planner.hpp"

namespace deepgemm::schedule {

// The code and the sentence for a report in which every candidate is refused. BUDGET_INFEASIBLE
// names the best figure reachable, CONTRACT_UNMET the candidate nearest to the contract,
// UNSUPPORTED the first refusals.
base::Error explain_failure(const Report& report);

// "predicted 1.34 times faster than bf16 on sm90 64x128x64 ..."; empty when there is one candidate
// only.
std::string compare_with_next(const Report& report);

// The candidate that the choice was made from; nullptr without a choice.
const Candidate* chosen_candidate(const Report& report);

}  // namespace deepgemm::schedule
