#include "layout/quantized_weights.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/formats.hpp"

namespace deepgemm::layout {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

bool is_integer_code(gemm_precision_t precision) {
  return base::is_int4(precision) || precision == PRECISION_INT8;
}

bool is_dense(gemm_precision_t precision) {
  return !is_integer_code(precision) && !base::is_fp8(precision);
}

int symmetric_zero(gemm_precision_t precision) {
  if (base::is_int4(precision)) return 8;
  return precision == PRECISION_INT8 ? 128 : 0;
}

int code_bytes(gemm_precision_t precision) {
  const base::FormatInfo* info = base::find_format(precision);
  return info == nullptr ? 0 : std::max(info->storage_bits / 8, 1);
}

size_t index_of(int64_t row, int64_t cols, int64_t col) {
  return static_cast<size_t>(row * cols + col);
}

int zero_point(const QuantizedWeights& w, int64_t group, int64_t column) {
  if (w.zeros.empty()) return symmetric_zero(w.precision);
  return w.zeros[index_of(group, w.n, column)];
}

base::Error wrong_size(const char* field, size_t size, const char* meaning, int64_t wanted) {
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                          "Quantised weights: {} has {} entries, but {} needs {}.", field, size,
                          meaning, wanted);
}

base::Result<void> check_fields(const QuantizedWeights& w) {
  const base::FormatInfo* info = base::find_format(w.precision);
  if (info == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "Quantised weights: precision {} names no number format.",
                            static_cast<int>(w.precision));
  }
  const int64_t limit = std::numeric_limits<int64_t>::max() / 16;
  if (w.k < 0 || w.n < 0 || (w.n > 0 && w.k > limit / w.n)) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "Quantised weights: {} x {} is negative or too large.", w.k, w.n);
  }
  const int64_t code_size = w.k * w.n * code_bytes(w.precision);
  if (static_cast<int64_t>(w.codes.size()) != code_size) {
    return wrong_size("codes", w.codes.size(), "K x N", code_size);
  }
  if (is_dense(w.precision)) return {};
  if (w.group_size < 1 || w.block_n < 1 || w.group_offset < 0 || w.group_offset >= w.group_size) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "Quantised weights: group_size {} and block_n {} must be 1 or more, and "
        "group_offset {} within a group.",
        w.group_size, w.block_n, w.group_offset);
  }
  return {};
}

base::Result<void> check_groups(const QuantizedWeights& w) {
  const int64_t groups = w.groups();
  if (!w.g_idx.empty() && static_cast<int64_t>(w.g_idx.size()) != w.k) {
    return wrong_size("g_idx", w.g_idx.size(), "K", w.k);
  }
  for (size_t k = 0; k < w.g_idx.size(); ++k) {
    if (w.g_idx[k] < 0 || w.g_idx[k] >= groups) {
      return base::make_error(DEEPGEMM_ERROR_FORMAT,
                              "g_idx[{}] is {}, but there are scales for {} groups, 0 ... {}.", k,
                              w.g_idx[k], groups, groups - 1);
    }
  }
  const int64_t scale_count = groups * ceil_div(w.n, w.block_n);
  if (static_cast<int64_t>(w.scales.size()) != scale_count) {
    return wrong_size("scales", w.scales.size(), "groups x ceil(N / block_n)", scale_count);
  }
  const int64_t zero_count = groups * w.n;
  if (!w.zeros.empty() && static_cast<int64_t>(w.zeros.size()) != zero_count) {
    return wrong_size("zeros", w.zeros.size(), "groups x N", zero_count);
  }
  return {};
}

base::Result<void> check_values(const QuantizedWeights& w) {
  for (size_t i = 0; i < w.scales.size(); ++i) {
    if (!std::isfinite(w.scales[i]) || w.scales[i] < 0) {
      const int64_t cols = ceil_div(w.n, w.block_n);
      return base::make_error(
          DEEPGEMM_ERROR_FORMAT,
          "The scale of group {}, {} {} is {}; scales must be finite and not "
          "negative. The tensor may be damaged or of another type than declared.",
          static_cast<int64_t>(i) / cols, w.block_n == 1 ? "column" : "block",
          static_cast<int64_t>(i) % cols, w.scales[i]);
    }
  }
  if (!base::is_int4(w.precision)) return {};
  const auto too_big = [](uint8_t code) { return code > 15; };
  if (std::ranges::any_of(w.codes, too_big) || std::ranges::any_of(w.zeros, too_big)) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "Quantised weights: 4-bit codes and zero points must be 0 ... 15.");
  }
  return {};
}

base::Result<void> check_outliers(const QuantizedWeights& w) {
  const std::vector<int64_t>& channels = w.outlier_channels;
  if (w.outlier_values.size() != channels.size() * static_cast<size_t>(w.n)) {
    return wrong_size("outlier_values", w.outlier_values.size(), "outlier channels x N",
                      static_cast<int64_t>(channels.size()) * w.n);
  }
  for (size_t i = 0; i < channels.size(); ++i) {
    const bool rising = i == 0 || channels[i - 1] < channels[i];
    if (channels[i] < 0 || channels[i] >= w.k || !rising) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "Quantised weights: outlier_channels[{}] is {}; channels must rise "
                              "strictly within 0 ... {}.",
                              i, channels[i], w.k - 1);
    }
    for (int64_t n = 0; n < w.n && !is_dense(w.precision); ++n) {
      if (w.codes[index_of(channels[i], w.n, n)] != zero_point(w, w.group_of(channels[i]), n)) {
        return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                                "Quantised weights: the code of outlier channel {}, column {} must "
                                "equal its zero point, so that it adds nothing.",
                                channels[i], n);
      }
    }
  }
  return {};
}

// The zero point that all groups and columns share, or -1.
int common_zero(const QuantizedWeights& w) {
  const uint8_t first = w.zeros.front();
  const bool common = std::ranges::all_of(w.zeros, [&](uint8_t zero) { return zero == first; });
  return common ? first : -1;
}

// Mean distance of the codes from their zero points.
double mean_distance(const QuantizedWeights& w) {
  int64_t sum = 0;
  for (int64_t k = 0; k < w.k; ++k) {
    const int64_t group = w.group_of(k);
    for (int64_t n = 0; n < w.n; ++n) {
      sum += int64_t{w.codes[index_of(k, w.n, n)]} - w.zeros[index_of(group, w.n, n)];
    }
  }
  return static_cast<double>(sum) / static_cast<double>(w.k * w.n);
}

}  // namespace

int64_t QuantizedWeights::groups() const {
  if (is_dense(precision) || k == 0) return 0;
  if (g_idx.empty()) return ceil_div(k + group_offset, group_size);
  const int64_t cols = ceil_div(n, block_n);
  return cols == 0 ? int64_t{*std::ranges::max_element(g_idx)} + 1
                   : static_cast<int64_t>(scales.size()) / cols;
}

int64_t QuantizedWeights::group_of(int64_t channel) const {
  if (!g_idx.empty()) return g_idx[static_cast<size_t>(channel)];
  return (channel + group_offset) / group_size;
}

double weight_value(const QuantizedWeights& weights, int64_t channel, int64_t column) {
  const auto& outliers = weights.outlier_channels;
  const auto found = std::ranges::lower_bound(outliers, channel);
  if (found != outliers.end() && *found == channel) {
    const size_t at = index_of(found - outliers.begin(), weights.n, column);
    return static_cast<double>(base::fp16_to_float(weights.outlier_values[at]));
  }
  const int64_t element = channel * weights.n + column;
  if (is_dense(weights.precision)) {
    return base::decode(weights.precision, weights.codes.data(), element);
  }
  const int64_t group = weights.group_of(channel);
  const size_t scale_index =
      index_of(group, ceil_div(weights.n, weights.block_n), column / weights.block_n);
  const double scale = static_cast<double>(weights.scales[scale_index]);
  if (base::is_fp8(weights.precision)) {
    return scale * base::decode(weights.precision, weights.codes.data(), element);
  }
  return scale * (weights.codes[static_cast<size_t>(element)] - zero_point(weights, group, column));
}

base::Result<void> validate(const QuantizedWeights& weights) {
  DEEPGEMM_TRY(check_fields(weights));
  if (is_dense(weights.precision)) {
    if (!weights.scales.empty() || !weights.zeros.empty() || !weights.g_idx.empty()) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "Quantised weights: dense formats have no scales, zeros or g_idx.");
    }
    return check_outliers(weights);
  }
  if (base::is_fp8(weights.precision) && !weights.zeros.empty()) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "Quantised weights: FP8 has no zero points.");
  }
  DEEPGEMM_TRY(check_groups(weights));
  DEEPGEMM_TRY(check_values(weights));
  return check_outliers(weights);
}

std::string suspicious_zeros(const QuantizedWeights& weights) {
  if (weights.zeros.empty() || weights.codes.empty() || !is_integer_code(weights.precision))
    return {};
  const int middle = symmetric_zero(weights.precision);
  const char* remedy =
      "GPTQ v1 stores the zero point less one and v2 stores it as it is: check the declared format";
  const int zero = common_zero(weights);
  if (zero == middle - 1 || zero == middle + 1) {
    return fmt::format("Every zero point is {}, one beside the {} of symmetric weights. {}.", zero,
                       middle, remedy);
  }
  // The weights of a layer average to zero within a few hundredths of a 4-bit step; a mixed-up
  // convention moves the average by a whole one. With 8 bits a step is too small to tell, and with
  // few weights their spread (about 4 steps) hides it.
  constexpr int64_t kEnoughWeights = 4096;
  if (!base::is_int4(weights.precision) || weights.k * weights.n < kEnoughWeights) return {};
  const double mean = mean_distance(weights);
  if (std::abs(mean) < 0.5) return {};
  return fmt::format(
      "The codes lie {:.2f} steps {} their zero points on average, where 0 is usual. {}.",
      std::abs(mean), mean > 0 ? "above" : "below", remedy);
}

}  // namespace deepgemm::layout
