// Which blocks of k of a tile are multiplied, one after the other.
#pragma once

#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"
#include "schedule/tiles.cuh"

namespace deepgemm::kernel {

// All of a part of k.
template <Config C>
struct EveryBlock {
  KRange range;

  PTX_FN EveryBlock(const GemmArguments&, const TileGrid& grid, const Tile& tile, i32 k)
      : range(k_range<C>(k, grid, tile.split)) {}

  // Values of k where copies begin, and behind those that may be read.
  PTX_FN i32 begin() const { return range.first * C.block_k; }
  PTX_FN i32 end() const { return range.last * C.block_k; }
};

// Those that skip_decide listed: `range` counts them, so that parts have about as many each, and no
// part more than without skipping. The number of the next block is read while the present one is
// copied. Behind the last one come blocks without values.
template <Config C>
class KeptBlocks {
 public:
  KRange range;

  PTX_FN KeptBlocks(const GemmArguments& arguments, const TileGrid& grid, const Tile& tile, i32 k)
      : list_(arguments.skips.kept), k_(k) {
    if (k > 0 && list_ != nullptr) {
      const i32 judged = smaller(blocks(), kSkipMostBlocks);
      list_ += static_cast<i64>(tile.index) * judged;
      listed_ = static_cast<i32>(ptx::load_global<4>(arguments.skips.counts + tile.index).word[0]);
      left_out_ = judged - listed_;
    }
    range = k_range<C>((blocks() - left_out_) * C.block_k, grid, tile.split);
    position_ = range.first;
    next_ = block_at(position_);
  }

  // Copies begin at k = 0, whatever the part.
  PTX_FN i32 begin() const { return 0; }
  PTX_FN i32 end() const { return k_; }
  PTX_FN i32 next() {
    const i32 block = next_;
    next_ = block_at(++position_);
    return block;
  }

 private:
  PTX_FN i32 blocks() const { return k_ / C.block_k + (k_ % C.block_k != 0); }
  PTX_FN i32 block_at(i32 position) const {
    if (C.split && position >= range.last) return blocks();
    if (position >= listed_) return position + left_out_;
    return static_cast<i32>(ptx::load_global<2>(list_ + position).word[0]);
  }

  const unsigned short* list_;
  i32 k_;
  i32 listed_ = 0, left_out_ = 0;  // of the blocks that were judged
  i32 position_, next_;
};

}  // namespace deepgemm::kernel
