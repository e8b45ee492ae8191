// Inside of PackedPanels, for the files of this backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/kernels.hpp"
#include "backend/cpu/pack.hpp"
#include "backend/cpu/skip.hpp"

namespace deepgemm::cpu {

// Bytes on a 2 MiB boundary that ask for huge pages where they are large.
class PanelStorage {
 public:
  PanelStorage() = default;
  // Null data() when the system has not that much memory.
  explicit PanelStorage(size_t bytes);

  uint8_t* data() { return bytes_.get(); }
  const uint8_t* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(uint8_t* pointer) const;
  };
  std::unique_ptr<uint8_t, Free> bytes_;
};

class PackedPanels {
 public:
  // Everything of the weights but their codes.
  layout::QuantizedWeights weights;
  // Of `words`; none for FP64, whose panels have rows of 32 doubles instead.
  std::optional<WordFormat> format;
  PanelStorage words;     // [panel][row_count][32], zeros after the last channel and column
  int64_t row_count = 0;  // of a panel: whole steps of the tile units, see pack()
  int64_t row_bytes = 128;
  int64_t panel_count = 0;
  std::vector<GroupLanes> lanes;        // [panel][group]; empty for formats without scales
  std::vector<GroupLanes> unit_lanes;   // the same with scales of 1, where there is one group
  std::optional<WeightNorms> norms;     // of a plan that skips
  std::vector<uint32_t> outlier_words;  // FP16: [panel][outlier_rows()][32]

  const uint8_t* row(int64_t panel, int64_t index) const {
    return words.data() + (panel * row_count + index) * row_bytes;
  }
  const uint32_t* word_row(int64_t panel, int64_t index) const {
    return reinterpret_cast<const uint32_t*>(row(panel, index));
  }
  int64_t outliers() const { return static_cast<int64_t>(weights.outlier_channels.size()); }
  int64_t outlier_rows() const { return (outliers() + 1) / 2; }
  int64_t groups() const { return weights.groups(); }
};

// Rows of op(B): channels, or outlier channels by their number.
enum class Rows : uint8_t { kChannels, kOutliers };

// Which part of the weights a product needs.
struct PanelRange {
  Rows of = Rows::kChannels;
  int64_t first = 0, count = 0;     // rows
  int64_t column = 0, columns = 0;  // of op(B), not more than kPanel
};

// The values of `range` as rows of kPanel values of T, zeros after the last column: in `to`, or
// where they lie in the packed weights. Scales are multiplied in (rounded to T) unless `unscaled`:
// then integer weights are code - zero point. Outlier channels are zero among the channels.
template <class T>
const T* load_panel(const Kernels<T>& kernels, const PackedPanels& panels, const PanelRange& range,
                    bool unscaled, T* to);

// Outlier channels among [first, first + count), as places in weights.outlier_channels.
struct OutlierPlaces {
  int64_t begin = 0, end = 0;
};
OutlierPlaces outliers_within(const PackedPanels& panels, int64_t first, int64_t count);

// True when the groups and words of the weights end together, so that a streaming kernel can read
// them.
bool streamable(const PackedPanels& panels);

// True when every scale is the same along k and no channel is an outlier, so that integer sums can
// be scaled after they are complete.
bool scales_constant_along_k(const PackedPanels& panels);

// Scale of a column when scales_constant_along_k.
float column_scale(const PackedPanels& panels, int64_t column);

}  // namespace deepgemm::cpu
