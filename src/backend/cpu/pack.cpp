#include "backend/cpu/pack.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "backend/cpu/packed_panels.hpp"
#include "backend/cpu/thread_pool.hpp"
#include "base/formats.hpp"

namespace deepgemm::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int64_t kHalf = kPanelColumns / 2;

int64_t panel_count(const layout::QuantizedWeights& weights) {
  return (weights.n + kPanelColumns - 1) / kPanelColumns;
}

// Bytes of one element in QuantizedWeights::codes.
int64_t code_bytes(gemm_precision_t precision) {
  return base::is_int4(precision) ? 1 : base::storage_bytes(precision, 1);
}

void pack_panel(const layout::QuantizedWeights& weights, int64_t panel, int64_t row_bytes,
                uint8_t* to) {
  const int64_t size = code_bytes(weights.precision);
  const int64_t column = panel * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, weights.n - column);
  const bool nibbles = base::is_int4(weights.precision);
  for (int64_t channel = 0; channel < weights.k; ++channel, to += row_bytes) {
    const uint8_t* from = weights.codes.data() + (channel * weights.n + column) * size;
    std::memset(to, 0, static_cast<size_t>(row_bytes));
    if (!nibbles) {
      std::memcpy(to, from, static_cast<size_t>(columns * size));
      continue;
    }
    for (int64_t j = 0; j < columns; ++j) {
      const int shift = j < kHalf ? 0 : 4;
      to[j % kHalf] = static_cast<uint8_t>(to[j % kHalf] | (from[j] & 15) << shift);
    }
  }
}

void unpack_panel(const PackedPanels& panels, int64_t panel, uint8_t* codes) {
  const layout::QuantizedWeights& weights = panels.weights;
  const int64_t size = code_bytes(weights.precision);
  const int64_t column = panel * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, weights.n - column);
  const bool nibbles = base::is_int4(weights.precision);
  for (int64_t channel = 0; channel < weights.k; ++channel) {
    const uint8_t* from = panels.row(panel, channel);
    uint8_t* to = codes + (channel * weights.n + column) * size;
    if (!nibbles) {
      std::memcpy(to, from, static_cast<size_t>(columns * size));
      continue;
    }
    for (int64_t j = 0; j < columns; ++j) {
      to[j] = static_cast<uint8_t>(j < kHalf ? from[j] & 15 : from[j - kHalf] >> 4);
    }
  }
}

template <class T>
int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size() * sizeof(T));
}

}  // namespace

PanelStorage::PanelStorage(size_t bytes)
    : bytes_(static_cast<uint8_t*>(
          ::operator new (std::max<size_t>(bytes, 1), std::align_val_t{kHugePage}, std::nothrow))) {
#if defined(MADV_HUGEPAGE)
  // A wish: without huge pages the panels are the same, only slower to walk through.
  if (bytes_ != nullptr && bytes >= kHugePage) madvise(bytes_.get(), bytes, MADV_HUGEPAGE);
#endif
}

void PanelStorage::Free::operator()(uint8_t* pointer) const {
  ::operator delete (pointer, std::align_val_t{kHugePage});
}

base::Result<std::shared_ptr<const PackedPanels>> pack(const layout::QuantizedWeights& weights) {
  DEEPGEMM_TRY(layout::validate(weights));
  const int64_t row_bytes = base::storage_bytes(weights.precision, kPanelColumns);
  const int64_t panel_bytes = weights.k * row_bytes;
  const int64_t count = panel_count(weights);
  try {
    auto panels = std::make_shared<PackedPanels>();
    panels->row_bytes = row_bytes;
    panels->codes = PanelStorage(static_cast<size_t>(count * panel_bytes));
    if (panels->codes.data() == nullptr) throw std::bad_alloc();
    layout::QuantizedWeights& kept = panels->weights;
    kept.k = weights.k;
    kept.n = weights.n;
    kept.precision = weights.precision;
    kept.group_size = weights.group_size;
    kept.block_n = weights.block_n;
    kept.group_offset = weights.group_offset;
    kept.g_idx = weights.g_idx;
    kept.scale_precision = weights.scale_precision;
    kept.scales = weights.scales;
    kept.zeros = weights.zeros;
    kept.outlier_channels = weights.outlier_channels;
    kept.outlier_values = weights.outlier_values;
    process_pool().parallel_for(count, 0, [&](int64_t panel, int) {
      pack_panel(weights, panel, row_bytes, panels->codes.data() + panel * panel_bytes);
    });
    return std::shared_ptr<const PackedPanels>(std::move(panels));
  } catch (const std::bad_alloc&) {
    return base::make_error(
        DEEPGEMM_ERROR_OUT_OF_MEMORY,
        "packing weights of {} x {} needs {} bytes, which the system did not give; "
        "free memory or pack a smaller shard",
        weights.k, weights.n, count * panel_bytes);
  }
}

layout::QuantizedWeights unpack(const PackedPanels& panels) {
  layout::QuantizedWeights weights = panels.weights;
  const int64_t elements = weights.k * weights.n;
  weights.codes.resize(static_cast<size_t>(elements * code_bytes(weights.precision)));
  for (int64_t panel = 0; panel < panel_count(weights); ++panel) {
    unpack_panel(panels, panel, weights.codes.data());
  }
  return weights;
}

int64_t packed_bytes(const PackedPanels& panels) {
  const layout::QuantizedWeights& weights = panels.weights;
  return panel_count(weights) * weights.k * panels.row_bytes + bytes_of(weights.scales) +
         bytes_of(weights.zeros) + bytes_of(weights.g_idx) + bytes_of(weights.outlier_channels) +
         bytes_of(weights.outlier_values);
}

int64_t packed_k(const PackedPanels& panels) { return panels.weights.k; }
int64_t packed_n(const PackedPanels& panels) { return panels.weights.n; }
gemm_precision_t packed_precision(const PackedPanels& panels) { return panels.weights.precision; }

}  // namespace deepgemm::cpu
