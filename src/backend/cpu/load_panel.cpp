// Reading packed weights: codes of the stored precision to multiplicands.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backend/cpu/operand_view.hpp"
#include "backend/cpu/packed_panels.hpp"
#include "base/formats.hpp"

namespace deepgemm::cpu {
namespace {

constexpr auto kLanes = static_cast<size_t>(kPanelColumns);

// Scales and zero points of the columns of one weight panel, for the group of the current channel.
class GroupLanes {
 public:
  GroupLanes(const layout::QuantizedWeights& weights, int64_t panel, bool unscaled)
      : weights_(weights),
        column_(panel * kPanelColumns),
        columns_(std::min(kPanelColumns, weights.n - column_)),
        scaled_(!unscaled && !weights.scales.empty()) {
    scales_.fill(1.0F);
    zeros_.fill(base::is_int4(weights.precision) ? 8 : 128);
  }

  // Prepares `channel` and returns the end of the run of channels that this serves.
  int64_t move_to(int64_t channel) {
    const int64_t group = weights_.group_of(channel);
    if (group != group_) load(group);
    return end_of_run(channel);
  }

  bool scaled() const { return scaled_; }
  const float* scales() const { return scales_.data(); }
  const uint8_t* zeros() const { return zeros_.data(); }

 private:
  void load(int64_t group) {
    group_ = group;
    if (scaled_) {
      const int64_t blocks = (weights_.n + weights_.block_n - 1) / weights_.block_n;
      const float* row = weights_.scales.data() + group * blocks;
      for (int64_t j = 0; j < columns_; ++j) {
        scales_[static_cast<size_t>(j)] = row[(column_ + j) / weights_.block_n];
      }
    }
    if (!weights_.zeros.empty()) {
      std::memcpy(zeros_.data(), weights_.zeros.data() + group * weights_.n + column_,
                  static_cast<size_t>(columns_));
    }
  }

  int64_t end_of_run(int64_t channel) const {
    if (!weights_.g_idx.empty()) return channel + 1;
    if (weights_.group_size <= 0) return weights_.k;
    const int64_t in_group = (channel + weights_.group_offset) % weights_.group_size;
    return channel + weights_.group_size - in_group;
  }

  const layout::QuantizedWeights& weights_;
  int64_t column_, columns_;
  bool scaled_;
  int64_t group_ = -1;
  std::array<float, kLanes> scales_;
  std::array<uint8_t, kLanes> zeros_;
};

// Rows of one weight panel, widened one channel after the other.
template <class T>
class PanelReader {
 public:
  PanelReader(const Kernels<T>& kernels, const PackedPanels& panels, int64_t panel, int64_t channel,
              bool unscaled)
      : kernels_(kernels), panels_(panels), panel_(panel), lanes_(panels.weights, panel, unscaled) {
    const auto& outliers = panels.weights.outlier_channels;
    outlier_ = std::lower_bound(outliers.begin(), outliers.end(), channel) - outliers.begin();
  }

  // All 32 columns of some channels, rows of `to` `stride` apart; channels ascend from call to
  // call.
  void read(int64_t channel, int64_t count, T* to, int64_t stride) {
    const int64_t end = channel + count;
    while (channel < end) {
      const int64_t outlier = next_outlier();
      int64_t run_end = channel + 1;
      if (outlier == channel) {
        read_outlier(to);
      } else {
        run_end = std::min({lanes_.move_to(channel), end, outlier});
        read_codes(channel, run_end - channel, to, stride);
      }
      to += (run_end - channel) * stride;
      channel = run_end;
    }
  }

 private:
  int64_t next_outlier() const {
    const std::vector<int64_t>& outliers = panels_.weights.outlier_channels;
    if (outlier_ == static_cast<int64_t>(outliers.size())) return panels_.weights.k;
    return outliers[static_cast<size_t>(outlier_)];
  }

  void read_codes(int64_t channel, int64_t count, T* to, int64_t stride) {
    const uint8_t* codes = panels_.row(panel_, channel);
    const gemm_precision_t precision = panels_.weights.precision;
    if (base::is_int4(precision)) {
      kernels_.dequantize4(codes, lanes_.zeros(), lanes_.scales(), to, stride, count);
    } else if (precision == PRECISION_INT8) {
      kernels_.dequantize8(codes, lanes_.zeros(), lanes_.scales(), to, stride, count);
    } else {
      kernels_.widen(*source_of(precision), codes, panels_.row_bytes, to, stride, count,
                     kPanelColumns);
      if (lanes_.scaled()) kernels_.scale(to, stride, lanes_.scales(), count, kPanelColumns);
    }
  }

  void read_outlier(T* to) {
    const layout::QuantizedWeights& weights = panels_.weights;
    const int64_t column = panel_ * kPanelColumns;
    const int64_t columns = std::min(kPanelColumns, weights.n - column);
    std::fill(to + columns, to + kPanelColumns, T{0});
    const uint16_t* values = weights.outlier_values.data() + outlier_ * weights.n + column;
    kernels_.widen(Source::kFp16, values, 0, to, 0, 1, columns);
    ++outlier_;
  }

  const Kernels<T>& kernels_;
  const PackedPanels& panels_;
  int64_t panel_;
  GroupLanes lanes_;
  int64_t outlier_ = 0;  // first of the outlier channels not yet passed
};

}  // namespace

template <class T>
void load_panel(const Kernels<T>& kernels, const PackedPanels& panels, const PanelRange& range,
                bool unscaled, T* to) {
  constexpr int64_t kRows = 32;  // that are read at a time where a panel is needed in part
  alignas(64) T piece[kRows * kPanelColumns];
  const int64_t width = kernels.columns;
  for (int64_t done = 0; done < range.columns;) {
    const int64_t panel = (range.column + done) / kPanelColumns;
    const int64_t lane = (range.column + done) % kPanelColumns;
    const int64_t columns = std::min(kPanelColumns - lane, range.columns - done);
    PanelReader<T> reader(kernels, panels, panel, range.channel, unscaled);
    if (columns == kPanelColumns) {
      reader.read(range.channel, range.channels, to + done, width);
    } else {
      for (int64_t k = 0; k < range.channels; k += kRows) {
        const int64_t rows = std::min(kRows, range.channels - k);
        reader.read(range.channel + k, rows, piece, kPanelColumns);
        for (int64_t i = 0; i < rows; ++i) {
          std::copy_n(piece + i * kPanelColumns + lane, columns, to + (k + i) * width + done);
        }
      }
    }
    done += columns;
  }
  if (range.columns == width) return;
  for (int64_t k = 0; k < range.channels; ++k) {
    std::fill(to + k * width + range.columns, to + (k + 1) * width, T{0});
  }
}

template void load_panel(const Kernels<float>&, const PackedPanels&, const PanelRange&, bool,
                         float*);
template void load_panel(const Kernels<double>&, const PackedPanels&, const PanelRange&, bool,
                         double*);

bool scales_constant_along_k(const PackedPanels& panels) {
  return panels.weights.groups() <= 1 && panels.weights.outlier_channels.empty();
}

float column_scale(const PackedPanels& panels, int64_t column) {
  const layout::QuantizedWeights& weights = panels.weights;
  if (weights.scales.empty()) return 1.0F;
  return weights.scales[static_cast<size_t>(column / weights.block_n)];
}

}  // namespace deepgemm::cpu
