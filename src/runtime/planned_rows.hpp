// The numbers of rows that stand for all others.
#pragma once

#include <cstdint>
#include <vector>

namespace deepgemm::runtime {

// Plans for these have every kernel that plans for M = 0 ... max_m can have: the largest M of each
// bucket, max_m where it cuts the last bucket off, and the small M whose plans have kernels of
// exactly so many rows.
std::vector<int64_t> planned_rows(int64_t max_m);

}  // namespace deepgemm::runtime
