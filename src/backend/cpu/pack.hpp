// Packed weights of the CPU backend: panels in streaming order, in the stored precision.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "layout/quantized_weights.hpp"

namespace deepgemm::cpu {

// Immutable after packing; any number of launches may read it. Panels hold 32 columns of op(B), all
// of K, in the stored precision (kernels/cpu/operands.hpp), beside scales, zero points, groups and
// outlier channels as the weights state them. FP32 weights whose values are all BF16 values, as
// those of a BF16 checkpoint that was loaded as FP32, are kept as BF16: half the bytes to read,
// the same products.
class PackedPanels;

// INVALID_ARGUMENT when layout::validate refuses the weights, OUT_OF_MEMORY. `with_norms`: keeps
// the norms that tile skipping looks at (skip.hpp).
base::Result<std::shared_ptr<const PackedPanels>> pack(const layout::QuantizedWeights& weights,
                                                       bool with_norms = false);
// Exact inverse of pack.
layout::QuantizedWeights unpack(const PackedPanels& panels);
int64_t packed_bytes(const PackedPanels& panels);
int64_t packed_k(const PackedPanels& panels);
int64_t packed_n(const PackedPanels& panels);
gemm_precision_t packed_precision(const PackedPanels& panels);

}  // namespace deepgemm::cpu
