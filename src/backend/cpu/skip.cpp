#include "backend/cpu/skip.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "backend/cpu/packed_panels.hpp"

namespace deepgemm::cpu {
namespace {

using contract::kSkipGranule;
using contract::kSkipLanes;
using contract::SkipNorm;

static_assert(kSkipLanes == kPanel);

int64_t ceil_div(int64_t value, int64_t step) { return (value + step - 1) / step; }

// Values of up to kSkipLanes vectors within one granule, k by k; zeros in lanes without a vector.
struct Granule {
  alignas(64) std::array<double, static_cast<size_t>(kSkipGranule* kSkipLanes)> values = {};
};

// Norms of `vectors` neighbouring vectors: norms[granule], and the largest weight.
// load(first, lanes, k, count, to) writes vectors first ... first + lanes - 1.
template <class Load>
void compute_norms(int64_t vectors, int64_t k, const Load& load, SkipNorm* norms, double* weight) {
  const int64_t granules = ceil_div(k, kSkipGranule);
  std::fill_n(norms, granules, SkipNorm{});
  *weight = 0;
  for (int64_t first = 0; first < vectors; first += kSkipLanes) {
    const int64_t lanes = std::min(kSkipLanes, vectors - first);
    Granule granule;
    std::array<double, static_cast<size_t>(kSkipLanes)> weights = {};
    const auto for_each_granule = [&](const auto& visit) {
      for (int64_t g = 0; g < granules; ++g) {
        const int64_t count = std::min(kSkipGranule, k - g * kSkipGranule);
        load(first, lanes, g * kSkipGranule, count, granule.values.data());
        visit(g, count);
      }
    };
    for_each_granule([&](int64_t, int64_t count) {
      contract::add_weights(granule.values.data(), count, lanes, weights.data());
    });
    for_each_granule([&](int64_t g, int64_t count) {
      contract::add_norms(granule.values.data(), count, lanes, weights.data(), norms[g]);
    });
    *weight = std::max(*weight, *std::max_element(weights.begin(), weights.end()));
  }
}

// Rows of op(A) or columns of op(B), with their scales. `view` has k along its rows.
void load_vectors(const Kernels<double>& kernels, const MatrixView& view, const ScaleView& scale,
                  int64_t batch, const Block& block, double* to) {
  load_block(kernels, view, batch, block, to, kSkipLanes);
  if (scale.base == nullptr) return;
  std::array<float, static_cast<size_t>(kSkipLanes)> scales = {};
  for (int64_t done = 0; done < block.rows;) {
    const int64_t k = block.row + done;
    const int64_t rows = std::min(scale.k_block - k % scale.k_block, block.rows - done);
    for (int64_t j = 0; j < block.columns; ++j) {
      scales[static_cast<size_t>(j)] = scale.at(block.column + j, k);
    }
    kernels.scale(to + done * kSkipLanes, kSkipLanes, scales.data(), rows, block.columns);
    done += rows;
  }
}

int64_t matrices_of_b(const intent::Problem& problem) {
  return problem.b.layout.batch_stride == 0 ? 1 : problem.batch;
}

int64_t norm_bytes(int64_t tiles, int64_t granules) {
  return tiles *
         (granules * static_cast<int64_t>(sizeof(SkipNorm)) + static_cast<int64_t>(sizeof(double)));
}

}  // namespace

WeightNorms::WeightNorms(const Kernels<double>& kernels, const PackedPanels& panels,
                         ThreadPool& pool)
    : granules_(ceil_div(panels.weights.k, kSkipGranule)),
      norms_(static_cast<size_t>(ceil_div(panels.weights.n, kPanel) * granules_)),
      weights_(static_cast<size_t>(ceil_div(panels.weights.n, kPanel))) {
  pool.parallel_for(static_cast<int64_t>(weights_.size()), 0, [&](int64_t panel, int) {
    const int64_t column = panel * kPanel;
    const auto load = [&](int64_t, int64_t lanes, int64_t k, int64_t count, double* to) {
      load_panel(kernels, panels, {Rows::kChannels, k, count, column, lanes}, false, to);
    };
    compute_norms(std::min<int64_t>(kPanel, panels.weights.n - column), panels.weights.k, load,
                  norms_.data() + panel * granules_, &weights_[static_cast<size_t>(panel)]);
  });
}

contract::SkipNorms WeightNorms::of(int64_t column, int64_t columns) const {
  const int64_t first = column / kPanel;
  const int64_t tiles = ceil_div(column + columns, kPanel) - first;
  return {norms_.data() + first * granules_, weights_.data() + first, tiles, granules_};
}

size_t skip_workspace_bytes(const SkipSetup& setup, const intent::Problem& problem,
                            bool kept_norms) {
  if (!setup.active()) return 0;
  const int64_t granules = ceil_div(problem.k, kSkipGranule);
  int64_t tiles = problem.batch * ceil_div(problem.m, setup.row_tile);
  if (!kept_norms) tiles += matrices_of_b(problem) * ceil_div(problem.n, kPanel);
  return static_cast<size_t>(ceil_div(norm_bytes(tiles, granules), 64) * 64);
}

Skipping::Skipping(const SkipSetup& setup, const intent::Problem& problem,
                   const SkipOperands& operands, const Kernels<double>& kernels, void* workspace)
    : setup_(setup), operands_(operands) {
  const bool known_b = operands.norms_b != nullptr || operands.b.base != nullptr;
  if (!setup.active() || problem.k == 0 || !known_b) return;
  problem_ = &problem;
  kernels_ = &kernels;
  granules_ = ceil_div(problem.k, kSkipGranule);
  a_tiles_ = ceil_div(operands.m, setup.row_tile);
  a_items_ = problem.batch * a_tiles_;
  if (operands.norms_b == nullptr) {
    b_tiles_ = ceil_div(problem.n, kPanel);
    b_items_ = matrices_of_b(problem) * b_tiles_;
  }
  norms_ = static_cast<SkipNorm*>(workspace);
  weights_ = reinterpret_cast<double*>(norms_ + (a_items_ + b_items_) * granules_);
  // op(A) is read as op(B) is: with k along the rows.
  operands_.a.transposed = !operands_.a.transposed;
}

void Skipping::run_prepass(int64_t item) const {
  const bool is_b = item >= a_items_;
  const int64_t tile = is_b ? item - a_items_ : item;
  const int64_t tiles = is_b ? b_tiles_ : a_tiles_;
  const int64_t width = is_b ? kPanel : setup_.row_tile;
  const int64_t start = tile % tiles * width;
  const int64_t vectors = std::min(width, (is_b ? problem_->n : operands_.m) - start);
  const auto load = [&](int64_t first, int64_t lanes, int64_t k, int64_t count, double* to) {
    load_vectors(*kernels_, is_b ? operands_.b : operands_.a,
                 is_b ? operands_.scale_b : operands_.scale_a, tile / tiles,
                 {k, count, start + first, lanes}, to);
  };
  compute_norms(vectors, problem_->k, load, norms_ + item * granules_, weights_ + item);
}

contract::SkipNorms Skipping::norms_of(bool is_b, int64_t tile, int64_t tiles) const {
  const int64_t item = is_b ? a_items_ + tile : tile;
  return {norms_ + item * granules_, weights_ + item, tiles, granules_};
}

contract::TileSkips Skipping::tile(int64_t batch, int64_t row, int64_t column,
                                   int64_t columns) const {
  if (problem_ == nullptr) return {};
  const contract::SkipNorms a = norms_of(false, batch * a_tiles_ + row / setup_.row_tile, 1);
  contract::SkipNorms b;
  if (operands_.norms_b != nullptr) {
    b = operands_.norms_b->of(column, columns);
  } else {
    const int64_t matrix = b_items_ > b_tiles_ ? batch : 0;
    const int64_t first = column / kPanel;
    b = norms_of(true, matrix * b_tiles_ + first, ceil_div(column + columns, kPanel) - first);
  }
  return {setup_.allowance, operands_.alpha, problem_->k, setup_.block_k, a, b};
}

}  // namespace deepgemm::cpu
