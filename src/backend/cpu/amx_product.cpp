#include "backend/cpu/amx_product.hpp"

#include <cstring>

namespace deepgemm::cpu {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;
constexpr int64_t kStepBytes = kTileRows * kPanel * 4;  // of a panel of B
constexpr int64_t kBlockSteps = 16;         // a block of B then fills two thirds of the L1 cache
constexpr int64_t kSmallA = 512 * 1024;     // bytes of packed A that stay in the L2 cache beside B
constexpr int64_t kPackSteps = 64;          // of A that one item packs
constexpr int64_t kLine = 64;               // of a cache
constexpr int64_t kBf16Step = 32;           // channels
constexpr int64_t kExactProducts = 126976;  // of INT8 that INT32 holds: see schedule/family.cpp

// Bytes of the parts of a slot's scratch.
constexpr int64_t kStageBytes = kBlockSteps * kStepBytes;
constexpr int64_t kFloatBytes = kBlockSteps * 64 * kPanel * 4;  // 64: channels of an INT8 step
constexpr int64_t kGroupBytes = 32 * kPanel * 4;

}  // namespace

int64_t AmxShape::scratch_bytes(int64_t rows, const FmaShape& outliers) {
  const int64_t sums = rows * kPanel * static_cast<int64_t>(sizeof(double));
  return kStageBytes + kFloatBytes + kGroupBytes + sums +
         outliers.stage_values(rows) * static_cast<int64_t>(sizeof(float));
}

bool fits_tiles(const ProductInput& input) {
  const intent::Problem& problem = input.executable.problem;
  const PackedPanels* packed = input.operands.packed_b;
  if (input.executable.multiplicand == Multiplicand::kInteger) {
    return input.integers && problem.k <= kExactProducts &&
           (packed == nullptr || packed->weights.zeros.empty());
  }
  if (packed == nullptr) return input.scale_b.base == nullptr;
  if (packed->format == WordFormat::kBf16) return true;
  if (!packed->format || !is_quantised(*packed->format)) return false;
  if (input.executable.swiglu() && problem.n / 2 % kPanel != 0) return false;
  const layout::QuantizedWeights& weights = packed->weights;
  return packed->groups() <= 1 || (weights.g_idx.empty() && weights.group_size % kBf16Step == 0 &&
                                   weights.group_offset % kBf16Step == 0);
}

// What a slot has while it computes a tile.
template <class SumType>
struct AmxProduct<SumType>::Work {
  const Tile& tile;
  const uint8_t* a;
  Sum* sums;
  int64_t stride;
  uint8_t* stage;     // a block of B
  float* floats;      // its rows, widened
  float* group_sums;  // of two row tiles
  double* outlier_sums;
  float* outlier_scratch;
};

template <class SumType>
AmxProduct<SumType>::AmxProduct(const AmxKernels& kernels, const ProductInput& input)
    : kernels_(kernels),
      in_(input),
      packed_(input.operands.packed_b),
      shape_{input.executable.problem.k, kIntegers},
      fma_(input.executable.kernels->f32, input),
      scaled_(!kIntegers && packed_ != nullptr && packed_->format != WordFormat::kBf16) {}

// ---- A

template <class SumType>
int64_t AmxProduct<SumType>::pack_items() const {
  return ceil_div(shape_.steps(), kPackSteps);
}

template <class SumType>
void AmxProduct<SumType>::pack_a(const RowTile& rows, int64_t item, void* to) const {
  const int64_t first = item * kPackSteps;
  const int64_t steps = std::min(kPackSteps, shape_.steps() - first);
  for (int64_t done = 0; done < rows.rows; done += kTileRows) {
    const RowTile part{rows.batch, rows.row + done, std::min(kTileRows, rows.rows - done)};
    pack_rows(part, first, steps,
              static_cast<uint8_t*>(to) + (done / kTileRows * shape_.steps() + first) * kTileBytes);
  }
}

template <class SumType>
void AmxProduct<SumType>::narrow(const float* from, void* to, int64_t count) const {
  if constexpr (kIntegers) {
    kernels_.narrow_to_int8(from, static_cast<int8_t*>(to), count);
  } else {
    kernels_.narrow_to_bf16(from, static_cast<uint16_t*>(to), count);
  }
}

// Tiles of at most 16 rows, with zeros after the last row and channel, and at outlier channels,
// which are multiplied apart.
template <class SumType>
void AmxProduct<SumType>::pack_rows(const RowTile& rows, int64_t first_step, int64_t steps,
                                    uint8_t* to) const {
  const int64_t channels = shape_.step_channels();
  const int64_t first = first_step * channels;
  const int64_t count = std::min(steps * channels, shape_.k - first);
  const layout::MatrixLayout& stored = in_.a.layout;
  const int64_t bytes = kTileRowBytes / channels;
  const bool as_it_is = source_bytes(in_.a.source) == bytes && !stored.blocked &&
                        (in_.a.transposed ? stored.row_stride : stored.col_stride) == 1;
  const OutlierPlaces outliers =
      packed_ != nullptr ? outliers_within(*packed_, first, count) : OutlierPlaces{};
  alignas(64) float wide[kPackSteps * 64];
  alignas(64) uint8_t row[kPackSteps * kTileRowBytes];
  for (int64_t i = 0; i < kTileRows; ++i) {
    const uint8_t* from = row;
    if (i >= rows.rows || !as_it_is || count < steps * channels) {
      std::memset(row, 0, static_cast<size_t>(steps * kTileRowBytes));
    }
    if (i < rows.rows && as_it_is) {
      const int64_t place = in_.a.transposed
                                ? layout::element_offset(stored, rows.batch, first, rows.row + i)
                                : layout::element_offset(stored, rows.batch, rows.row + i, first);
      from = static_cast<const uint8_t*>(in_.a.base) + place * bytes;
      if (count < steps * channels) {
        std::memcpy(row, from, static_cast<size_t>(count * bytes));
        from = row;
      }
    } else if (i < rows.rows) {
      load_block(in_.executable.kernels->f32, in_.a, rows.batch, {rows.row + i, 1, first, count},
                 wide, count);
      narrow(wide, row, count);
    }
    if (outliers.begin < outliers.end && i < rows.rows) {
      if (from != row) std::memcpy(row, from, static_cast<size_t>(steps * kTileRowBytes));
      from = row;
      for (int64_t place = outliers.begin; place < outliers.end; ++place) {
        const int64_t channel = packed_->weights.outlier_channels[static_cast<size_t>(place)];
        std::memset(row + (channel - first) * bytes, 0, static_cast<size_t>(bytes));
      }
    }
    for (int64_t step = 0; step < steps; ++step) {
      std::memcpy(to + step * kTileBytes + i * kTileRowBytes, from + step * kTileRowBytes,
                  kTileRowBytes);
    }
  }
}

// ---- B

template <class SumType>
const uint8_t* AmxProduct<SumType>::load_b(const Work& work, int64_t column, int64_t columns,
                                           int64_t step, int64_t steps) const {
  if (packed_ == nullptr || column % kPanel != 0)
    return stage_b(work, column, columns, step, steps);
  if (scaled_) return expand_b(work, column / kPanel, step, steps);
  return packed_->row(column / kPanel, step * kTileRows);
}

// Quantised weights as BF16 codes minus zero points; their scales are applied to sums.
template <class SumType>
const uint8_t* AmxProduct<SumType>::expand_b(const Work& work, int64_t panel, int64_t step,
                                             int64_t steps) const {
  const int64_t rows = kBf16Step / channels_per_word(*packed_->format);  // of words in a step
  const auto expand = kernels_.expand[static_cast<size_t>(*packed_->format)];
  const TileGroups groups = groups_at(work, panel * kPanel, step, 0);
  const GroupLanes* lanes = groups.lanes;
  auto* to = reinterpret_cast<uint32_t*>(work.stage);
  int64_t run = groups.first_steps;
  for (int64_t done = 0; done < steps; done += run, run = groups.group_steps, ++lanes) {
    expand(packed_->word_row(panel, (step + done) * rows), std::min(run, steps - done) * rows,
           *lanes, to + done * kTileRows * kPanel);
  }
  return work.stage;
}

template <class SumType>
int64_t AmxProduct<SumType>::group_steps() const {
  return packed_->groups() > 1 ? packed_->weights.group_size / kBf16Step : shape_.steps();
}

// Columns whose channels lie side by side are transposed word by word.
template <class SumType>
bool AmxProduct<SumType>::transpose_words(const Work& work, int64_t column, int64_t columns,
                                          int64_t step, int64_t steps) const {
  const layout::MatrixLayout& stored = in_.b.layout;
  const int64_t channels = shape_.step_channels();
  const int64_t bytes = kTileRowBytes / channels;
  const int64_t channel_stride = in_.b.transposed ? stored.col_stride : stored.row_stride;
  const int64_t column_bytes = (in_.b.transposed ? stored.row_stride : stored.col_stride) * bytes;
  if (packed_ != nullptr || source_bytes(in_.b.source) != bytes || stored.blocked ||
      channel_stride != 1 || column_bytes % 4 != 0 || (step + steps) * channels > shape_.k) {
    return false;
  }
  const int64_t channel = step * channels;
  const int64_t place = in_.b.transposed
                            ? layout::element_offset(stored, work.tile.rows.batch, column, channel)
                            : layout::element_offset(stored, work.tile.rows.batch, channel, column);
  const auto* from = static_cast<const uint8_t*>(in_.b.base) + place * bytes;
  in_.executable.kernels->f32.transpose(reinterpret_cast<const float*>(from), column_bytes / 4,
                                        reinterpret_cast<float*>(work.stage), kPanel,
                                        steps * kTileRows, columns);
  return true;
}

template <class SumType>
const uint8_t* AmxProduct<SumType>::stage_b(const Work& work, int64_t column, int64_t columns,
                                            int64_t step, int64_t steps) const {
  if (columns < kPanel) std::memset(work.stage, 0, static_cast<size_t>(steps * kStepBytes));
  if (transpose_words(work, column, columns, step, steps)) return work.stage;
  const int64_t channels = shape_.step_channels();
  const int64_t first = step * channels;
  const int64_t count = std::min(steps * channels, shape_.k - first);
  const Kernels<float>& floats = in_.executable.kernels->f32;
  const float* rows = work.floats;
  if (packed_ != nullptr) {
    rows = load_panel(floats, *packed_, {Rows::kChannels, first, count, column, columns}, true,
                      work.floats);
  } else {
    if (columns < kPanel) std::fill_n(work.floats, count * kPanel, 0.0F);
    load_block(floats, in_.b, work.tile.rows.batch, {first, count, column, columns}, work.floats,
               kPanel);
  }
  std::fill(work.floats + count * kPanel, work.floats + steps * channels * kPanel, 0.0F);
  auto* to = reinterpret_cast<uint32_t*>(work.stage);
  if constexpr (kIntegers) {
    kernels_.quad_rows(rows, steps * kTileRows, to);
  } else {
    kernels_.pair_rows(rows, steps * kTileRows, to);
  }
  return work.stage;
}

// ---- Products

template <class SumType>
typename AmxProduct<SumType>::Bytes AmxProduct<SumType>::packed_block(int64_t column, int64_t step,
                                                                      int64_t steps) const {
  const int64_t panel = column / kPanel;
  if (packed_ == nullptr || panel >= packed_->panel_count || step >= shape_.steps()) return {};
  const int64_t rows = shape_.step_channels() / channels_per_word(*packed_->format);
  return {packed_->row(panel, step * rows), steps * rows * packed_->row_bytes};
}

template <class SumType>
TileGroups AmxProduct<SumType>::groups_at(const Work& work, int64_t column, int64_t step,
                                          int64_t rows) const {
  const int64_t groups = std::max<int64_t>(packed_->groups(), 1);
  const int64_t run = group_steps();
  const int64_t place = step + (groups > 1 ? packed_->weights.group_offset / kBf16Step : 0);
  return {packed_->lanes.data() + column / kPanel * groups + place / run, run - place % run, run,
          rows, work.group_sums};
}

// `steps` steps of one panel of columns, for all rows of the tile. `next`: what will be read next.
template <class SumType>
void AmxProduct<SumType>::add_block(const Work& work, const Segment& segment, const Block& block,
                                    const Bytes& next) const {
  const int64_t column = segment.column + block.column;
  const int64_t columns = std::min<int64_t>(kPanel, segment.columns - block.column);
  const int64_t rows = work.tile.rows.rows;
  const int64_t pairs = ceil_div(rows, 2 * kTileRows);
  const bool fuses = scaled_ && pairs == 1;
  const uint8_t* b = fuses ? nullptr : load_b(work, column, columns, block.step, block.steps);
  const int64_t a_stride = shape_.steps() * kTileBytes;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const int64_t lines = ceil_div(next.count, kLine * pairs * block.steps);
    const Upcoming upcoming{next.data + pair * block.steps * lines * kLine, lines};
    const int64_t row = pair * 2 * kTileRows;
    const int64_t count = std::min(2 * kTileRows, rows - row);
    const size_t two = count > kTileRows ? 1 : 0;
    const uint8_t* a = work.a + row / kTileRows * a_stride + block.step * kTileBytes;
    Sum* sums = work.sums + row * work.stride + segment.sums_column + block.column;
    const bool fresh = block.step == 0;
    if constexpr (kIntegers) {
      kernels_.int8[two](block.steps, a, a_stride, b, reinterpret_cast<uint8_t*>(sums),
                         work.stride * 4, fresh, upcoming);
    } else if (!scaled_) {
      kernels_.bf16[two](block.steps, a, a_stride, b, reinterpret_cast<uint8_t*>(sums),
                         work.stride * 4, fresh, upcoming);
    } else if (fuses) {
      const auto* words =
          reinterpret_cast<const uint32_t*>(packed_block(column, block.step, block.steps).data);
      kernels_.fused[static_cast<size_t>(*packed_->format)][two](
          groups_at(work, column, block.step, count), block.steps, a, a_stride, words, work.stage,
          sums, work.stride, upcoming);
    } else {
      kernels_.scaled[two](groups_at(work, column, block.step, count), block.steps, a, a_stride, b,
                           sums, work.stride, upcoming);
    }
  }
}

// Outlier channels are FP16 values: they are multiplied in FP32.
template <class SumType>
void AmxProduct<SumType>::add_outliers(const Work& work) const {
  if (packed_ == nullptr || packed_->outliers() == 0) return;
  const int64_t rows = work.tile.rows.rows;
  for (int s = 0; s < work.tile.segment_count; ++s) {
    const Segment& segment = work.tile.segments[s];
    for (int64_t done = 0; done < segment.columns; done += kPanel) {
      Tile part = work.tile;
      part.segments[0] = {segment.column + done, std::min<int64_t>(kPanel, segment.columns - done),
                          0};
      part.segment_count = 1;
      std::fill_n(work.outlier_sums, rows * kPanel, 0.0);
      fma_.add_outliers(part, work.outlier_scratch, work.outlier_sums, kPanel);
      for (int64_t i = 0; i < rows; ++i) {
        Sum* sums = work.sums + i * work.stride + segment.sums_column + done;
        for (int64_t j = 0; j < kPanel; ++j) {
          sums[j] += static_cast<Sum>(work.outlier_sums[i * kPanel + j]);
        }
      }
    }
  }
}

template <class SumType>
void AmxProduct<SumType>::add_products(const Tile& tile, const void* a, void* scratch, Sum* sums,
                                       int64_t stride) const {
  auto* bytes = static_cast<uint8_t*>(scratch);
  Work work{tile,   static_cast<const uint8_t*>(a), sums, stride, bytes, nullptr, nullptr, nullptr,
            nullptr};
  work.floats = reinterpret_cast<float*>(bytes + kStageBytes);
  work.group_sums = reinterpret_cast<float*>(bytes + kStageBytes + kFloatBytes);
  work.outlier_sums = reinterpret_cast<double*>(bytes + kStageBytes + kFloatBytes + kGroupBytes);
  work.outlier_scratch = reinterpret_cast<float*>(work.outlier_sums + tile.rows.rows * kPanel);
  const int64_t steps = shape_.steps();
  kernels_.configure();
  for (int s = 0; s < tile.segment_count; ++s) {
    const Segment& segment = tile.segments[s];
    // With little of A, a panel of B is read from its first to its last channel; else A is gone
    // through once.
    if (shape_.a_bytes(tile.rows.rows) <= kSmallA) {
      for (int64_t column = 0; column < segment.columns; column += kPanel) {
        for (int64_t step = 0; step < steps; step += kBlockSteps) {
          const int64_t count = std::min(kBlockSteps, steps - step);
          add_block(work, segment, {column, step, count},
                    packed_block(segment.column + column, step + count, kBlockSteps));
        }
      }
    } else {
      for (int64_t step = 0; step < steps; step += kBlockSteps) {
        const int64_t count = std::min(kBlockSteps, steps - step);
        for (int64_t column = 0; column < segment.columns; column += kPanel) {
          add_block(work, segment, {column, step, count},
                    packed_block(segment.column + column + kPanel, step, count));
        }
      }
    }
  }
  kernels_.release();
  add_outliers(work);
}

template class AmxProduct<float>;
template class AmxProduct<int32_t>;

}  // namespace deepgemm::cpu
