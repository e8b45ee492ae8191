// Times of several implementations of one product, taken in turns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "cpu_product.hpp"
#include "deepgemm/timing.hpp"

namespace deepgemm::bench {

struct TurnLimits {
  // Of launches, for each implementation; eviction takes up to three times as long.
  double seconds = 0.3;
  int rounds = 5;   // turns of each; a slow product gets three
  size_t sets = 3;  // of operands, over which launches rotate
  // Bytes of other memory read after each rotation, so that the next one finds the weights in no
  // cache. 0: the rotation itself is long enough, or caches may keep them.
  int64_t evict_bytes = 0;
};

// Times of each product, in the order given. A turn begins when the threads of the one before have
// gone to sleep, with a launch that is not counted, and holds at least one launch that is.
base::Result<std::vector<cli::Timing>> measure_in_turns(std::span<Product* const> products,
                                                        const TurnLimits& limits);

}  // namespace deepgemm::bench
