// The epilogue of most launches: factors and one rounding, a row at a time on vector units. What it
// does not cover goes through Epilogue.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cpu/product.hpp"

namespace deepgemm::cpu {

// Of one launch; computes in FP32.
class PlainEpilogue {
 public:
  explicit PlainEpilogue(const ProductInput& input);

  // No bias, activation, residual or beta, C in a format and layout of finish.hpp, and FP32 as
  // exact as the path promises.
  bool covers() const { return target_.has_value(); }

  // Factors of the columns of a tile, to be given to finish_row; null: all 1. `to` has room for
  // them up to a whole panel.
  const float* column_factors(const Tile& tile, float* to) const;
  template <class Sum>
  void finish_row(const Tile& tile, int64_t row, const Sum* sums, const float* factors) const;

 private:
  const ProductInput& in_;
  std::optional<Target> target_;
};

}  // namespace deepgemm::cpu
