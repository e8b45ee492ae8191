// Quantised weights in their canonical form: what every checkpoint importer produces, every
// exporter and every backend's packer reads. docs/formats.md has the byte layouts of the
// checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::layout {

// W[k][n] = scale[group(k)][n] * (code[k][n] - zero[group(k)][n]), K x N = in_features x
// out_features. Integer codes are unsigned (INT4 0..15, INT8 0..255 with zero 128 when symmetric);
// FP8 and the dense float formats keep their bit patterns in `codes` and have no zeros. Channels
// listed in outlier_channels hold FP16 values in outlier_values instead (their codes equal the zero
// point so that they add nothing).
struct QuantizedWeights {
  int64_t k = 0;
  int64_t n = 0;
  gemm_precision_t precision = PRECISION_INT4;  // INT4*, INT8, FP8_*, or a dense float format
  int64_t group_size = 0;  // along k; k itself for one group; 128 with block_n = 128 for FP8 blocks
  int64_t block_n = 1;     // columns that share a scale (128 for FP8 blocks, n for per tensor)
  int64_t group_offset = 0;  // first k of this shard within its group: group(k) = (k + offset) / g
  std::vector<int32_t> g_idx;  // act-order: group of each k; empty: by group_size
  std::vector<uint8_t> codes;  // [k][n], storage_bytes of one element each, INT4: one code a byte
  gemm_precision_t scale_precision = PRECISION_FP16;  // in which every scale is representable
  std::vector<float> scales;              // [groups][ceil(n / block_n)]; empty for dense formats
  std::vector<uint8_t> zeros;             // [groups][n]; empty: symmetric (zero point 8 or 128)
  std::vector<int64_t> outlier_channels;  // sorted k
  std::vector<uint16_t> outlier_values;   // [outlier_channels][n] FP16 bits

  bool operator==(const QuantizedWeights&) const = default;

  // Rows of `scales`: with g_idx as many as there are scales, which may be more than this shard
  // names.
  int64_t groups() const;
  int64_t group_of(int64_t channel) const;  // 0 <= channel < k
};

// Value of one weight, exact in double for every format here.
double weight_value(const QuantizedWeights& weights, int64_t channel, int64_t column);

// Sizes agree, g_idx and outlier channels in range, scales finite and not negative, 4-bit codes and
// zero points 0 ... 15. INVALID_ARGUMENT for fields that contradict, FORMAT for values that a
// damaged checkpoint could bring in (g_idx, scales).
base::Result<void> validate(const QuantizedWeights& weights);

// Checkpoint tensors <-> canonical form; DENSE is not handled here (contract/quantize.hpp does
// that). import_tensors: bits 4 or 8 (others UNSUPPORTED); a `zeros` of NULL gives symmetric
// weights. A g_idx that says no more than group_size does is dropped. g_idx counts rows of the
// scales given: a shard of an act-order matrix brings the scales of all groups, and scales_bytes
// tells how many these are. shard_offset: first k of the shard; its first group is then what is
// left of that group. INVALID_ARGUMENT for missing tensors, wrong sizes and dimensions that the
// format does not allow; FORMAT for tensors whose content contradicts the declaration.
// export_tensors writes exactly what the format defines, with zeros in all padding. The declaration
// must equal that of the weights; every buffer must have the size that the format gives.
// UNSUPPORTED when the format cannot hold the weights (outlier channels, other group sizes, zero
// points without a place, scales that scale_precision cannot represent).
base::Result<QuantizedWeights> import_tensors(const deepgemm_weight_tensors_t& tensors);
base::Result<void> export_tensors(const QuantizedWeights& weights,
                                  const deepgemm_weight_tensors_t& tensors);

// A cheap statistic against mixed-up zero-point conventions (GPTQ v1 against v2): empty when the
// zero points look right, else a sentence.
std::string suspicious_zeros(const QuantizedWeights& weights);

}  // namespace deepgemm::layout
