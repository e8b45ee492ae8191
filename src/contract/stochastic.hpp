// Stochastic rounding of outputs: unbiased, and the same for every schedule. docs/contract.md,
// "Stochastic rounding", has the rules.
#pragma once

#include <array>
#include <cstdint>

#include "contract/contract.hpp"
#include "deepgemm/types.h"

namespace deepgemm::contract {

// Philox4x32-10, a bijection of 128 bits keyed by 64: Salmon, Moraes, Dror & Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a contract says about rounding the output stochastically.
enum class OutputRounding : uint8_t {
  kNearest,       // not asked for (seed 0)
  kStochastic,    // wanted: a plan does it where its bound then still keeps the limits
  kUnreliable,    // asked for, but the reliability level is below kStochasticReliability
  kWideOutput,    // asked for, but the output format is not a 16-bit or 8-bit float
  kDependsOnRow,  // asked for, but the bits of a row must not depend on where it stands
};
constexpr int kStochasticReliability = 2;

OutputRounding output_rounding(const Contract& contract, int reliability_level);

// Which element is rounded. Its random bits depend on these and on the seed only: not on threads,
// tiles or M. Different elements get different bits while indices stay below 2^42.
struct ElementRow {
  uint64_t seed = 0;
  int64_t batch = 0, row = 0;
};

// Replaces values[j], column `column` + j of the row, by one of its two neighbours in `format`
// (FP16, BF16, FP8 E4M3 or E5M2): x between neighbours lo < hi becomes hi with probability
// (x - lo) / (hi - lo), to within 2^-52. Values of the format stay as they are, the sign of zero
// included. At and above the largest value there is no second neighbour: rounded to nearest, with
// the infinity or saturation of the format; NaN stays NaN.
void round_stochastically(gemm_precision_t format, const ElementRow& place, int64_t column,
                          int64_t count, double* values);

}  // namespace deepgemm::contract
