#include "backend/cpu/fma_product.hpp"

#include <array>
#include <type_traits>

namespace deepgemm::cpu {
namespace {

constexpr int64_t kMostStreamedRows = 2 * kStreamRows;
constexpr int64_t kSmallA = 256 * 1024;  // bytes of packed A that stay in the L2 cache beside B

}  // namespace

FmaShape::FmaShape(int64_t k, int64_t block_k, bool integers)
    : chain(integers ? std::min(block_k, kIntegerChain) : block_k), ranges(ceil_div(k, chain)) {}

template <class T>
FmaProduct<T>::FmaProduct(const Kernels<T>& kernels, const ProductInput& input)
    : kernels_(kernels),
      in_(input),
      packed_(input.operands.packed_b),
      shape_(input.executable.problem.k, input.executable.block_k, input.integers) {}

template <class T>
typename FmaProduct<T>::Range FmaProduct<T>::range(int64_t index) const {
  const bool outliers = index >= shape_.ranges;
  const int64_t total = outliers ? packed_->outliers() : in_.executable.problem.k;
  const int64_t first = (outliers ? index - shape_.ranges : index) * shape_.chain;
  return {outliers ? Rows::kOutliers : Rows::kChannels, first,
          std::min(shape_.chain, total - first)};
}

template <class T>
int64_t FmaProduct<T>::outlier_ranges() const {
  return packed_ == nullptr ? 0 : ceil_div(packed_->outliers(), shape_.chain);
}

// ---- A

// Stripes of kStripe values of k, each with all rows of the tile.
template <class T>
void FmaProduct<T>::pack_a(const RowTile& rows, int64_t item, void* to) const {
  const Range range = this->range(item);
  T* stripe = static_cast<T*>(to) + item * shape_.range_values(rows.rows);
  for (int64_t start = 0; start < range.count; start += kStripe) {
    const int64_t first = range.first + start;
    const int64_t count = std::min(kStripe, range.count - start);
    load_block(kernels_, in_.a, rows.batch, {rows.row, rows.rows, first, count}, stripe,
               kStripeStride);
    if (in_.scale_a.base != nullptr && !in_.integers) scale_a_rows(rows, first, count, stripe);
    clear_outliers(rows, first, count, stripe);
    const int64_t whole = ceil_div(count, kChannelStep) * kChannelStep;
    for (int64_t i = 0; i < rows.rows && whole > count; ++i) {
      std::fill_n(stripe + i * kStripeStride + count, whole - count, T{0});
    }
    stripe += rows.rows * kStripeStride;
  }
}

// The channels that outliers stand for are multiplied apart: here even an infinite activation must
// add nothing.
template <class T>
void FmaProduct<T>::clear_outliers(const RowTile& rows, int64_t first, int64_t count, T* to) const {
  if (packed_ == nullptr) return;
  const OutlierPlaces places = outliers_within(*packed_, first, count);
  for (int64_t place = places.begin; place < places.end; ++place) {
    T* column = to + packed_->weights.outlier_channels[static_cast<size_t>(place)] - first;
    for (int64_t i = 0; i < rows.rows; ++i) column[i * kStripeStride] = T{0};
  }
}

template <class T>
void FmaProduct<T>::scale_a_rows(const RowTile& rows, int64_t first, int64_t count, T* to) const {
  for (int64_t done = 0; done < count;) {
    const int64_t group_left = in_.scale_a.k_block - (first + done) % in_.scale_a.k_block;
    const int64_t width = std::min(group_left, count - done);
    for (int64_t i = 0; i < rows.rows; ++i) {
      kernels_.scale_all(to + i * kStripeStride + done, in_.scale_a.at(rows.row + i, first + done),
                         width);
    }
    done += width;
  }
}

// Columns of A at outlier channels, packed as a range of its own.
template <class T>
const T* FmaProduct<T>::gather_outliers(const RowTile& rows, const Range& range, T* to) const {
  const std::vector<int64_t>& channels = packed_->weights.outlier_channels;
  for (int64_t p = 0; p < range.count; ++p) {
    const int64_t channel = channels[static_cast<size_t>(range.first + p)];
    T* column = to + p / kStripe * rows.rows * kStripeStride + p % kStripe;
    load_block(kernels_, in_.a, rows.batch, {rows.row, rows.rows, channel, 1}, column,
               kStripeStride);
    if (in_.scale_a.base == nullptr || in_.integers) continue;
    for (int64_t i = 0; i < rows.rows; ++i) {
      column[i * kStripeStride] *= static_cast<T>(in_.scale_a.at(rows.row + i, channel));
    }
  }
  return to;
}

// ---- B

// One panel of columns, in `stage` or where it lies.
template <class T>
const T* FmaProduct<T>::load_b(const Work& work, const Range& range, int64_t column,
                               int64_t columns, T* stage) const {
  if (packed_ != nullptr) {
    const PanelRange panel{range.of, range.first, range.count, column, columns};
    return load_panel(kernels_, *packed_, panel, in_.integers, stage);
  }
  if (columns < kPanel) std::fill_n(stage, range.count * kPanel, T{0});
  load_block(kernels_, in_.b, work.tile.rows.batch, {range.first, range.count, column, columns},
             stage, kPanel);
  if (in_.scale_b.base != nullptr && !in_.integers) {
    scale_b_columns(range, column, columns, stage);
  }
  return stage;
}

template <class T>
void FmaProduct<T>::scale_b_columns(const Range& range, int64_t column, int64_t columns,
                                    T* to) const {
  alignas(64) float scales[kPanel];
  for (int64_t k = 0; k < range.count;) {
    const int64_t channel = range.first + k;
    const int64_t left = in_.scale_b.k_block - channel % in_.scale_b.k_block;
    const int64_t rows = std::min(left, range.count - k);
    for (int64_t j = 0; j < columns; ++j) scales[j] = in_.scale_b.at(column + j, channel);
    kernels_.scale(to + k * kPanel, kPanel, scales, rows, columns);
    k += rows;
  }
}

// ---- Products

// What is read when this range of packed weights has passed: the next one of the panel, or the
// first one of the panel that many behind.
template <class T>
typename FmaProduct<T>::Bytes FmaProduct<T>::next_range(const Range& range, int64_t panel,
                                                        int64_t panels) const {
  if (packed_ == nullptr || range.of == Rows::kOutliers) return {};
  const int64_t per_word = packed_->format ? channels_per_word(*packed_->format) : 1;
  const int64_t bytes = ceil_div(range.count, per_word) * packed_->row_bytes;
  const int64_t first = range.first + shape_.chain;
  if (first < in_.executable.problem.k) return {packed_->row(panel, first / per_word), bytes};
  return {packed_->row(std::min(panel + panels, packed_->panel_count - 1), 0), bytes};
}

// The part of a range and up to kColumnsAtOnce columns. A few rows of A stay in the L1 cache while
// the panels of B pass.
template <class T>
void FmaProduct<T>::multiply(const Work& work, const Range& range, const T* a, int64_t column,
                             int64_t columns, int64_t sums_column) const {
  std::array<const T*, FmaShape::kColumnsAtOnce / kPanel> b;
  const int64_t panels = ceil_div(columns, kPanel);
  for (int64_t p = 0; p < panels; ++p) {
    b[static_cast<size_t>(p)] =
        load_b(work, range, column + p * kPanel, std::min<int64_t>(kPanel, columns - p * kPanel),
               work.stage + p * shape_.chain * kPanel);
  }
  const int64_t rows = work.tile.rows.rows;
  const int64_t a_step = rows * kStripeStride;
  const int64_t groups = ceil_div(rows, kernels_.rows);
  for (int64_t group = 0; group < groups; ++group) {  // of nearly equal numbers of rows
    const int64_t row = rows * group / groups;
    const int64_t count = rows * (group + 1) / groups - row;
    for (int64_t p = 0; p < panels; ++p) {
      const T* const panel = b[static_cast<size_t>(p)];
      const Bytes next = next_range(range, column / kPanel + p, panels);
      if (next.data != nullptr) prefetch_part(next.data, next.count, group, groups);
      const int64_t end = std::min<int64_t>((p + 1) * kPanel, columns);
      for (int64_t part = p * kPanel; part < end; part += kernels_.columns) {
        kernels_.multiply[count](range.count, a + row * kStripeStride, a_step,
                                 panel + part - p * kPanel,
                                 work.sums + row * work.stride + sums_column + part, work.stride);
      }
    }
  }
}

template <class T>
bool FmaProduct<T>::streams(const Tile& tile) const {
  if (!std::is_same_v<T, float> || packed_ == nullptr || !streamable(*packed_)) return false;
  if (in_.integers && packed_->unit_lanes.empty()) return false;
  return tile.rows.rows <= kMostStreamedRows && shape_.chain <= kStripe &&
         shape_.chain % kChannelStep == 0;
}

// One range of as many panels as one row takes at once, in powers of two of rows.
template <class T>
void FmaProduct<T>::stream_range(const Work& work, int64_t index, int64_t panel,
                                 double* sums) const {
  if constexpr (std::is_same_v<T, float>) {
    const Range range = this->range(index);
    const int64_t per_word = channels_per_word(*packed_->format);
    const layout::QuantizedWeights& weights = packed_->weights;
    const auto& lanes = in_.integers ? packed_->unit_lanes : packed_->lanes;
    StreamArguments call = {};
    call.words = packed_->word_row(panel, range.first / per_word);
    call.panel_words = packed_->row_count * kPanel;
    call.channels = range.count;
    call.group_left = call.group_size = range.count;
    if (!lanes.empty()) {
      const int64_t groups = packed_->groups();
      const int64_t group = groups > 1 ? weights.group_of(range.first) : 0;
      call.lanes = lanes.data() + panel * groups + group;
      call.panel_lanes = groups;
      if (groups > 1) {
        call.group_size = weights.group_size;
        call.group_left = call.group_size - (range.first + weights.group_offset) % call.group_size;
      }
    }
    const float* a = work.a + index * shape_.range_values(work.tile.rows.rows);
    const auto& streams = in_.executable.kernels->stream[static_cast<size_t>(*packed_->format)];
    call.sums_stride = work.stride;
    const int64_t at_once = in_.executable.kernels->stream_panels[0];
    const auto run = [&](Stream stream, int64_t panels, int64_t row) {
      StreamArguments part = call;
      part.a = a + row * kStripeStride;
      part.sums = sums + row * work.stride;
      for (int64_t done = 0; done < at_once; done += panels) {
        stream(part);
        part.words += panels * part.panel_words;
        part.lanes += panels * part.panel_lanes;
        part.sums += panels * kPanel;
      }
    };
    const ExactStream& exact = in_.executable.exact_stream;
    if (exact.call != nullptr && exact.rows == work.tile.rows.rows) {
      return run(exact.call, exact.panels, 0);
    }
    for (int64_t row = 0, left = work.tile.rows.rows; left > 0;) {
      const int size = left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
      run(streams[size], in_.executable.kernels->stream_panels[size], row);
      row += 1 << size;
      left -= 1 << size;
    }
  }
}

// Panels from the start of the segment that streaming kernels have computed.
template <class T>
int64_t FmaProduct<T>::stream_panels(const Work& work, const Segment& segment,
                                     const contract::TileSkips& skips) const {
  if (segment.column % kPanel != 0) return 0;
  const int64_t at_once = in_.executable.kernels->stream_panels[0];
  const int64_t panels = segment.columns / kPanel / at_once * at_once;
  for (int64_t panel = 0; panel < panels; panel += at_once) {
    for (int64_t index = 0; index < shape_.ranges; ++index) {
      if (skips.skipped(index)) continue;
      stream_range(work, index, segment.column / kPanel + panel,
                   work.sums + segment.sums_column + panel * kPanel);
    }
  }
  return panels;
}

template <class T>
void FmaProduct<T>::add_outliers(const Tile& tile, void* scratch, double* sums,
                                 int64_t stride) const {
  const Work work{tile, nullptr, static_cast<T*>(scratch), sums, stride};
  T* const a = work.stage + shape_.chain * kPanel;
  for (int64_t index = 0; index < outlier_ranges(); ++index) {
    const Range part = range(shape_.ranges + index);
    gather_outliers(tile.rows, part, a);
    for (int s = 0; s < tile.segment_count; ++s) {
      const Segment& segment = tile.segments[s];
      for (int64_t done = 0; done < segment.columns; done += kPanel) {
        multiply(work, part, a, segment.column + done,
                 std::min<int64_t>(kPanel, segment.columns - done), segment.sums_column + done);
      }
    }
  }
}

template <class T>
void FmaProduct<T>::add_products(const Tile& tile, const void* a, void* scratch, double* sums,
                                 int64_t stride) const {
  const Work work{tile, static_cast<const T*>(a), static_cast<T*>(scratch), sums, stride};
  const int64_t rows = tile.rows.rows;
  for (int s = 0; s < tile.segment_count; ++s) {
    const Segment& segment = tile.segments[s];
    const contract::TileSkips skips =
        in_.skipping.tile(tile.rows.batch, tile.rows.row, segment.column, segment.columns);
    in_.executable.skip_counts.add(shape_.ranges, skips.count());
    const int64_t streamed = streams(tile) ? stream_panels(work, segment, skips) * kPanel : 0;
    const auto add = [&](int64_t index, int64_t done, int64_t width) {
      if (skips.skipped(index)) return;
      multiply(work, range(index), work.a + index * shape_.range_values(rows),
               segment.column + done, std::min(width, segment.columns - done),
               segment.sums_column + done);
    };
    // With little of A, a panel of B is read from its first to its last channel; else A is gone
    // through once.
    if (shape_.a_values(rows) * static_cast<int64_t>(sizeof(T)) <= kSmallA) {
      for (int64_t done = streamed; done < segment.columns; done += kPanel) {
        for (int64_t index = 0; index < shape_.ranges; ++index) add(index, done, kPanel);
      }
    } else {
      constexpr int64_t kWidth = FmaShape::kColumnsAtOnce;
      for (int64_t index = 0; index < shape_.ranges; ++index) {
        for (int64_t done = streamed; done < segment.columns; done += kWidth) {
          add(index, done, kWidth);
        }
      }
    }
  }
  add_outliers(tile, scratch, sums, stride);
}

template class FmaProduct<float>;
template class FmaProduct<double>;

}  // namespace deepgemm::cpu
