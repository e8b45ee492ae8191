// The operands of CPU kernels as they lie in memory: plain data, the same for every instruction
// set.
#pragma once

#include <stdint.h>

namespace deepgemm::cpu {

// ---- A

// Packed A holds kStripe values of k for each row, rows kStripeStride apart: a constant, so that
// the micro-kernel addresses all rows from one register; not a power of two, so that the rows do
// not compete for one set of the L1 cache.
constexpr int64_t kStripe = 256;
constexpr int64_t kStripeStride = kStripe + 16;
// Zeros follow the last value of a row up to a multiple of this, the most channels a word holds.
constexpr int64_t kChannelStep = 8;

// ---- Weights
//
// Panels of 32 columns, each in rows of one 32-bit word a column. A word holds the values of
// consecutive channels k, the first in its lowest bits; INT4 words hold even channels in the lower
// half and odd ones in the upper, so that a pair of channels is one shift away from a pair of
// 16-bit values.

constexpr int kPanel = 32;

enum class WordFormat : uint8_t { kFp32, kFp16, kBf16, kE4m3, kE5m2, kInt8, kInt4 };
constexpr int kWordFormats = 7;

constexpr int channels_per_word(WordFormat format) {
  switch (format) {
    case WordFormat::kFp32:
      return 1;
    case WordFormat::kFp16:
    case WordFormat::kBf16:
      return 2;
    case WordFormat::kInt4:
      return 8;
    case WordFormat::kE4m3:
    case WordFormat::kE5m2:
    case WordFormat::kInt8:
      break;
  }
  return 4;
}

constexpr bool is_integer(WordFormat format) {
  return format == WordFormat::kInt8 || format == WordFormat::kInt4;
}

// Scales belong to it.
constexpr bool is_quantised(WordFormat format) {
  return is_integer(format) || format == WordFormat::kE4m3 || format == WordFormat::kE5m2;
}

// Scales and zero points of one group of channels in one panel. INT8 codes are stored with their
// highest bit inverted, as signed numbers; zero points are those of the unsigned codes.
struct GroupLanes {
  float scale[32];
  uint8_t zero[32];
};

// ---- C

// Formats that finish.hpp rounds to.
enum class Target : uint8_t { kFp32, kFp16, kBf16 };

// ---- The call of a streaming kernel (stream.hpp)

// Panels that a call covers: enough chains of additions to hide their latency, not more than
// registers for.
constexpr int stream_panels(int vector_bytes, int rows) {
  if (vector_bytes < 64) return 1;
  return rows == 1 ? 4 : rows <= 4 ? 2 : 1;
}

// One call: `channels` channels (at most kStripe) of kPanels neighbouring panels.
struct StreamArguments {
  const float* a;         // packed A: row i at i * kStripeStride
  const uint32_t* words;  // of the first panel, at the first channel; that starts a word
  int64_t panel_words;    // from one panel to the next
  const GroupLanes*
      lanes;            // of the first panel, for the group of the first channel; null: no scales
  int64_t panel_lanes;  // from one panel to the next
  int64_t channels;
  int64_t group_left;  // channels until the next group begins: whole words, as is group_size
  int64_t group_size;
  double* sums;  // row i at i * sums_stride; kPanels * 32 columns are added to
  int64_t sums_stride;
};

// ---- The call of a tile product (amx_tile.hpp)

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileRowBytes = 64;

// Packed A: tiles of rows of 64 bytes of k, one for each row tile and step.
struct TilesOfA {
  const uint8_t* data;
  int64_t step;    // bytes from one step to the next
  int64_t stride;  // bytes from one row tile to the next
};

// What is read after this call: each step fetches some lines of it to the L2 cache. In one burst
// they would keep the loads of the call waiting.
struct Upcoming {
  const uint8_t* data = nullptr;
  int64_t lines = 0;  // of 64 bytes, in a step

  void fetch() {
    for (int64_t line = 0; line < lines; ++line, data += 64) __builtin_prefetch(data, 0, 2);
  }
};

// Groups of channels of one panel, from a step on.
struct TileGroups {
  const GroupLanes* lanes = nullptr;  // of the first group
  int64_t first_steps = 0;            // steps left of it
  int64_t group_steps = 0;
};

struct WordSteps {
  const uint32_t* data = nullptr;
  int64_t steps = 0;
  TileGroups groups;
};

// Sums that groups are added to.
struct TileSums {
  float* data;
  int64_t stride;
  int64_t rows;    // that are there
  float* scratch;  // 32 x 32 values
};

}  // namespace deepgemm::cpu
