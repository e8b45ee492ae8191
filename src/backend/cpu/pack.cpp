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
constexpr int64_t kWordBytes = 4;

int64_t ceil_div(int64_t value, int64_t step) { return (value + step - 1) / step; }

std::optional<WordFormat> word_format(gemm_precision_t precision) {
  if (base::is_int4(precision)) return WordFormat::kInt4;
  switch (precision) {
    case PRECISION_FP32:
    case PRECISION_TF32:
      return WordFormat::kFp32;
    case PRECISION_FP16:
      return WordFormat::kFp16;
    case PRECISION_BF16:
      return WordFormat::kBf16;
    case PRECISION_FP8_E4M3:
      return WordFormat::kE4m3;
    case PRECISION_FP8_E5M2:
      return WordFormat::kE5m2;
    case PRECISION_INT8:
      return WordFormat::kInt8;
    default:
      return std::nullopt;
  }
}

// FP32 weights that came from a BF16 checkpoint: their lower halves are empty.
bool holds_bf16(const layout::QuantizedWeights& weights) {
  if (word_format(weights.precision) != WordFormat::kFp32) return false;
  constexpr size_t kChunk = 4096;
  const size_t count = weights.codes.size() / sizeof(uint32_t);
  for (size_t start = 0; start < count; start += kChunk) {
    uint32_t seen = 0;
    for (size_t i = start; i < std::min(count, start + kChunk); ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, weights.codes.data() + i * sizeof(bits), sizeof(bits));
      seen |= bits;
    }
    if ((seen & 0xFFFFU) != 0) return false;
  }
  return true;
}

// Rows of a panel. Tile units take 32 channels a step as 16-bit values and 64 as bytes: what they
// read is padded to whole steps.
int64_t rows_for(const std::optional<WordFormat>& format, int64_t k) {
  if (!format || *format == WordFormat::kFp32) return k;
  const int64_t rows = ceil_div(k, channels_per_word(*format));
  const int64_t step = *format == WordFormat::kInt4 ? 4 : 16;
  return ceil_div(rows, step) * step;
}

// Bytes of one element in QuantizedWeights::codes.
int64_t code_bytes(gemm_precision_t precision) {
  return base::is_int4(precision) ? 1 : base::storage_bytes(precision, 1);
}

// Where channel `channel` of a word lies.
int word_shift(WordFormat format, int64_t channel) {
  const int64_t per_word = channels_per_word(format);
  const auto in_word = static_cast<int>(channel % per_word);
  if (format == WordFormat::kInt4) return (in_word & 1) * 16 + (in_word >> 1) * 4;
  return in_word * (32 / static_cast<int>(per_word));
}

// How a code of the weights and its part of a word belong together: code == (part ^ flip) << drop.
// INT8 is stored as a signed number, FP32 as the BF16 value it is.
struct StoredCode {
  uint32_t mask = ~0U;
  uint32_t flip = 0;
  int drop = 0;
};

StoredCode stored_code(const layout::QuantizedWeights& weights, WordFormat format) {
  switch (format) {
    case WordFormat::kInt4:
      return {15U, 0, 0};
    case WordFormat::kInt8:
      return {0xFFU, 0x80U, 0};
    case WordFormat::kE4m3:
    case WordFormat::kE5m2:
      return {0xFFU, 0, 0};
    case WordFormat::kFp16:
    case WordFormat::kBf16:
      return {0xFFFFU, 0, code_bytes(weights.precision) == 4 ? 16 : 0};
    case WordFormat::kFp32:
      break;
  }
  return {};
}

void pack_panel(const layout::QuantizedWeights& weights, int64_t panel, PackedPanels& to) {
  const int64_t size = code_bytes(weights.precision);
  const int64_t column = panel * kPanel;
  const int64_t columns = std::min<int64_t>(kPanel, weights.n - column);
  uint8_t* rows = to.words.data() + panel * to.row_count * to.row_bytes;
  std::memset(rows, 0, static_cast<size_t>(to.row_count * to.row_bytes));
  for (int64_t channel = 0; channel < weights.k; ++channel) {
    const uint8_t* from = weights.codes.data() + (channel * weights.n + column) * size;
    if (!to.format || *to.format == WordFormat::kFp32) {
      std::memcpy(rows + channel * to.row_bytes, from, static_cast<size_t>(columns * size));
      continue;
    }
    auto* words =
        reinterpret_cast<uint32_t*>(rows + channel / channels_per_word(*to.format) * to.row_bytes);
    const int shift = word_shift(*to.format, channel);
    const StoredCode stored = stored_code(weights, *to.format);
    for (int64_t j = 0; j < columns; ++j) {
      uint32_t code = 0;
      std::memcpy(&code, from + j * size, static_cast<size_t>(size));
      words[j] |= (((code >> stored.drop) & stored.mask) ^ stored.flip) << shift;
    }
  }
}

void unpack_panel(const PackedPanels& panels, int64_t panel, uint8_t* codes) {
  const layout::QuantizedWeights& weights = panels.weights;
  const int64_t size = code_bytes(weights.precision);
  const int64_t column = panel * kPanel;
  const int64_t columns = std::min<int64_t>(kPanel, weights.n - column);
  for (int64_t channel = 0; channel < weights.k; ++channel) {
    uint8_t* to = codes + (channel * weights.n + column) * size;
    if (!panels.format || *panels.format == WordFormat::kFp32) {
      std::memcpy(to, panels.row(panel, channel), static_cast<size_t>(columns * size));
      continue;
    }
    const uint32_t* words = panels.word_row(panel, channel / channels_per_word(*panels.format));
    const int shift = word_shift(*panels.format, channel);
    const StoredCode stored = stored_code(weights, *panels.format);
    for (int64_t j = 0; j < columns; ++j) {
      const uint32_t code = (((words[j] >> shift) & stored.mask) ^ stored.flip) << stored.drop;
      std::memcpy(to + j * size, &code, static_cast<size_t>(size));
    }
  }
}

GroupLanes lanes_of(const layout::QuantizedWeights& weights, int64_t panel, int64_t group) {
  GroupLanes lanes = {};
  const int64_t blocks = ceil_div(weights.n, weights.block_n);
  const auto symmetric = static_cast<uint8_t>(base::is_int4(weights.precision) ? 8 : 128);
  for (int64_t column = panel * kPanel; column < std::min(weights.n, (panel + 1) * kPanel);
       ++column) {
    const int64_t lane = column % kPanel;
    lanes.scale[lane] =
        weights.scales.empty()
            ? 1.0F
            : weights.scales[static_cast<size_t>(group * blocks + column / weights.block_n)];
    lanes.zero[lane] = weights.zeros.empty()
                           ? symmetric
                           : weights.zeros[static_cast<size_t>(group * weights.n + column)];
  }
  return lanes;
}

void make_lanes(const layout::QuantizedWeights& weights, PackedPanels& to) {
  if (!to.format || !is_quantised(*to.format)) return;
  const int64_t groups = std::max<int64_t>(to.groups(), 1);
  for (int64_t panel = 0; panel < to.panel_count; ++panel) {
    for (int64_t group = 0; group < groups; ++group) {
      to.lanes.push_back(lanes_of(weights, panel, group));
    }
  }
  if (groups > 1) return;
  to.unit_lanes = to.lanes;
  for (GroupLanes& lanes : to.unit_lanes) std::fill_n(lanes.scale, kPanel, 1.0F);
}

void pack_outliers(const layout::QuantizedWeights& weights, PackedPanels& to) {
  to.outlier_words.resize(static_cast<size_t>(to.panel_count * to.outlier_rows() * kPanel));
  for (int64_t i = 0; i < to.outliers(); ++i) {
    for (int64_t column = 0; column < weights.n; ++column) {
      const int64_t row = column / kPanel * to.outlier_rows() + i / 2;
      const uint32_t value = weights.outlier_values[static_cast<size_t>(i * weights.n + column)];
      to.outlier_words[static_cast<size_t>(row * kPanel + column % kPanel)] |= value
                                                                               << (i % 2 * 16);
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

base::Result<std::shared_ptr<const PackedPanels>> pack(const layout::QuantizedWeights& weights,
                                                       bool with_norms) {
  DEEPGEMM_TRY(layout::validate(weights));
  const std::optional<WordFormat> format =
      holds_bf16(weights) ? WordFormat::kBf16 : word_format(weights.precision);
  const int64_t rows = rows_for(format, weights.k);
  const int64_t row_bytes = kPanel * (format ? kWordBytes : static_cast<int64_t>(sizeof(double)));
  const int64_t count = ceil_div(weights.n, kPanel);
  const int64_t bytes = count * rows * row_bytes;
  try {
    auto panels = std::make_shared<PackedPanels>();
    panels->format = format;
    panels->row_count = rows;
    panels->row_bytes = row_bytes;
    panels->panel_count = count;
    panels->words = PanelStorage(static_cast<size_t>(bytes));
    if (panels->words.data() == nullptr) throw std::bad_alloc();
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
    make_lanes(weights, *panels);
    pack_outliers(weights, *panels);
    process_pool().parallel_for(count, 0,
                                [&](int64_t panel, int) { pack_panel(weights, panel, *panels); });
    if (with_norms) panels->norms.emplace(kGenericKernels.f64, *panels, process_pool());
    return std::shared_ptr<const PackedPanels>(std::move(panels));
  } catch (const std::bad_alloc&) {
    return base::make_error(
        DEEPGEMM_ERROR_OUT_OF_MEMORY,
        "packing weights of {} x {} needs {} bytes, which the system did not give; "
        "free memory or pack a smaller shard",
        weights.k, weights.n, bytes);
  }
}

layout::QuantizedWeights unpack(const PackedPanels& panels) {
  layout::QuantizedWeights weights = panels.weights;
  const int64_t elements = weights.k * weights.n;
  weights.codes.resize(static_cast<size_t>(elements * code_bytes(weights.precision)));
  for (int64_t panel = 0; panel < panels.panel_count; ++panel) {
    unpack_panel(panels, panel, weights.codes.data());
  }
  return weights;
}

int64_t packed_bytes(const PackedPanels& panels) {
  const layout::QuantizedWeights& weights = panels.weights;
  return panels.panel_count * panels.row_count * panels.row_bytes + bytes_of(panels.lanes) +
         bytes_of(panels.unit_lanes) + bytes_of(panels.outlier_words) + bytes_of(weights.scales) +
         bytes_of(weights.zeros) + bytes_of(weights.g_idx) + bytes_of(weights.outlier_channels) +
         bytes_of(weights.outlier_values);
}

int64_t packed_k(const PackedPanels& panels) { return panels.weights.k; }
int64_t packed_n(const PackedPanels& panels) { return panels.weights.n; }
gemm_precision_t packed_precision(const PackedPanels& panels) { return panels.weights.precision; }

}  // namespace deepgemm::cpu
