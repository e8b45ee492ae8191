// Checkpoint tensors in buffers of exactly the size that docs/formats.md states, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/formats.hpp"
#include "layout/quantized_weights.hpp"

namespace deepgemm::layout {

inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a checkpoint declares.
struct Declaration {
  deepgemm_weight_format_t format = WEIGHT_FORMAT_AWQ_GEMM;
  int64_t k = 0;
  int64_t n = 0;
  int bits = 4;
  int32_t group_size = 128;
  bool zeros = true;
  bool g_idx = false;
  int64_t shard_offset = 0;
  gemm_precision_t scale_precision = PRECISION_DEFAULT;
  int64_t groups = 0;  // 0: from the above

  int64_t group_count() const {
    if (groups != 0) return groups;
    if (format == WEIGHT_FORMAT_INT8_CHANNEL || group_size == -1) return 1;
    return div_up(k + shard_offset % group_size, group_size);
  }
};

// Sizes by the formulas of the formats, written down here a second time on purpose.
struct TensorSizes {
  int64_t weight = 0, scales = 0, zeros = 0;
};

inline TensorSizes sizes_of(const Declaration& d) {
  const int64_t groups = d.group_count();
  const gemm_precision_t precision =
      d.scale_precision != PRECISION_DEFAULT ? d.scale_precision
      : d.format == WEIGHT_FORMAT_FP8_BLOCK || d.format == WEIGHT_FORMAT_INT8_CHANNEL
          ? PRECISION_FP32
          : PRECISION_FP16;
  const int64_t scale_bytes = precision == PRECISION_FP32 ? 4 : 2;
  switch (d.format) {
    case WEIGHT_FORMAT_AWQ_GEMM:
      return {4 * d.k * (d.n / 8), scale_bytes * groups * d.n, 4 * groups * (d.n / 8)};
    case WEIGHT_FORMAT_AWQ_GEMV: {
      const int64_t multiple = d.group_size == 32 ? 4 : d.group_size == 64 ? 2 : 1;
      const int64_t words = div_up(div_up(groups, 8), multiple) * multiple;
      return {4 * d.n * (d.k / 8), scale_bytes * d.n * 8 * words, 4 * d.n * words};
    }
    case WEIGHT_FORMAT_GPTQ_V1:
    case WEIGHT_FORMAT_GPTQ_V2:
      return {4 * div_up(d.k * d.bits, 32) * d.n, scale_bytes * groups * d.n,
              4 * groups * div_up(d.n * d.bits, 32)};
    case WEIGHT_FORMAT_COMPRESSED_TENSORS:
      return {4 * d.n * div_up(d.k * d.bits, 32), scale_bytes * d.n * groups,
              4 * div_up(d.n * d.bits, 32) * groups};
    case WEIGHT_FORMAT_FP8_BLOCK:
      return {d.n * d.k, scale_bytes * div_up(d.n, 128) * div_up(d.k + d.shard_offset % 128, 128),
              0};
    case WEIGHT_FORMAT_INT8_CHANNEL:
      return {d.n * d.k, scale_bytes * d.n, 0};
    case WEIGHT_FORMAT_DENSE:
      break;
  }
  return {};
}

// Buffers behind a deepgemm_weight_tensors_t, with guard bytes after each.
class TensorBuffers {
 public:
  static constexpr uint8_t kFill = 0xCD;
  static constexpr size_t kGuard = 32;

  explicit TensorBuffers(const Declaration& d) : declaration(d) {
    const TensorSizes sizes = sizes_of(d);
    weight.assign(static_cast<size_t>(sizes.weight) + kGuard, kFill);
    scales.assign(static_cast<size_t>(sizes.scales) + kGuard, kFill);
    zeros.assign(static_cast<size_t>(sizes.zeros) + kGuard, kFill);
    g_idx.assign(static_cast<size_t>(d.k) + kGuard, -77);
  }

  deepgemm_weight_tensors_t view() {
    deepgemm_weight_tensors_t tensors = {};
    tensors.format = declaration.format;
    tensors.in_features = declaration.k;
    tensors.out_features = declaration.n;
    tensors.bits = declaration.bits;
    tensors.group_size = declaration.group_size;
    tensors.shard_offset = declaration.shard_offset;
    tensors.scale_precision = declaration.scale_precision;
    tensors.weight = weight.data();
    tensors.scales = scales.data();
    tensors.zeros = declaration.zeros ? zeros.data() : nullptr;
    tensors.g_idx = declaration.g_idx ? g_idx.data() : nullptr;
    tensors.weight_bytes = static_cast<int64_t>(weight.size() - kGuard);
    tensors.scales_bytes = static_cast<int64_t>(scales.size() - kGuard);
    tensors.zeros_bytes = static_cast<int64_t>(zeros.size() - kGuard);
    return tensors;
  }

  bool guards_untouched() const {
    for (const auto* buffer : {&weight, &scales, &zeros}) {
      for (size_t i = buffer->size() - kGuard; i < buffer->size(); ++i) {
        if ((*buffer)[i] != kFill) return false;
      }
    }
    for (size_t i = static_cast<size_t>(declaration.k); i < g_idx.size(); ++i) {
      if (g_idx[i] != -77) return false;
    }
    return true;
  }

  bool operator==(const TensorBuffers& other) const {
    return weight == other.weight && scales == other.scales && zeros == other.zeros &&
           g_idx == other.g_idx;
  }

  template <class T>
  static void put(std::vector<uint8_t>& buffer, const std::vector<T>& values) {
    ASSERT_EQ(buffer.size(), values.size() * sizeof(T) + kGuard);
    if (!values.empty()) std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
  }

  template <class T>
  static std::vector<T> get(const std::vector<uint8_t>& buffer) {
    std::vector<T> values((buffer.size() - kGuard) / sizeof(T));
    std::memcpy(values.data(), buffer.data(), values.size() * sizeof(T));
    return values;
  }

  Declaration declaration;
  std::vector<uint8_t> weight, scales, zeros;
  std::vector<int32_t> g_idx;
};

inline QuantizedWeights imported(TensorBuffers& buffers) {
  const auto result = import_tensors(buffers.view());
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : QuantizedWeights{};
}

}  // namespace deepgemm::layout
