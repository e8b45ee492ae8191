// One launch: tiles of C are shared out to threads; a thread packs operands block by block along k,
// multiplies, and finishes the rows of its tile.
#include "backend/cpu/launch.hpp"

#include <algorithm>
#include <cstring>

#include "backend/cpu/epilogue.hpp"
#include "backend/cpu/executable.hpp"
#include "backend/cpu/operand_view.hpp"
#include "backend/cpu/packed_panels.hpp"

namespace deepgemm::cpu {
namespace {

// Columns of op(B) whose sums start at `sums_column`.
struct Segment {
  int64_t column = 0, columns = 0;
  int64_t sums_column = 0;
};

struct Tile {
  int64_t batch = 0;
  int64_t row = 0, rows = 0;
  TileColumns columns;
  Segment segments[2];  // two with SWIGLU: gate and up
  int segment_count = 1;
};

// Scratch of one slot.
struct Scratch {
  double* sums;
  void* a;
  void* b;
  double* row;
};

struct Range {
  int64_t begin = 0, count = 0;  // of k
};

// A launch in which what the executable left open is decided: multiplicands of type T or integers.
class Launch {
 public:
  Launch(const Executable& executable, const Operands& operands, void* workspace);

  void run();

 private:
  bool sums_are_integers() const;
  Tile tile_of(int64_t item) const;
  Scratch scratch_of(int slot) const;
  void run_tile(int64_t item, int slot) const;
  template <class T>
  void sum_products(const Kernels<T>& kernels, const Tile& tile, const Scratch& scratch) const;
  template <class T>
  void pack_a(const Kernels<T>& kernels, const Tile& tile, const Range& range, T* to) const;
  template <class T>
  void pack_b(const Kernels<T>& kernels, const Tile& tile, const Segment& segment,
              const Range& range, T* to) const;
  template <class T>
  void load_dense_panel(const Kernels<T>& kernels, const Tile& tile, const PanelRange& panel,
                        T* to) const;
  template <class T>
  void multiply_block(const Kernels<T>& kernels, const Tile& tile, const Segment& segment,
                      const Range& range, const T* a, const T* b, double* sums) const;

  const Executable& executable_;
  const intent::Problem& problem_;
  const Operands& operands_;
  uint8_t* workspace_;
  bool integers_;  // Multiplicand::kInteger and no reason to fall back
  MatrixView a_, b_;
  ScaleView scale_a_, scale_b_;
  Epilogue epilogue_;
  int64_t row_tiles_, column_tiles_;
};

int64_t ceil_div(int64_t value, int64_t step) { return (value + step - 1) / step; }

bool is_one_value(const ScaleView& scales, int64_t k) {
  return scales.base == nullptr || scales.k_block >= k;
}

Launch::Launch(const Executable& executable, const Operands& operands, void* workspace)
    : executable_(executable),
      problem_(executable.problem),
      operands_(operands),
      workspace_(static_cast<uint8_t*>(workspace)),
      epilogue_(problem_, operands, executable.kernels->f64),
      row_tiles_(ceil_div(operands.m, executable.block_m)),
      column_tiles_(ceil_div(problem_.output_columns(), executable.tile_columns())) {
  const contract::Contract& contract = problem_.contract;
  const gemm_operation_t operation = problem_.operation;
  a_ = {operands.a, *source_of(problem_.a.precision), problem_.a.layout,
        operation == GEMM_OP_TN || operation == GEMM_OP_TT};
  if (operands.packed_b == nullptr) {
    b_ = {operands.b, *source_of(problem_.b.precision), problem_.b.layout,
          operation == GEMM_OP_NT || operation == GEMM_OP_TT};
  }
  scale_a_ = scale_view(contract.dequant_strategy, operands.scale_a, false, contract.group_size,
                        problem_.k);
  scale_b_ = scale_view(contract.dequant_strategy, operands.scale_b, true, contract.group_size,
                        problem_.k);
  integers_ = executable.multiplicand == Multiplicand::kInteger && sums_are_integers();
  if (integers_) epilogue_.set_integer_scales(scale_a_, scale_b_, operands.packed_b);
}

bool Launch::sums_are_integers() const {
  if (!is_one_value(scale_a_, problem_.k)) return false;
  return operands_.packed_b != nullptr ? scales_constant_along_k(*operands_.packed_b)
                                       : is_one_value(scale_b_, problem_.k);
}

void Launch::run() {
  const int64_t items = problem_.batch * row_tiles_ * column_tiles_;
  // One captured pointer fits into std::function itself.
  executable_.pool->parallel_for(items, executable_.slots,
                                 [this](int64_t item, int slot) { run_tile(item, slot); });
}

// Tiles of one column of tiles follow each other: they read the same weights.
Tile Launch::tile_of(int64_t item) const {
  const int64_t width = executable_.tile_columns();
  Tile tile;
  tile.row = item % row_tiles_ * executable_.block_m;
  tile.rows = std::min(executable_.block_m, operands_.m - tile.row);
  const int64_t rest = item / row_tiles_;
  tile.columns.column = rest % column_tiles_ * width;
  tile.columns.columns = std::min(width, problem_.output_columns() - tile.columns.column);
  tile.batch = rest / column_tiles_;
  tile.segments[0] = {tile.columns.column, tile.columns.columns, 0};
  if (executable_.swiglu()) {
    tile.columns.up = executable_.padded_n() / 2;
    tile.segments[1] = {problem_.n / 2 + tile.columns.column, tile.columns.columns,
                        tile.columns.up};
    tile.segment_count = 2;
  }
  return tile;
}

Scratch Launch::scratch_of(int slot) const {
  uint8_t* base = workspace_ + slot * executable_.slot_bytes();
  const int64_t sums = executable_.block_m * executable_.padded_n();
  Scratch scratch;
  scratch.sums = reinterpret_cast<double*>(base);
  base += sums * static_cast<int64_t>(sizeof(double));
  scratch.a = base;
  scratch.b = base + executable_.a_bytes();
  scratch.row = reinterpret_cast<double*>(base + executable_.a_bytes() + executable_.b_bytes());
  return scratch;
}

void Launch::run_tile(int64_t item, int slot) const {
  const Tile tile = tile_of(item);
  const Scratch scratch = scratch_of(slot);
  const int64_t stride = executable_.padded_n();
  std::fill_n(scratch.sums, tile.rows * stride, 0.0);
  if (operands_.alpha != 0) {
    const bool wide = executable_.multiplicand == Multiplicand::kDouble ||
                      (executable_.multiplicand == Multiplicand::kInteger && !integers_);
    if (wide) {
      sum_products(executable_.kernels->f64, tile, scratch);
    } else {
      sum_products(executable_.kernels->f32, tile, scratch);
    }
  }
  for (int64_t i = 0; i < tile.rows; ++i) {
    epilogue_.finish_row(tile.batch, tile.row + i, tile.columns, scratch.sums + i * stride,
                         scratch.row);
  }
}

template <class T>
void Launch::sum_products(const Kernels<T>& kernels, const Tile& tile,
                          const Scratch& scratch) const {
  const int64_t chain =
      integers_ ? std::min(executable_.block_k, kIntegerChain) : executable_.block_k;
  T* a = static_cast<T*>(scratch.a);
  T* b = static_cast<T*>(scratch.b);
  for (Range range{0, 0}; range.begin < problem_.k; range.begin += range.count) {
    range.count = std::min(chain, problem_.k - range.begin);
    pack_a(kernels, tile, range, a);
    for (int s = 0; s < tile.segment_count; ++s) {
      const Segment& segment = tile.segments[s];
      pack_b(kernels, tile, segment, range, b);
      multiply_block(kernels, tile, segment, range, a, b, scratch.sums);
    }
  }
}

// Stripes of kStripe values of k, each with all rows of the tile.
template <class T>
void Launch::pack_a(const Kernels<T>& kernels, const Tile& tile, const Range& range, T* to) const {
  for (int64_t start = 0; start < range.count; start += kStripe) {
    const int64_t k = range.begin + start;
    const int64_t count = std::min(kStripe, range.count - start);
    T* stripe = to + start / kStripe * tile.rows * kStripeStride;
    load_block(kernels, a_, tile.batch, {tile.row, tile.rows, k, count}, stripe, kStripeStride);
    if (scale_a_.base == nullptr || integers_) continue;
    for (int64_t done = 0; done < count;) {
      const int64_t group_left = scale_a_.k_block - (k + done) % scale_a_.k_block;
      const int64_t width = std::min(group_left, count - done);
      for (int64_t i = 0; i < tile.rows; ++i) {
        kernels.scale_all(stripe + i * kStripeStride + done, scale_a_.at(tile.row + i, k + done),
                          width);
      }
      done += width;
    }
  }
}

template <class T>
void Launch::pack_b(const Kernels<T>& kernels, const Tile& tile, const Segment& segment,
                    const Range& range, T* to) const {
  for (int64_t done = 0; done < segment.columns;
       done += kernels.columns, to += range.count * kernels.columns) {
    const PanelRange panel{range.begin, range.count, segment.column + done,
                           std::min<int64_t>(kernels.columns, segment.columns - done)};
    if (operands_.packed_b != nullptr) {
      load_panel(kernels, *operands_.packed_b, panel, integers_, to);
    } else {
      load_dense_panel(kernels, tile, panel, to);
    }
  }
}

template <class T>
void Launch::load_dense_panel(const Kernels<T>& kernels, const Tile& tile, const PanelRange& panel,
                              T* to) const {
  const int64_t width = kernels.columns;
  if (panel.columns < width) std::fill_n(to, panel.channels * width, T{0});
  load_block(kernels, b_, tile.batch, {panel.channel, panel.channels, panel.column, panel.columns},
             to, width);
  if (scale_b_.base == nullptr || integers_) return;
  alignas(64) float scales[kPanelColumns];
  for (int64_t k = 0; k < panel.channels;) {
    const int64_t channel = panel.channel + k;
    const int64_t left = scale_b_.k_block - channel % scale_b_.k_block;
    const int64_t rows = std::min(left, panel.channels - k);
    for (int64_t j = 0; j < panel.columns; ++j) {
      scales[j] = scale_b_.at(panel.column + j, channel);
    }
    kernels.scale(to + k * width, width, scales, rows, panel.columns);
    k += rows;
  }
}

template <class T>
void Launch::multiply_block(const Kernels<T>& kernels, const Tile& tile, const Segment& segment,
                            const Range& range, const T* a, const T* b, double* sums) const {
  const int64_t stride = executable_.padded_n();
  const int64_t a_step = tile.rows * kStripeStride;
  const int64_t groups = ceil_div(tile.rows, kernels.rows);
  for (int64_t done = 0; done < segment.columns; done += kernels.columns) {
    const T* panel = b + done * range.count;
    for (int64_t group = 0; group < groups; ++group) {  // of nearly equal numbers of rows
      const int64_t row = tile.rows * group / groups;
      const int64_t rows = tile.rows * (group + 1) / groups - row;
      kernels.multiply[rows](range.count, a + row * kStripeStride, a_step, panel,
                             sums + row * stride + segment.sums_column + done, stride);
    }
  }
}

}  // namespace

void launch(const Executable& executable, const Operands& operands, void* workspace) {
  const intent::Problem& problem = executable.problem;
  if (operands.m == 0 || problem.output_columns() == 0 || problem.batch == 0) return;
  Launch(executable, operands, workspace).run();
}

}  // namespace deepgemm::cpu
