#include "contract/quantize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/formats.hpp"

namespace deepgemm::contract {
namespace {

using base::make_error;
using base::Result;
using layout::QuantizedWeights;

constexpr auto kInvalid = DEEPGEMM_ERROR_INVALID_ARGUMENT;
constexpr int64_t kBlock = 128;
constexpr double kTinyScale = 0x1p-14;  // smallest normal FP16
constexpr double kPercentile = 0.99;
constexpr double kMaxFp16 = 65504;

size_t index_of(int64_t row, int64_t columns, int64_t column) {
  return static_cast<size_t>(row * columns + column);
}

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Nearest integer, ties to even, for magnitudes below 2^51; without a call on any processor.
double nearest(double value) { return (value + 0x1.8p52) - 0x1.8p52; }

// Dense weights as double, [k][n].
struct Dense {
  int64_t k;
  int64_t n;
  std::vector<double> values;

  const double* row(int64_t channel) const { return values.data() + channel * n; }
  double* row(int64_t channel) { return values.data() + channel * n; }
};

// Reads in square tiles: either stride may be the small one.
Dense load(const void* dense, gemm_precision_t precision, int64_t k, int64_t n, int64_t k_stride,
           int64_t n_stride) {
  constexpr int64_t kTile = 32;
  Dense loaded{k, n, std::vector<double>(static_cast<size_t>(k * n))};
  for (int64_t k0 = 0; k0 < k; k0 += kTile) {
    for (int64_t n0 = 0; n0 < n; n0 += kTile) {
      for (int64_t channel = k0; channel < std::min(k0 + kTile, k); ++channel) {
        for (int64_t column = n0; column < std::min(n0 + kTile, n); ++column) {
          loaded.values[index_of(channel, n, column)] =
              base::decode(precision, dense, channel * k_stride + column * n_stride);
        }
      }
    }
  }
  return loaded;
}

Result<void> check_finite(const Dense& dense) {
  for (size_t i = 0; i < dense.values.size(); ++i) {
    if (std::isfinite(dense.values[i])) continue;
    const auto at = static_cast<int64_t>(i);
    return make_error(kInvalid,
                      "weight at k = {}, n = {} is {}: only finite weights can be quantised; check "
                      "the checkpoint and its declared format",
                      at / dense.n, at % dense.n, dense.values[i]);
  }
  return {};
}

Result<void> check_options(int64_t k, int64_t n, const QuantizeOptions& options) {
  if (k < 0 || n < 0)
    return make_error(kInvalid, "weights are {} x {}: sizes must not be negative", k, n);
  if (base::find_format(options.precision) == nullptr) {
    return make_error(kInvalid, "precision {} names no number format",
                      static_cast<int>(options.precision));
  }
  // An empty K counts as one group of one channel, as in resolve().
  const std::array<int64_t, 7> legal = {-1, 16, 32, 64, 128, 256, std::max<int64_t>(k, 1)};
  if (std::ranges::count(legal, options.group_size) == 0) {
    return make_error(
        kInvalid, "group_size is {}: known sizes are -1 (whole K), 16, 32, 64, 128, 256 and K ({})",
        options.group_size, k);
  }
  if (options.group_offset < 0) {
    return make_error(kInvalid, "group_offset is {}: it must not be negative",
                      options.group_offset);
  }
  if (options.outliers != OUTLIER_NONE && !base::is_int4(options.precision)) {
    return make_error(kInvalid, "outlier handling applies to INT4 weights only, precision is {}",
                      base::find_format(options.precision)->name);
  }
  if (!(options.outlier_fraction >= 0 && options.outlier_fraction <= 0.5)) {
    return make_error(kInvalid, "outlier_fraction is {}: it must be between 0 and 0.5",
                      options.outlier_fraction);
  }
  const auto importance = static_cast<int64_t>(options.channel_importance.size());
  if (importance != 0 && importance != k) {
    return make_error(kInvalid,
                      "channel_importance has {} values: it must have one per channel, {}",
                      importance, k);
  }
  for (const float value : options.channel_importance) {
    if (!std::isnan(value)) continue;
    return make_error(kInvalid, "channel_importance holds NaN: give a number for each channel");
  }
  if (base::is_int4(options.precision) && options.strategy == DEQUANT_STRATEGY_BLOCK_128) {
    return make_error(kInvalid, "BLOCK_128 with INT4: scales lie along K only; use PER_GROUP");
  }
  return {};
}

// Group size and block of columns that share a scale.
void set_granularity(const QuantizeOptions& options, QuantizedWeights& weights) {
  gemm_dequant_strategy_t strategy = options.strategy;
  if (strategy == DEQUANT_STRATEGY_DEFAULT) {
    strategy = base::is_int4(options.precision)  ? DEQUANT_STRATEGY_PER_GROUP
               : base::is_fp8(options.precision) ? DEQUANT_STRATEGY_BLOCK_128
                                                 : DEQUANT_STRATEGY_PER_CHANNEL;
  }
  const int64_t whole = std::max<int64_t>(weights.k, 1);
  weights.group_size = whole;
  weights.block_n = 1;
  int64_t group = 0;
  if (strategy == DEQUANT_STRATEGY_PER_GROUP && options.group_size != -1)
    group = options.group_size;
  if (strategy == DEQUANT_STRATEGY_PER_TENSOR) weights.block_n = std::max<int64_t>(weights.n, 1);
  if (strategy == DEQUANT_STRATEGY_BLOCK_128) {
    group = kBlock;
    weights.block_n = kBlock;
  }
  if (group == 0) return;
  weights.group_offset = options.group_offset % group;
  const bool one_group = weights.group_offset + weights.k <= group;
  const bool block = strategy == DEQUANT_STRATEGY_BLOCK_128;
  if (one_group && !block) {
    weights.group_offset = 0;  // the shard lies in one group: as if it were the whole
  } else {
    weights.group_size = group;
  }
}

// Channels to keep in FP16: largest importance first, else largest weight; ties go to the lower
// index.
std::vector<int64_t> outlier_channels(const Dense& dense, const QuantizeOptions& options) {
  std::vector<double> largest(static_cast<size_t>(dense.k));
  std::vector<int64_t> candidates;
  for (int64_t channel = 0; channel < dense.k; ++channel) {
    double& absmax = largest[static_cast<size_t>(channel)];
    for (int64_t column = 0; column < dense.n; ++column) {
      absmax = std::max(absmax, std::abs(dense.row(channel)[column]));
    }
    if (absmax <= kMaxFp16) candidates.push_back(channel);
  }
  const auto weight_of = [&](int64_t channel) {
    const auto at = static_cast<size_t>(channel);
    return options.channel_importance.empty() ? largest[at]
                                              : static_cast<double>(options.channel_importance[at]);
  };
  const auto wanted = std::llround(options.outlier_fraction * static_cast<double>(dense.k));
  const auto count = std::min(static_cast<size_t>(wanted), candidates.size());
  std::ranges::stable_sort(candidates,
                           [&](int64_t x, int64_t y) { return weight_of(x) > weight_of(y); });
  candidates.resize(count);
  std::ranges::sort(candidates);
  return candidates;
}

// One scale's part of the matrix.
struct Cell {
  double low = 0;  // includes 0
  double high = 0;
  double clamp = std::numeric_limits<double>::infinity();
  double scale = 1;
  int zero = 0;
};

// Smallest FP16 (or FP32) number that is not below `value` > 0.
double round_up(double value, gemm_precision_t precision) {
  double rounded = base::round_to(precision, value);
  if (rounded >= value) return rounded;
  if (precision == PRECISION_FP32) {
    return std::nextafter(static_cast<float>(rounded), std::numeric_limits<float>::infinity());
  }
  const auto bits = static_cast<uint16_t>(base::double_to_fp16(rounded) + 1);
  return base::fp16_to_float(bits);
}

class Quantizer {
 public:
  Quantizer(const Dense& dense, const QuantizeOptions& options) : dense_(dense), options_(options) {
    weights_.k = dense.k;
    weights_.n = dense.n;
    weights_.precision = options.precision;
    int4_ = base::is_int4(options.precision);
    integer_ = int4_ || options.precision == PRECISION_INT8;
    asymmetric_ = int4_ && !options.symmetric;
  }

  Result<Quantized> run() {
    set_granularity(options_, weights_);
    blocks_ = divide_up(weights_.n, weights_.block_n);
    cells_.resize(static_cast<size_t>(weights_.groups() * blocks_));
    for (int64_t column = 0; column < dense_.n; ++column) {
      block_of_.push_back(column / weights_.block_n);
    }
    is_outlier_.resize(static_cast<size_t>(dense_.k));
    if (options_.outliers == OUTLIER_FP16_CHANNEL) keep_outliers();
    if (options_.outliers == OUTLIER_CLAMP_TO_99TH_PERCENTILE) find_percentiles();
    find_ranges();
    DEEPGEMM_TRY(choose_scales());
    write_codes();
    return Quantized{std::move(weights_), stats_};
  }

 private:
  Cell& cell(int64_t group, int64_t column) {
    return cells_[index_of(group, blocks_, block_of_[static_cast<size_t>(column)])];
  }

  void keep_outliers() {
    weights_.outlier_channels = outlier_channels(dense_, options_);
    for (const int64_t channel : weights_.outlier_channels) {
      is_outlier_[static_cast<size_t>(channel)] = true;
      for (int64_t column = 0; column < dense_.n; ++column) {
        weights_.outlier_values.push_back(base::double_to_fp16(dense_.row(channel)[column]));
      }
    }
  }

  // The value of rank ceil(0.99 count) among the magnitudes of a cell: below 100 values it is the
  // largest, so nothing is clamped.
  void find_percentiles() {
    std::vector<double> magnitudes;
    int64_t first = 0;
    for (int64_t group = 0; group < weights_.groups(); ++group) {
      int64_t last = first;
      while (last < dense_.k && weights_.group_of(last) == group) ++last;
      for (int64_t block = 0; block < blocks_; ++block) {
        const int64_t column = block * weights_.block_n;
        const int64_t columns = std::min(weights_.block_n, dense_.n - column);
        magnitudes.clear();
        for (int64_t channel = first; channel < last; ++channel) {
          const double* row = dense_.row(channel) + column;
          for (int64_t i = 0; i < columns; ++i) magnitudes.push_back(std::abs(row[i]));
        }
        const double rank = std::ceil(kPercentile * static_cast<double>(magnitudes.size()));
        const auto nth = magnitudes.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
        std::nth_element(magnitudes.begin(), nth, magnitudes.end());
        cells_[index_of(group, blocks_, block)].clamp = *nth;
      }
      first = last;
    }
  }

  void find_ranges() {
    for (int64_t channel = 0; channel < dense_.k; ++channel) {
      if (is_outlier_[static_cast<size_t>(channel)]) continue;
      const int64_t group = weights_.group_of(channel);
      const double* row = dense_.row(channel);
      for (int64_t column = 0; column < dense_.n; ++column) {
        Cell& range = cell(group, column);
        const double value = std::clamp(row[column], -range.clamp, range.clamp);
        range.low = std::min(range.low, value);
        range.high = std::max(range.high, value);
      }
    }
  }

  // Codes are computed with the scale that is stored; rounding it up keeps every value in range.
  Result<void> choose_scales() {
    const double levels = int4_      ? (asymmetric_ ? 15 : 7)
                          : integer_ ? 127
                                     : base::find_format(options_.precision)->max_finite;
    weights_.scale_precision = int4_ ? PRECISION_FP16 : PRECISION_FP32;
    weights_.scales.reserve(cells_.size());
    for (Cell& range : cells_) {
      const double span = asymmetric_ ? range.high - range.low : std::max(range.high, -range.low);
      double scale = span > 0 ? span / levels : 1;
      if (span > 0) {
        const bool tiny = int4_ && scale < kTinyScale;
        stats_.tiny_scales += tiny ? 1 : 0;
        const bool wide = !int4_ || scale > kMaxFp16 || (tiny && options_.safe_accumulation);
        if (wide) weights_.scale_precision = PRECISION_FP32;
        scale = round_up(scale, wide ? PRECISION_FP32 : PRECISION_FP16);
      }
      if (!std::isfinite(scale)) {
        return make_error(
            kInvalid,
            "weights reach {:.6g}, which is too large for an FP32 scale: divide them by "
            "a power of two first",
            std::max(range.high, -range.low));
      }
      range.scale = scale;
      weights_.scales.push_back(static_cast<float>(scale));
      range.zero = asymmetric_
                       ? static_cast<int>(std::clamp(nearest(-range.low / scale), 0.0, 15.0))
                   : int4_    ? 8
                   : integer_ ? 128
                              : 0;
    }
    if (asymmetric_) write_zeros();
    return {};
  }

  void write_zeros() {
    weights_.zeros.reserve(static_cast<size_t>(weights_.groups() * weights_.n));
    for (int64_t group = 0; group < weights_.groups(); ++group) {
      for (int64_t column = 0; column < weights_.n; ++column) {
        weights_.zeros.push_back(static_cast<uint8_t>(cell(group, column).zero));
      }
    }
  }

  void write_codes() {
    const double last = int4_ ? 15 : 255;
    weights_.codes.resize(dense_.values.size());
    for (int64_t channel = 0; channel < dense_.k; ++channel) {
      const int64_t group = weights_.group_of(channel);
      const double* row = dense_.row(channel);
      uint8_t* codes = weights_.codes.data() + channel * dense_.n;
      const bool outlier = is_outlier_[static_cast<size_t>(channel)];
      for (int64_t column = 0; column < dense_.n; ++column) {
        const Cell& range = cell(group, column);
        if (outlier) {
          codes[column] = static_cast<uint8_t>(range.zero);
          continue;
        }
        const double value = std::clamp(row[column], -range.clamp, range.clamp);
        stats_.clamped_values += value != row[column] ? 1 : 0;
        const double steps = value / range.scale;
        if (integer_) {
          codes[column] = static_cast<uint8_t>(std::clamp(nearest(steps) + range.zero, 0.0, last));
        } else {
          codes[column] = options_.precision == PRECISION_FP8_E4M3 ? base::double_to_e4m3(steps)
                                                                   : base::double_to_e5m2(steps);
        }
      }
    }
  }

  const Dense& dense_;
  const QuantizeOptions& options_;
  QuantizedWeights weights_;
  QuantizeStats stats_;
  bool int4_ = false;
  bool integer_ = false;
  bool asymmetric_ = false;
  int64_t blocks_ = 0;
  std::vector<Cell> cells_;        // [groups][blocks]
  std::vector<int64_t> block_of_;  // of each column
  std::vector<bool> is_outlier_;
};

// Float formats: each value rounded once.
Result<Quantized> round_dense(const Dense& dense, const QuantizeOptions& options) {
  Quantized rounded;
  QuantizedWeights& weights = rounded.weights;
  weights.k = dense.k;
  weights.n = dense.n;
  weights.precision = options.precision;
  weights.group_size = std::max<int64_t>(dense.k, 1);
  const auto count = static_cast<int64_t>(dense.values.size());
  weights.codes.resize(static_cast<size_t>(base::storage_bytes(options.precision, count)));
  for (int64_t i = 0; i < count; ++i) {
    const double value = dense.values[static_cast<size_t>(i)];
    base::encode(options.precision, weights.codes.data(), i, value);
    if (!std::isfinite(base::decode(options.precision, weights.codes.data(), i))) {
      const base::FormatInfo& format = *base::find_format(options.precision);
      return make_error(kInvalid,
                        "weight at k = {}, n = {} is {:.6g}: {} holds values up to {:.6g}; use a "
                        "format of larger range",
                        i / dense.n, i % dense.n, value, format.name, format.max_finite);
    }
  }
  return rounded;
}

// Decodes one channel; the scales of a channel are those of its group.
void decode_channel(const QuantizedWeights& weights, int64_t channel, double* values) {
  const bool int4 = base::is_int4(weights.precision);
  const bool e4m3 = weights.precision == PRECISION_FP8_E4M3;
  const bool e5m2 = weights.precision == PRECISION_FP8_E5M2;
  const bool scaled = int4 || e4m3 || e5m2 || weights.precision == PRECISION_INT8;
  if (!scaled || std::ranges::binary_search(weights.outlier_channels, channel)) {
    for (int64_t column = 0; column < weights.n; ++column) {
      values[column] = layout::weight_value(weights, channel, column);
    }
    return;
  }
  const int64_t group = weights.group_of(channel);
  const float* scales = weights.scales.data() + group * divide_up(weights.n, weights.block_n);
  const uint8_t* zeros = weights.zeros.empty() ? nullptr : weights.zeros.data() + group * weights.n;
  const uint8_t* codes = weights.codes.data() + channel * weights.n;
  const int symmetric = int4 ? 8 : 128;
  for (int64_t first = 0; first < weights.n; first += weights.block_n) {
    const auto scale = static_cast<double>(*scales++);
    const int64_t last = std::min(first + weights.block_n, weights.n);
    for (int64_t column = first; column < last; ++column) {
      const uint8_t code = codes[column];
      const double steps = e4m3   ? static_cast<double>(base::e4m3_to_float(code))
                           : e5m2 ? static_cast<double>(base::e5m2_to_float(code))
                                  : code - (zeros != nullptr ? zeros[column] : symmetric);
      values[column] = scale * steps;
    }
  }
}

// FP32 scale of activations. NaN when one of them is not finite, so that every result that depends
// on them is NaN.
double activation_scale(std::span<const float> values, double levels) {
  float largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(value));
  }
  if (largest == 0) return 1;
  return round_up(static_cast<double>(largest) / levels, PRECISION_FP32);
}

QuantizeStats error_against(const QuantizedWeights& weights, const Dense& dense) {
  QuantizeStats stats;
  double error_squares = 0, squares = 0;
  std::vector<double> values(static_cast<size_t>(dense.n));
  for (int64_t channel = 0; channel < dense.k; ++channel) {
    decode_channel(weights, channel, values.data());
    for (int64_t column = 0; column < dense.n; ++column) {
      const double exact = dense.row(channel)[column];
      const double error = std::abs(values[static_cast<size_t>(column)] - exact);
      stats.max_abs_error = std::max(stats.max_abs_error, error);
      error_squares += error * error;
      squares += exact * exact;
    }
  }
  if (!dense.values.empty()) {
    stats.rms_error = std::sqrt(error_squares / static_cast<double>(dense.values.size()));
  }
  if (squares > 0) stats.relative_frobenius_error = std::sqrt(error_squares / squares);
  return stats;
}

}  // namespace

Result<Quantized> quantize_weights(const void* dense, gemm_precision_t precision, int64_t k,
                                   int64_t n, int64_t k_stride, int64_t n_stride,
                                   const QuantizeOptions& options) {
  DEEPGEMM_TRY(check_options(k, n, options));
  const Dense loaded = load(dense, precision, k, n, k_stride, n_stride);
  DEEPGEMM_TRY(check_finite(loaded));
  const bool scaled =
      base::find_format(options.precision)->is_integer || base::is_fp8(options.precision);
  auto result = scaled ? Quantizer(loaded, options).run() : round_dense(loaded, options);
  if (!result.ok()) return result.error();
  const QuantizeStats error = error_against(result->weights, loaded);
  result->stats.max_abs_error = error.max_abs_error;
  result->stats.rms_error = error.rms_error;
  result->stats.relative_frobenius_error = error.relative_frobenius_error;
  return result;
}

QuantizeStats representation_error(const layout::QuantizedWeights& weights, const void* dense,
                                   gemm_precision_t precision, int64_t k_stride, int64_t n_stride) {
  return error_against(weights, load(dense, precision, weights.k, weights.n, k_stride, n_stride));
}

void quantize_rows_int8(std::span<const float> values, int64_t rows, int64_t k, int8_t* codes,
                        float* scales) {
  for (int64_t row = 0; row < rows; ++row) {
    const auto from = values.subspan(static_cast<size_t>(row * k), static_cast<size_t>(k));
    const double scale = activation_scale(from, 127);
    scales[row] = static_cast<float>(scale);
    for (const float value : from) {
      const double steps = static_cast<double>(value) / scale;
      *codes++ = std::isnan(scale) ? int8_t{0} : static_cast<int8_t>(nearest(steps));
    }
  }
}

void quantize_blocks_fp8(std::span<const float> values, int64_t rows, int64_t k, uint8_t* codes,
                         float* scales) {
  const double levels = base::find_format(PRECISION_FP8_E4M3)->max_finite;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t first = 0; first < k; first += kBlock) {
      const auto from = values.subspan(static_cast<size_t>(row * k + first),
                                       static_cast<size_t>(std::min(kBlock, k - first)));
      const double scale = activation_scale(from, levels);
      *scales++ = static_cast<float>(scale);
      for (const float value : from) {
        const double steps = static_cast<double>(value) / scale;
        *codes++ = std::isnan(scale) ? uint8_t{0} : base::double_to_e4m3(steps);
      }
    }
  }
}

}  // namespace deepgemm::contract
