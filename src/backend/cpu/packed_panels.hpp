// Inside of PackedPanels, for the files of this backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/kernels.hpp"
#include "backend/cpu/pack.hpp"

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
  // Everything of the weights but their codes, which lie in `codes`: row `channel` of panel p
  // (columns 32p ... 32p+31, zeros after the last) at (p * k + channel) * row_bytes. FP formats: 32
  // values in order; INT8: 32 codes; INT4: byte j holds column j in its low half and j + 16 in its
  // high.
  layout::QuantizedWeights weights;
  PanelStorage codes;
  int64_t row_bytes = 0;

  const uint8_t* row(int64_t panel, int64_t channel) const {
    return codes.data() + (panel * weights.k + channel) * row_bytes;
  }
};

// Which part of the weights a micro-kernel's panel of B needs.
struct PanelRange {
  int64_t channel = 0, channels = 0;  // rows of op(B)
  int64_t column = 0, columns = 0;    // columns of op(B); not more than the kernel's panel has
};

// Writes the values of `range` as a panel of packed B: channel after channel, kernels.columns wide,
// zeros after the last column. Scales are multiplied in (rounded to T) unless `unscaled`: then
// integer weights are code - zero point. Outlier channels are the FP16 values.
template <class T>
void load_panel(const Kernels<T>& kernels, const PackedPanels& panels, const PanelRange& range,
                bool unscaled, T* to);

// True when every scale is the same along k and no channel is an outlier, so that integer sums can
// be scaled after they are complete.
bool scales_constant_along_k(const PackedPanels& panels);

// Scale of a column when scales_constant_along_k.
float column_scale(const PackedPanels& panels, int64_t column);

}  // namespace deepgemm::cpu
