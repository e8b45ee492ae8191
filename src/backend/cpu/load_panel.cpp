// Reading packed weights: words to multiplicands.
#include <algorithm>
#include <vector>

#include "backend/cpu/packed_panels.hpp"
#include "base/formats.hpp"

namespace deepgemm::cpu {
namespace {

int64_t end_of_run(const layout::QuantizedWeights& weights, int64_t channel) {
  if (!weights.g_idx.empty()) return channel + 1;
  if (weights.group_size <= 0) return weights.k;
  const int64_t in_group = (channel + weights.group_offset) % weights.group_size;
  return channel + weights.group_size - in_group;
}

// Rows of one panel, all of its columns.
template <class T>
void load_channels(const Kernels<T>& kernels, const PackedPanels& panels, int64_t panel,
                   int64_t first, int64_t count, bool unscaled, T* to) {
  if (!panels.format) {  // FP64
    kernels.widen(Source::kFp64, panels.row(panel, first), panels.row_bytes, to, kPanel, count,
                  kPanel);
    return;
  }
  const auto load = kernels.load_words[static_cast<size_t>(*panels.format)];
  const int64_t per_word = channels_per_word(*panels.format);
  const auto read = [&](int64_t channel, int64_t channels, const GroupLanes* lanes) {
    load(panels.word_row(panel, channel / per_word), channel % per_word, channels, lanes,
         to + (channel - first) * kPanel);
  };
  if (panels.lanes.empty()) return read(first, count, nullptr);
  for (int64_t channel = first; channel < first + count;) {
    const int64_t end = std::min(end_of_run(panels.weights, channel), first + count);
    GroupLanes lanes =
        panels
            .lanes[static_cast<size_t>(panel * panels.groups() + panels.weights.group_of(channel))];
    if (unscaled) std::fill_n(lanes.scale, kPanel, 1.0F);
    read(channel, end - channel, &lanes);
    channel = end;
  }
}

template <class T>
void load_rows(const Kernels<T>& kernels, const PackedPanels& panels, int64_t panel,
               const PanelRange& range, bool unscaled, T* to) {
  if (range.of == Rows::kChannels) {
    load_channels(kernels, panels, panel, range.first, range.count, unscaled, to);
    return;
  }
  const uint32_t* words =
      panels.outlier_words.data() + (panel * panels.outlier_rows() + range.first / 2) * kPanel;
  kernels.load_words[static_cast<size_t>(WordFormat::kFp16)](words, range.first % 2, range.count,
                                                             nullptr, to);
}

}  // namespace

template <class T>
const T* load_panel(const Kernels<T>& kernels, const PackedPanels& panels, const PanelRange& range,
                    bool unscaled, T* to) {
  const int64_t panel = range.column / kPanel;
  const int64_t lane = range.column % kPanel;
  if (lane == 0) {
    if (sizeof(T) == sizeof(float) && range.of == Rows::kChannels &&
        panels.format == WordFormat::kFp32) {
      return reinterpret_cast<const T*>(panels.row(panel, range.first));
    }
    load_rows(kernels, panels, panel, range, unscaled, to);
    return to;
  }
  constexpr int64_t kRows = 32;  // that are read at a time where a panel is needed in part
  alignas(64) T piece[kRows * kPanel];
  for (int64_t done = 0; done < range.count; done += kRows) {
    PanelRange part = range;
    part.first += done;
    part.count = std::min(kRows, range.count - done);
    T* rows = to + done * kPanel;
    std::fill_n(rows, part.count * kPanel, T{0});
    for (int64_t column = 0; column < range.columns;) {
      const int64_t from = (range.column + column) % kPanel;
      const int64_t columns = std::min(kPanel - from, range.columns - column);
      load_rows(kernels, panels, (range.column + column) / kPanel, part, unscaled, piece);
      for (int64_t i = 0; i < part.count; ++i) {
        std::copy_n(piece + i * kPanel + from, columns, rows + i * kPanel + column);
      }
      column += columns;
    }
  }
  return to;
}

template const float* load_panel(const Kernels<float>&, const PackedPanels&, const PanelRange&,
                                 bool, float*);
template const double* load_panel(const Kernels<double>&, const PackedPanels&, const PanelRange&,
                                  bool, double*);

OutlierPlaces outliers_within(const PackedPanels& panels, int64_t first, int64_t count) {
  const std::vector<int64_t>& channels = panels.weights.outlier_channels;
  const auto place = [&](int64_t channel) {
    return std::lower_bound(channels.begin(), channels.end(), channel) - channels.begin();
  };
  return {place(first), place(first + count)};
}

bool streamable(const PackedPanels& panels) {
  if (!panels.format) return false;
  if (panels.lanes.empty()) return true;
  const layout::QuantizedWeights& weights = panels.weights;
  const int64_t per_word = channels_per_word(*panels.format);
  if (panels.groups() <= 1) return true;
  return weights.g_idx.empty() && weights.group_size % per_word == 0 &&
         weights.group_offset % per_word == 0;
}

bool scales_constant_along_k(const PackedPanels& panels) {
  return panels.groups() <= 1 && panels.weights.outlier_channels.empty();
}

float column_scale(const PackedPanels& panels, int64_t column) {
  const layout::QuantizedWeights& weights = panels.weights;
  if (weights.scales.empty()) return 1.0F;
  return weights.scales[static_cast<size_t>(column / weights.block_n)];
}

}  // namespace deepgemm::cpu
