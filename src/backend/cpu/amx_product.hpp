// Products on tile units: BF16 operands with FP32 sums, INT8 operands with INT32 sums, and
// quantised weights that are expanded to BF16 and scaled after each group.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/fma_product.hpp"
#include "backend/cpu/product.hpp"

namespace deepgemm::cpu {

// Sizes that depend on the plan alone. Integers: INT8, else BF16.
struct AmxShape {
  int64_t k = 0;
  bool integers = false;

  int64_t step_channels() const { return integers ? 64 : 32; }
  int64_t steps() const { return ceil_div(k, step_channels()); }
  // Packed A: blocks of steps, in each one row tile after the other. Row tiles have 16 rows, a
  // single one only those there are.
  static constexpr int64_t kBlockSteps = 8;  // a block of B and its rows of A share the L1 cache
  int64_t blocks() const { return ceil_div(steps(), kBlockSteps); }
  int64_t block_steps(int64_t block) const {
    return std::min(kBlockSteps, steps() - block * kBlockSteps);
  }
  static int64_t tile_rows(int64_t rows) { return std::min(rows, kTileRows); }
  static int64_t step_bytes(int64_t rows) { return tile_rows(rows) * kTileRowBytes; }
  int64_t a_bytes(int64_t rows) const {
    return ceil_div(rows, kTileRows) * steps() * step_bytes(rows);
  }
  int64_t block_offset(int64_t rows, int64_t block) const {
    return ceil_div(rows, kTileRows) * block * kBlockSteps * step_bytes(rows);
  }
  // A block of B, its rows as floats, the sums of a group, sums of outlier channels and what their
  // product needs.
  static int64_t scratch_bytes(int64_t rows, const FmaShape& outliers);
};

// Whether the launch can run on tile units: the weights decide what the plan could not know.
bool fits_tiles(const ProductInput& input);

// One launch. Immutable: threads share it, each with its own scratch. Sum: float or int32_t.
template <class SumType>
class AmxProduct {
 public:
  using Sum = SumType;

  AmxProduct(const AmxKernels& kernels, const ProductInput& input);

  int64_t pack_items() const { return shape_.blocks(); }
  void pack_a(const RowTile& rows, int64_t item, void* to) const;
  // As in FmaProduct. Rows of sums are there up to a multiple of 16.
  void add_products(const Tile& tile, const void* a, void* scratch, Sum* sums,
                    int64_t stride) const;

 private:
  static constexpr bool kIntegers = !std::is_same_v<Sum, float>;
  struct Work;
  // A block of steps of one panel of columns; none without steps.
  struct Block {
    int64_t column = 0, columns = 0;
    int64_t index = 0, steps = 0;

    int64_t step() const { return index * AmxShape::kBlockSteps; }
  };

  void pack_rows(const RowTile& rows, int64_t block, int64_t tile_rows, uint8_t* to) const;
  void narrow(const float* from, void* to, int64_t count) const;
  Block next_block(const Work& work, const Segment& segment, const Block& block) const;
  void add_segment(Work& work, const Segment& segment) const;
  void add_block(Work& work, const Segment& segment, const Block& block, const Block& after) const;
  Upcoming share_of(const Block& block, int64_t share, int64_t shares, int64_t steps) const;
  TileGroups groups_at(int64_t column, int64_t step) const;
  WordSteps words_of(const Block& block, int64_t first, int64_t steps) const;
  const uint8_t* load_b(const Work& work, const Block& block) const;
  const uint8_t* stage_b(const Work& work, const Block& block) const;
  bool transpose_words(const Work& work, const Block& block) const;
  void add_outliers(const Work& work) const;
  int64_t group_steps() const;

  const AmxKernels& kernels_;
  const ProductInput& in_;
  const PackedPanels* packed_;
  AmxShape shape_;
  FmaProduct<float> fma_;  // of outlier channels
  bool scaled_ = false;    // weights are expanded and scaled after each group
};

}  // namespace deepgemm::cpu
