// Quantisers: dense weights or activations -> codes and scales, with the representation error.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "layout/quantized_weights.hpp"

namespace deepgemm::contract {

// What to make of a dense matrix. precision INT4* / INT8 / FP8_* / a float format (rounding only).
struct QuantizeOptions {
  gemm_precision_t precision = PRECISION_INT4_AWQ;
  int64_t group_size = 128;  // of PER_GROUP: -1 (whole K), 16, 32, 64, 128, 256 or K
  bool symmetric = false;    // INT4 only: zero point 8. INT8 is always symmetric
  gemm_outlier_handling_t outliers = OUTLIER_NONE;
  double outlier_fraction = 0.01;
  bool safe_accumulation = false;  // tiny scales are kept in FP32, not as FP16 subnormals
  gemm_dequant_strategy_t strategy = DEQUANT_STRATEGY_DEFAULT;  // defaults: types.h
  std::span<const float> channel_importance;  // [K] or empty: outlier channels are the largest;
                                              // empty: the channels with the largest weights
  int64_t group_offset = 0;                   // first k of this shard within the unsharded matrix
};

struct QuantizeStats {
  int64_t clamped_values = 0;
  int64_t tiny_scales = 0;
  double max_abs_error = 0;
  double rms_error = 0;
  double relative_frobenius_error = 0;
};

struct Quantized {
  layout::QuantizedWeights weights;
  QuantizeStats stats;
};

// `dense` holds K x N values, element (k, n) at k * k_stride + n * n_stride, of `precision`. INT4
// scales are FP16, those of other formats FP32; scales are rounded up and codes computed with the
// rounded scale, so that a value that is not clamped is off by half a step at most. Groups of zeros
// give exact zeros (scale 1). INVALID_ARGUMENT for inf and NaN (position of the first), unknown
// group sizes, options that contradict, values too large for the format.
base::Result<Quantized> quantize_weights(const void* dense, gemm_precision_t precision, int64_t k,
                                         int64_t n, int64_t k_stride, int64_t n_stride,
                                         const QuantizeOptions& options);

// Representation error of `weights` against a dense matrix.
QuantizeStats representation_error(const layout::QuantizedWeights& weights, const void* dense,
                                   gemm_precision_t precision, int64_t k_stride, int64_t n_stride);

// Activations [rows][k] FP32 -> INT8 per row (token), or FP8 E4M3 in blocks of 1x128.
// codes [rows][k] one byte each; scales [rows] or [rows][ceil(k/128)]. Zeros get scale 1; a row or
// block with inf or NaN gets scale NaN and codes 0.
void quantize_rows_int8(std::span<const float> values, int64_t rows, int64_t k, int8_t* codes,
                        float* scales);
void quantize_blocks_fp8(std::span<const float> values, int64_t rows, int64_t k, uint8_t* codes,
                         float* scales);

}  // namespace deepgemm::contract
