// Enumeration of candidates with every check that does not need a comparison between them.
#pragma once

#include <vector>

#include "schedule/planner.hpp"

namespace deepgemm::schedule {

// The arguments of plan() and what follows from them at once.
struct PlanContext {
  const intent::Problem& problem;
  const DeviceProfile& profile;
  const DeviceState& state;
  const PlannerOptions& options;
  int64_t bucket = 1;  // rows that choices are ranked for
  int units = 1;       // granted
};

// The output is to be rounded stochastically wherever the bound then keeps the contract.
bool rounds_stochastically(const PlanContext& context);

// The kernels of this family leave out blocks of K.
bool family_skips(const Family& family);

// Finding the norms of B costs less than skipping can gain: packed weights keep them, those of a
// dense B are computed by every launch.
constexpr int64_t kSkipRows = 256;
bool skipping_pays(const PlanContext& context);

// path x family x configuration, in the order of the catalogue. Refused ones are collapsed: one
// entry for a family, or for a family and path, when every configuration fails the same check.
// Candidates that pass have bound, cost (for the problem's M) and score (for the bucket's M).
std::vector<Candidate> enumerate_candidates(const PlanContext& context);

// The candidate as a hook sees it, for `rows` rows.
deepgemm_candidate_t hook_view(const PlanContext& context, const Candidate& candidate, int64_t rows,
                               double predicted_us);

// Time or the scorer's figure for `rows` rows; lower is better.
double score_for(const PlanContext& context, const Candidate& candidate, int64_t rows);

}  // namespace deepgemm::schedule
