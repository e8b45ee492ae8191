#include "backend/cpu/amx_product.hpp"

#include <cstring>

namespace deepgemm::cpu {
namespace {

constexpr int64_t kStepBytes = kTileRows * kPanel * 4;  // of a panel of B
constexpr int64_t kBlockSteps = AmxShape::kBlockSteps;
constexpr int64_t kSmallA = 512 * 1024;  // bytes of packed A that stay in the L2 cache beside B
constexpr int64_t kLine = 64;            // of a cache
constexpr int64_t kBf16Step = 32;        // channels

// Bytes of the parts of a slot's scratch.
constexpr int64_t kStageBytes = kBlockSteps * kStepBytes;
constexpr int64_t kStages = 2;  // one is multiplied while the other is written
constexpr int64_t kFloatBytes = kBlockSteps * 64 * kPanel * 4;  // 64: channels of an INT8 step
constexpr int64_t kGroupBytes = 32 * kPanel * 4;

}  // namespace

int64_t AmxShape::scratch_bytes(int64_t rows, const FmaShape& outliers) {
  const int64_t sums = rows * kPanel * static_cast<int64_t>(sizeof(double));
  return kStages * kStageBytes + kFloatBytes + kGroupBytes + sums +
         outliers.stage_values(rows, kPanel) * static_cast<int64_t>(sizeof(float));
}

bool fits_tiles(const ProductInput& input) {
  const intent::Problem& problem = input.executable.problem;
  const PackedPanels* packed = input.operands.packed_b;
  if (input.executable.multiplicand == Multiplicand::kInteger) {
    return input.integers && problem.k <= schedule::kInt32Products &&
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
  uint8_t* stage;     // the block of B to multiply
  uint8_t* later;     // and the one behind it
  float* floats;      // its rows, widened
  float* group_sums;  // of two row tiles
  double* outlier_sums;
  float* outlier_scratch;

  int64_t row_pairs() const { return ceil_div(tile.rows.rows, 2 * kTileRows); }
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
void AmxProduct<SumType>::pack_a(const RowTile& rows, int64_t item, void* to) const {
  const int64_t tile_rows = AmxShape::tile_rows(rows.rows);
  auto* tile = static_cast<uint8_t*>(to) + shape_.block_offset(rows.rows, item);
  for (int64_t done = 0; done < rows.rows; done += kTileRows) {
    const RowTile part{rows.batch, rows.row + done, std::min(kTileRows, rows.rows - done)};
    pack_rows(part, item, tile_rows, tile);
    tile += shape_.block_steps(item) * AmxShape::step_bytes(rows.rows);
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

// Tiles of tile_rows rows, with zeros after the last row and channel, and at outlier channels,
// which are multiplied apart.
template <class SumType>
void AmxProduct<SumType>::pack_rows(const RowTile& rows, int64_t block, int64_t tile_rows,
                                    uint8_t* to) const {
  const int64_t channels = shape_.step_channels();
  const int64_t steps = shape_.block_steps(block);
  const int64_t first = block * kBlockSteps * channels;
  const int64_t count = std::min(steps * channels, shape_.k - first);
  const layout::MatrixLayout& stored = in_.a.layout;
  const int64_t bytes = kTileRowBytes / channels;
  const bool as_it_is = source_bytes(in_.a.source) == bytes && !stored.blocked &&
                        (in_.a.transposed ? stored.row_stride : stored.col_stride) == 1;
  const OutlierPlaces outliers =
      packed_ != nullptr ? outliers_within(*packed_, first, count) : OutlierPlaces{};
  alignas(64) float wide[kBlockSteps * 64];
  alignas(64) uint8_t row[kBlockSteps * kTileRowBytes];
  for (int64_t i = 0; i < tile_rows; ++i) {
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
      std::memcpy(to + (step * tile_rows + i) * kTileRowBytes, from + step * kTileRowBytes,
                  kTileRowBytes);
    }
  }
}

// ---- B

template <class SumType>
const uint8_t* AmxProduct<SumType>::load_b(const Work& work, const Block& block) const {
  if (packed_ == nullptr || block.column % kPanel != 0) return stage_b(work, block);
  return packed_->row(block.column / kPanel, block.step() * kTileRows);
}

// Columns whose channels lie side by side are transposed word by word.
template <class SumType>
bool AmxProduct<SumType>::transpose_words(const Work& work, const Block& block) const {
  const layout::MatrixLayout& stored = in_.b.layout;
  const int64_t channels = shape_.step_channels();
  const int64_t bytes = kTileRowBytes / channels;
  const int64_t channel_stride = in_.b.transposed ? stored.col_stride : stored.row_stride;
  const int64_t column_bytes = (in_.b.transposed ? stored.row_stride : stored.col_stride) * bytes;
  if (packed_ != nullptr || source_bytes(in_.b.source) != bytes || stored.blocked ||
      channel_stride != 1 || column_bytes % 4 != 0 ||
      (block.step() + block.steps) * channels > shape_.k) {
    return false;
  }
  const int64_t channel = block.step() * channels;
  const int64_t batch = work.tile.rows.batch;
  const int64_t place = in_.b.transposed
                            ? layout::element_offset(stored, batch, block.column, channel)
                            : layout::element_offset(stored, batch, channel, block.column);
  const auto* from = static_cast<const uint8_t*>(in_.b.base) + place * bytes;
  in_.executable.kernels->f32.transpose(reinterpret_cast<const float*>(from), column_bytes / 4,
                                        reinterpret_cast<float*>(work.stage), kPanel,
                                        block.steps * kTileRows, block.columns);
  return true;
}

template <class SumType>
const uint8_t* AmxProduct<SumType>::stage_b(const Work& work, const Block& block) const {
  if (block.columns < kPanel) {
    std::memset(work.stage, 0, static_cast<size_t>(block.steps * kStepBytes));
  }
  if (transpose_words(work, block)) return work.stage;
  const int64_t channels = shape_.step_channels();
  const int64_t first = block.step() * channels;
  const int64_t count = std::min(block.steps * channels, shape_.k - first);
  const Kernels<float>& floats = in_.executable.kernels->f32;
  const float* rows = work.floats;
  if (packed_ != nullptr) {
    rows =
        load_panel(floats, *packed_, {Rows::kChannels, first, count, block.column, block.columns},
                   true, work.floats);
  } else {
    if (block.columns < kPanel) std::fill_n(work.floats, count * kPanel, 0.0F);
    load_block(floats, in_.b, work.tile.rows.batch, {first, count, block.column, block.columns},
               work.floats, kPanel);
  }
  std::fill(work.floats + count * kPanel, work.floats + block.steps * channels * kPanel, 0.0F);
  auto* to = reinterpret_cast<uint32_t*>(work.stage);
  if constexpr (kIntegers) {
    kernels_.quad_rows(rows, block.steps * kTileRows, to);
  } else {
    kernels_.pair_rows(rows, block.steps * kTileRows, to);
  }
  return work.stage;
}

// ---- Products

// Groups of weights that have scales, which apply to the sums of their groups.
template <class SumType>
TileGroups AmxProduct<SumType>::groups_at(int64_t column, int64_t step) const {
  const int64_t groups = std::max<int64_t>(packed_->groups(), 1);
  const bool one = packed_->groups() <= 1;
  const int64_t run = one ? shape_.steps() : packed_->weights.group_size / kBf16Step;
  const int64_t place = step + (one ? 0 : packed_->weights.group_offset / kBf16Step);
  return {packed_->lanes.data() + column / kPanel * groups + place / run, run - place % run, run};
}

// Steps [first, first + steps) of a block.
template <class SumType>
WordSteps AmxProduct<SumType>::words_of(const Block& block, int64_t first, int64_t steps) const {
  if (steps == 0) return {};
  const int64_t rows = kBf16Step / channels_per_word(*packed_->format);  // of words in a step
  const int64_t step = block.step() + first;
  return {packed_->word_row(block.column / kPanel, step * rows), steps,
          groups_at(block.column, step)};
}

// What a call of `steps` steps fetches of a block that is read later, one call of `shares`.
template <class SumType>
Upcoming AmxProduct<SumType>::share_of(const Block& block, int64_t share, int64_t shares,
                                       int64_t steps) const {
  if (packed_ == nullptr || block.steps == 0) return {};
  const int64_t rows = shape_.step_channels() / channels_per_word(*packed_->format);
  const int64_t bytes = block.steps * rows * packed_->row_bytes;
  const int64_t lines = ceil_div(bytes, kLine * shares * steps);
  return {packed_->row(block.column / kPanel, block.step() * rows) + share * steps * lines * kLine,
          lines};
}

// A block for all rows of the tile. `after`: the one that is multiplied next; where it is expanded
// meanwhile, the one behind it is fetched.
template <class SumType>
void AmxProduct<SumType>::add_block(Work& work, const Segment& segment, const Block& block,
                                    const Block& after) const {
  const int64_t rows = work.tile.rows.rows;
  const int64_t pairs = work.row_pairs();
  const uint8_t* b = scaled_ ? work.stage : load_b(work, block);
  const int64_t a_step = AmxShape::step_bytes(rows);
  const int64_t a_stride = block.steps * a_step;
  const uint8_t* const a_block = work.a + shape_.block_offset(rows, block.index);
  Sum* const sums = work.sums + segment.sums_column + block.column - segment.column;
  const bool expands = scaled_ && pairs > 1;
  const Block fetched = expands ? next_block(work, segment, after) : after;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const Upcoming upcoming = share_of(fetched, pair, pairs, block.steps);
    const int64_t row = pair * 2 * kTileRows;
    const int64_t count = std::min(2 * kTileRows, rows - row);
    const size_t two = count > kTileRows ? 1 : 0;
    const TilesOfA a{a_block + row / kTileRows * a_stride, a_step, a_stride};
    Sum* const to = sums + row * work.stride;
    if constexpr (!kIntegers) {
      if (scaled_) {
        const auto format = static_cast<size_t>(*packed_->format);
        const TileSums group_sums{to, work.stride, count, work.group_sums};
        if (!expands) {
          kernels_.fused[format][two](words_of(block, 0, block.steps), a, work.stage, group_sums,
                                      upcoming);
          continue;
        }
        const int64_t first = after.steps * pair / pairs;
        const int64_t expanded = after.steps * (pair + 1) / pairs - first;
        kernels_.scaled[format][two](groups_at(block.column, block.step()), block.steps, a, b,
                                     group_sums, words_of(after, first, expanded),
                                     work.later + first * kStepBytes, upcoming);
        continue;
      }
    }
    const auto& products = kIntegers ? kernels_.int8 : kernels_.bf16;
    products[two](block.steps, a, b, reinterpret_cast<uint8_t*>(to), work.stride * 4,
                  block.index == 0, upcoming);
  }
  std::swap(work.stage, work.later);
}

// With little of A, a panel of B is read from its first to its last channel; else A is gone through
// once. After the last block: none.
template <class SumType>
typename AmxProduct<SumType>::Block AmxProduct<SumType>::next_block(const Work& work,
                                                                    const Segment& segment,
                                                                    const Block& block) const {
  if (block.steps == 0) return {};
  int64_t column = block.column, index = block.index;
  const int64_t end = segment.column + segment.columns;
  if (shape_.a_bytes(work.tile.rows.rows) <= kSmallA) {
    if (++index == shape_.blocks()) column += kPanel, index = 0;
    if (column >= end) return {};
  } else {
    column += kPanel;
    if (column >= end) column = segment.column, ++index;
    if (index == shape_.blocks()) return {};
  }
  return {column, std::min<int64_t>(kPanel, end - column), index, shape_.block_steps(index)};
}

template <class SumType>
void AmxProduct<SumType>::add_segment(Work& work, const Segment& segment) const {
  Block block{segment.column, std::min<int64_t>(kPanel, segment.columns), 0, shape_.block_steps(0)};
  if (scaled_ && work.row_pairs() > 1) {
    kernels_.expand[static_cast<size_t>(*packed_->format)](words_of(block, 0, block.steps),
                                                           work.stage);
  }
  while (block.steps > 0) {
    const Block after = next_block(work, segment, block);
    add_block(work, segment, block, after);
    block = after;
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
  Work work{tile,    static_cast<const uint8_t*>(a),
            sums,    stride,
            bytes,   bytes + kStageBytes,
            nullptr, nullptr,
            nullptr, nullptr};
  bytes += kStages * kStageBytes;
  work.floats = reinterpret_cast<float*>(bytes);
  work.group_sums = reinterpret_cast<float*>(bytes + kFloatBytes);
  work.outlier_sums = reinterpret_cast<double*>(bytes + kFloatBytes + kGroupBytes);
  work.outlier_scratch = reinterpret_cast<float*>(work.outlier_sums + tile.rows.rows * kPanel);
  kernels_.configure(AmxShape::tile_rows(tile.rows.rows));
  for (int s = 0; s < tile.segment_count; ++s) add_segment(work, tile.segments[s]);
  kernels_.release();
  add_outliers(work);
}

template class AmxProduct<float>;
template class AmxProduct<int32_t>;

}  // namespace deepgemm::cpu
