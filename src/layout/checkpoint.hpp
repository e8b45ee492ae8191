// How checkpoint formats place codes, zero points and scales: one description serves reading and
// writing. docs/formats.md shows the bytes; each family of formats has a file of its own.
#pragma once

#include <array>
#include <cstdint>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::layout {

// Position within a word of each of its values: nibble or byte `order[i]` holds value i.
using PackOrder = std::array<uint8_t, 8>;
constexpr PackOrder kNaturalOrder = {0, 1, 2, 3, 4, 5, 6, 7};

// A matrix of codes packed into little-endian words.
struct Packing {
  int64_t rows = 0;
  int64_t cols = 0;
  int bits = 4;        // of a value
  int word_bits = 32;  // 8 or 32
  bool down =
      false;  // the values of a word are consecutive rows of a column; else columns of a row
  PackOrder order = kNaturalOrder;

  int values_per_word() const { return word_bits / bits; }
  int64_t word_rows() const { return down ? ceil_div(rows, values_per_word()) : rows; }
  int64_t word_cols() const { return down ? cols : ceil_div(cols, values_per_word()); }
  int64_t bytes() const { return word_rows() * word_cols() * (word_bits / 8); }

  static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }
};

struct Checkpoint;

// What a checkpoint format fixes.
struct FormatRule {
  const char* name;                 // as users know it, for messages
  gemm_precision_t precision_4bit;  // of the canonical form; DEFAULT: no such width
  gemm_precision_t precision_8bit;
  gemm_precision_t scale_precision;  // unless the tensors name one
  int64_t group_size;                // 0: declared by the tensors; -1: whole K
  int64_t block_n;                   // columns that share a scale
  bool has_zeros;                    // can hold zero points
  bool has_g_idx;                    // can hold an activation order
  // Checks the rules of the format and fills the placement fields of `checkpoint`.
  base::Result<void> (*place)(Checkpoint& checkpoint);
};

// Resolved declaration of a set of tensors, and where its parts lie. "Transposed" matrices are
// stored with the columns of W (N) as rows.
struct Checkpoint {
  const FormatRule* rule = nullptr;
  int64_t k = 0;
  int64_t n = 0;
  int bits = 4;
  gemm_precision_t precision = PRECISION_INT4;
  gemm_precision_t scale_precision = PRECISION_FP16;
  int64_t group_size = 0;
  int64_t group_offset = 0;
  int64_t groups = 0;

  Packing codes;  // K x N, or N x K
  bool codes_transposed = false;
  uint8_t code_flip = 0;  // XOR between stored and canonical code
  Packing zeros;          // groups x N, or N x groups
  bool zeros_transposed = false;
  int zero_bias = 0;       // canonical zero point = (stored + zero_bias) mod 2^bits
  int64_t scale_rows = 0;  // stored shape; groups x ceil(N / block_n), or its transpose
  int64_t scale_cols = 0;
  bool scales_transposed = false;
};

extern const FormatRule kAwqGemm;
extern const FormatRule kAwqGemv;
extern const FormatRule kGptqV1;
extern const FormatRule kGptqV2;
extern const FormatRule kCompressedTensors;
extern const FormatRule kFp8Block;
extern const FormatRule kInt8Channel;

// Error for a dimension that must be a multiple, with the nearest legal values.
base::Error not_a_multiple(const FormatRule& rule, const char* argument, int64_t value,
                           int64_t multiple, const char* reason);

// Calls visit(row, col, word, shift) for every value of the matrix; `word` counts words and `shift`
// bits. With `transposed` the visitor goes down columns of a matrix of its own: rows are then taken
// in bands, so that it stays in the cache.
template <class Visitor>
void for_each_value(const Packing& packing, bool transposed, Visitor visit) {
  const int64_t band_rows = transposed ? 64 : 1;
  const int per_word = packing.values_per_word();
  const int64_t word_rows = packing.word_rows();
  const int64_t word_cols = packing.word_cols();
  for (int64_t band = 0; band < word_rows; band += band_rows) {
    const int64_t band_end = band + band_rows < word_rows ? band + band_rows : word_rows;
    for (int64_t wc = 0; wc < word_cols; ++wc) {
      for (int64_t wr = band; wr < band_end; ++wr) {
        for (int i = 0; i < per_word; ++i) {
          const int64_t row = packing.down ? wr * per_word + i : wr;
          const int64_t col = packing.down ? wc : wc * per_word + i;
          if (row >= packing.rows || col >= packing.cols) break;
          visit(row, col, wr * word_cols + wc,
                packing.order[static_cast<size_t>(i)] * packing.bits);
        }
      }
    }
  }
}

}  // namespace deepgemm::layout
