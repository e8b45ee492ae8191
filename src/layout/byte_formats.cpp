// Formats with one byte a weight, [N, K]: FP8 in blocks of 128x128, and INT8 with a scale per
// channel.
#include "layout/checkpoint.hpp"

namespace deepgemm::layout {
namespace {

constexpr int64_t kBlock = 128;

// weight [N, K], scales [ceil(N / block_n), groups].
base::Result<void> place_fp8_block(Checkpoint& c) {
  c.codes = {.rows = c.n, .cols = c.k, .bits = 8, .word_bits = 8};
  c.codes_transposed = true;
  c.scale_rows = Packing::ceil_div(c.n, c.rule->block_n);
  c.scale_cols = c.groups;
  c.scales_transposed = true;
  return {};
}

// The same with one group, and signed codes: flipping the sign bit adds 128.
base::Result<void> place_int8_channel(Checkpoint& c) {
  c.code_flip = 0x80;
  return place_fp8_block(c);
}

}  // namespace

constinit const FormatRule kFp8Block = {
    "FP8_BLOCK", PRECISION_DEFAULT, PRECISION_FP8_E4M3, PRECISION_FP32, kBlock, kBlock, false,
    false,       place_fp8_block};
constinit const FormatRule kInt8Channel = {
    "INT8_CHANNEL", PRECISION_DEFAULT, PRECISION_INT8, PRECISION_FP32, -1, 1, false,
    false,          place_int8_channel};

}  // namespace deepgemm::layout
