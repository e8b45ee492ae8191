// Products on vector units: multiplicands of type T, summed by FMA in chains of block_k, the chains
// in FP64.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/product.hpp"

namespace deepgemm::cpu {

// Sizes that depend on the plan alone.
struct FmaShape {
  // Of op(B), whole panels, that one group of rows of A meets before the next: with its sums and
  // the next range of B they fit into the L2 cache.
  static constexpr int64_t kColumnsAtOnce = 256;

  int64_t chain = 1;   // products summed in T
  int64_t ranges = 0;  // of k, one chain each

  FmaShape(int64_t k, int64_t block_k, bool integers);

  // Values of packed A for `rows` rows: of one range, of all.
  int64_t range_values(int64_t rows) const {
    return ceil_div(chain, kStripe) * rows * kStripeStride;
  }
  int64_t a_values(int64_t rows) const { return ranges * range_values(rows); }
  // Values of a slot's scratch: panels of B for `columns` columns, and A's columns at outlier
  // channels.
  int64_t stage_values(int64_t rows, int64_t columns) const {
    return chain * std::min(columns, kColumnsAtOnce) + range_values(rows);
  }
};

// One launch. Immutable: threads share it, each with its own scratch.
template <class T>
class FmaProduct {
 public:
  using Sum = double;

  FmaProduct(const Kernels<T>& kernels, const ProductInput& input);

  // Packing A is split into items; each writes its own part of `to`, a_values(rows) values.
  int64_t pack_items() const { return shape_.ranges; }
  void pack_a(const RowTile& rows, int64_t item, void* to) const;
  // Adds the products of a tile to its sums, rows `stride` apart and zero before. `a`: what pack_a
  // wrote. `scratch`: stage_values(rows, columns) values.
  void add_products(const Tile& tile, const void* a, void* scratch, double* sums,
                    int64_t stride) const;
  // Only those of outlier channels.
  void add_outliers(const Tile& tile, void* scratch, double* sums, int64_t stride) const;

 private:
  struct Range {
    Rows of = Rows::kChannels;
    int64_t first = 0, count = 0;
  };
  struct Bytes {
    const uint8_t* data = nullptr;
    int64_t count = 0;
  };
  struct Work {
    const Tile& tile;
    const T* a;
    T* stage;
    double* sums;
    int64_t stride;
  };

  Range range(int64_t index) const;
  int64_t outlier_ranges() const;
  bool streams(const Tile& tile) const;
  void clear_outliers(const RowTile& rows, int64_t first, int64_t count, T* to) const;
  void scale_a_rows(const RowTile& rows, int64_t first, int64_t count, T* to) const;
  const T* gather_outliers(const RowTile& rows, const Range& range, T* to) const;
  const T* load_b(const Work& work, const Range& range, int64_t column, int64_t columns,
                  T* stage) const;
  void scale_b_columns(const Range& range, int64_t column, int64_t columns, T* to) const;
  Bytes next_range(const Range& range, int64_t panel, int64_t panels) const;
  void multiply(const Work& work, const Range& range, const T* a, int64_t column, int64_t columns,
                int64_t sums_column) const;
  int64_t stream_panels(const Work& work, const Segment& segment,
                        const contract::TileSkips& skips) const;
  void stream_range(const Work& work, int64_t index, int64_t panel, double* sums) const;

  const Kernels<T>& kernels_;
  const ProductInput& in_;
  const PackedPanels* packed_;
  FmaShape shape_;
};

}  // namespace deepgemm::cpu
