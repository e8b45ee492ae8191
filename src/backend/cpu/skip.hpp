// Tile skipping on the CPU: norms of the operands of a launch, and which blocks of K each tile of C
// leaves out. The rule is contract/skip.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.hpp"
#include "backend/cpu/operand_view.hpp"
#include "backend/cpu/pack.hpp"
#include "backend/cpu/thread_pool.hpp"
#include "contract/skip.hpp"
#include "intent/problem.hpp"

namespace deepgemm::cpu {

// Fixed at plan time.
struct SkipSetup {
  contract::SkipAllowance allowance;  // of the plan's bound; none: nothing is ever skipped
  int64_t row_tile = 1;               // rows of C in a tile
  int64_t block_k = 1;                // values of k that are skipped or kept together

  bool active() const { return allowance.any(); }
};

// Norms of packed weights, one tile per panel of kPanel columns. Outlier channels count as zeros:
// they are multiplied apart and never skipped, and without them sums of |a||b| are only smaller.
class WeightNorms {
 public:
  WeightNorms() = default;
  // Reads all weights twice, on the threads of `pool`. May throw std::bad_alloc.
  WeightNorms(const Kernels<double>& kernels, const PackedPanels& panels, ThreadPool& pool);

  // Of the panels that hold some columns.
  contract::SkipNorms of(int64_t column, int64_t columns) const;

 private:
  int64_t granules_ = 0;
  std::vector<contract::SkipNorm> norms_;
  std::vector<double> weights_;
};

// Bytes for the norms that a launch computes, a multiple of 64; 0 when the setup is not active.
// `kept_norms`: B is packed and its norms are kept with it.
size_t skip_workspace_bytes(const SkipSetup& setup, const intent::Problem& problem,
                            bool kept_norms);

// How many blocks of K launches went through, and left out of them. Any number of threads add.
struct SkipCounts {
  std::atomic<int64_t> blocks{0}, skipped{0};

  void add(int64_t all, int64_t left_out) {
    blocks.fetch_add(all, std::memory_order_relaxed);
    skipped.fetch_add(left_out, std::memory_order_relaxed);
  }
};

// What a launch reads, as launch.cpp reads it.
struct SkipOperands {
  MatrixView a;
  ScaleView scale_a;
  MatrixView b;  // unless norms_b is given
  ScaleView scale_b;
  const WeightNorms* norms_b = nullptr;
  int64_t m = 0;  // rows of this launch
  double alpha = 1;
};

// Tile skipping of one launch. First every item of the pre-pass, in any order and on any threads;
// then any number of threads may ask. Answers depend on the operands and the setup alone.
class Skipping {
 public:
  Skipping() = default;  // leaves out nothing
  // `workspace`: skip_workspace_bytes(), 64-byte aligned. References must outlive the object.
  // Packed weights without norms: leaves out nothing.
  Skipping(const SkipSetup& setup, const intent::Problem& problem, const SkipOperands& operands,
           const Kernels<double>& kernels, void* workspace);

  int64_t prepass_items() const { return a_items_ + b_items_; }
  void run_prepass(int64_t item) const;

  // The blocks that rows [row, row + row_tile) of C leave out for these columns of op(B); `row` is
  // a multiple of row_tile. With SWIGLU the columns of gate and up are asked for apart.
  contract::TileSkips tile(int64_t batch, int64_t row, int64_t column, int64_t columns) const;

 private:
  contract::SkipNorms norms_of(bool is_b, int64_t tile, int64_t tiles) const;

  const intent::Problem* problem_ = nullptr;  // null: leaves out nothing
  const Kernels<double>* kernels_ = nullptr;
  SkipSetup setup_;
  SkipOperands operands_;
  int64_t granules_ = 0;
  int64_t a_tiles_ = 0, b_tiles_ = 0;    // of one matrix
  int64_t a_items_ = 0, b_items_ = 0;    // of all that are looked at
  contract::SkipNorm* norms_ = nullptr;  // of A's tiles, then of B's
  double* weights_ = nullptr;
};

}  // namespace deepgemm::cpu
