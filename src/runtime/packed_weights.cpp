#include "runtime/packed_weights.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/formats.hpp"
#include "base/log.hpp"
#include "contract/quantize.hpp"
#include "layout/quantized_weights.hpp"
#include "runtime/handle_registry.hpp"
#include "runtime/immortal.hpp"
#include "runtime/launch.hpp"

namespace deepgemm::runtime {
namespace {

HandleRegistry& live_packed() {
  static Immortal<HandleRegistry> registry;
  return registry.get();
}

template <class... Args>
base::Error invalid(fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

const char* format_name(gemm_precision_t precision) {
  const base::FormatInfo* format = base::find_format(precision);
  return format != nullptr ? format->name : "default";
}

// Strides of a DENSE matrix seen as K x N.
struct DenseStrides {
  int64_t k;
  int64_t n;
};

DenseStrides dense_strides(const deepgemm_weight_tensors_t& tensors) {
  if (tensors.transposed) return {tensors.out_features, 1};
  return {1, tensors.in_features};
}

// What packing and unpacking ask of a DENSE matrix alike.
base::Result<void> check_dense(const deepgemm_weight_tensors_t& tensors) {
  for (const int64_t reserved : tensors.reserved) {
    if (reserved != 0) return invalid("tensors.reserved: must be zero, has {}", reserved);
  }
  if (base::find_format(tensors.precision) == nullptr || base::is_int4(tensors.precision)) {
    return invalid(
        "tensors.precision: {} is not the element type of a dense matrix; give "
        "PRECISION_FP64, FP32, FP16, BF16, FP8_E4M3, FP8_E5M2 or INT8",
        static_cast<int>(tensors.precision));
  }
  if (tensors.in_features < 0 || tensors.out_features < 0 ||
      (tensors.out_features > 0 &&
       tensors.in_features > std::numeric_limits<int64_t>::max() / 8 / tensors.out_features)) {
    return invalid("tensors: in_features {} x out_features {} is negative or too large",
                   tensors.in_features, tensors.out_features);
  }
  const int64_t values = tensors.in_features * tensors.out_features;
  if (tensors.weight == nullptr && values > 0) return invalid("tensors.weight: is NULL");
  const int64_t bytes = base::storage_bytes(tensors.precision, values);
  if (tensors.weight_bytes != 0 && tensors.weight_bytes != bytes) {
    return invalid("tensors.weight_bytes: {} given, but {} x {} {} takes {}", tensors.weight_bytes,
                   tensors.in_features, tensors.out_features, format_name(tensors.precision),
                   bytes);
  }
  return {};
}

base::Result<contract::Quantized> quantize_dense(const contract::Contract& contract,
                                                 const deepgemm_weight_tensors_t& tensors) {
  DEEPGEMM_TRY(check_dense(tensors));
  if (tensors.shard_offset < 0) {
    return invalid("tensors.shard_offset: {} is negative", tensors.shard_offset);
  }
  contract::QuantizeOptions options;
  options.precision = contract.b;
  options.group_size = contract.group_size > 0 ? contract.group_size : -1;
  options.symmetric = tensors.symmetric;
  options.outliers = contract.outlier_handling;
  options.outlier_fraction = contract.outlier_fraction;
  options.safe_accumulation = contract.safe_accumulation;
  options.strategy = contract.dequant_strategy;
  if (tensors.channel_importance != nullptr) {
    options.channel_importance = {tensors.channel_importance,
                                  static_cast<size_t>(tensors.in_features)};
  }
  const bool grouped = contract.group_size > 0 && contract.group_size < tensors.in_features;
  options.group_offset = grouped ? tensors.shard_offset % contract.group_size : 0;
  const DenseStrides strides = dense_strides(tensors);
  return contract::quantize_weights(tensors.weight, tensors.precision, tensors.in_features,
                                    tensors.out_features, strides.k, strides.n, options);
}

int64_t count_tiny_scales(const std::vector<float>& scales) {
  const double smallest = base::find_format(PRECISION_FP16)->min_normal;
  return std::count_if(scales.begin(), scales.end(),
                       [&](float scale) { return scale > 0 && scale < smallest; });
}

// Weights of a checkpoint as they are; nothing is rounded.
base::Result<contract::Quantized> import_checkpoint(const deepgemm_weight_tensors_t& tensors) {
  DEEPGEMM_TRY_ASSIGN(weights, layout::import_tensors(tensors));
  const std::string suspicion = layout::suspicious_zeros(weights);
  if (!suspicion.empty())
    base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kPack, "{}", suspicion);
  contract::Quantized imported;
  imported.stats.tiny_scales = count_tiny_scales(weights.scales);
  imported.weights = std::move(weights);
  return imported;
}

base::Result<void> check_fits_plan(const PlanData& plan, const deepgemm_weight_tensors_t& tensors) {
  const intent::Problem& problem = plan.problem();
  if (tensors.in_features != problem.k || tensors.out_features != problem.n) {
    return invalid("tensors: in_features {} x out_features {} must be the plan's K = {} and N = {}",
                   tensors.in_features, tensors.out_features, problem.k, problem.n);
  }
  if (!shares_b(problem)) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "plan: reads {} matrices B, and packed weights hold one; declare the "
        "batch stride of layout_b as GEMM_STRIDE_BROADCAST, or make a plan with "
        "batch_count 1 and launch it once a matrix",
        problem.batch);
  }
  return {};
}

base::Result<void> check_precision(const contract::Contract& contract,
                                   const layout::QuantizedWeights& weights) {
  const bool both_int4 = base::is_int4(weights.precision) && base::is_int4(contract.b);
  if (!both_int4 && weights.precision != contract.b) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "tensors: hold {} weights, the plan reads {}; declare "
                            "numerical_contract.weight_precision as the checkpoint has it",
                            format_name(weights.precision), format_name(contract.b));
  }
  // The proof that sums stay finite takes scales up to the largest FP16 value.
  const double largest = base::find_format(PRECISION_FP16)->max_finite;
  const auto too_large = std::find_if(weights.scales.begin(), weights.scales.end(),
                                      [&](float scale) { return scale > largest; });
  if (contract.safe_accumulation && too_large != weights.scales.end()) {
    return invalid(
        "tensors.scales: {} is above {}, the largest that safe_accumulation can vouch "
        "for; rescale the weights or plan without safe_accumulation",
        *too_large, largest);
  }
  return {};
}

double max_column_abs_sum(const layout::QuantizedWeights& weights) {
  std::vector<double> sums(static_cast<size_t>(weights.n));
  for (int64_t k = 0; k < weights.k; ++k) {
    for (int64_t n = 0; n < weights.n; ++n) {
      sums[static_cast<size_t>(n)] += std::abs(layout::weight_value(weights, k, n));
    }
  }
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

deepgemm_packed_info_t describe(const contract::Quantized& packed,
                                const cpu::PackedPanels& panels) {
  const layout::QuantizedWeights& weights = packed.weights;
  deepgemm_packed_info_t info = {};
  info.in_features = weights.k;
  info.out_features = weights.n;
  info.precision = weights.precision;
  info.group_size = static_cast<int32_t>(weights.group_size);
  info.bytes = static_cast<size_t>(cpu::packed_bytes(panels));
  info.outlier_channels = static_cast<int64_t>(weights.outlier_channels.size());
  info.clamped_values = packed.stats.clamped_values;
  info.tiny_scales = packed.stats.tiny_scales;
  info.max_abs_error = packed.stats.max_abs_error;
  info.rms_error = packed.stats.rms_error;
  info.relative_frobenius_error = packed.stats.relative_frobenius_error;
  info.max_column_abs_sum = max_column_abs_sum(weights);
  return info;
}

}  // namespace

base::Result<deepgemm_packed_weights_t*> pack_weights(const PlanData& plan,
                                                      const deepgemm_weight_tensors_t& tensors) {
  DEEPGEMM_TRY(require_launchable(plan));
  if (!plan.device->shares_host_memory()) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "plan: kernels of {} read B as it is declared, and take no packed "
                            "weights yet; copy the matrix to the device and pass its address",
                            plan.device->profile().name);
  }
  DEEPGEMM_TRY(check_fits_plan(plan, tensors));
  const contract::Contract& contract = plan.problem().contract;
  DEEPGEMM_TRY_ASSIGN(packed, tensors.format == WEIGHT_FORMAT_DENSE
                                  ? quantize_dense(contract, tensors)
                                  : import_checkpoint(tensors));
  DEEPGEMM_TRY(check_precision(contract, packed.weights));
  const contract::ErrorBound& bound = plan.choice().certificate.bound;
  const bool skips = bound.skip_relative > 0 || bound.skip_absolute > 0;
  DEEPGEMM_TRY_ASSIGN(panels, cpu::pack(packed.weights, skips));
  auto handle = std::make_unique<deepgemm_packed_weights_t>();
  handle->info = describe(packed, *panels);
  handle->panels = std::move(panels);
  live_packed().add(handle.get());
  return handle.release();
}

base::Result<void> unpack_weights(const deepgemm_packed_weights_t& packed,
                                  const deepgemm_weight_tensors_t& tensors) {
  if (tensors.in_features != packed.info.in_features ||
      tensors.out_features != packed.info.out_features) {
    return invalid(
        "tensors: in_features {} x out_features {} must be those of the packed weights, "
        "{} x {}",
        tensors.in_features, tensors.out_features, packed.info.in_features,
        packed.info.out_features);
  }
  const layout::QuantizedWeights weights = cpu::unpack(*packed.panels);
  if (tensors.format != WEIGHT_FORMAT_DENSE) return layout::export_tensors(weights, tensors);
  DEEPGEMM_TRY(check_dense(tensors));
  const DenseStrides strides = dense_strides(tensors);
  for (int64_t k = 0; k < weights.k; ++k) {
    for (int64_t n = 0; n < weights.n; ++n) {
      base::encode(tensors.precision, tensors.weight, k * strides.k + n * strides.n,
                   layout::weight_value(weights, k, n));
    }
  }
  return {};
}

const deepgemm_packed_weights_t* find_packed(const void* pointer) {
  if (!live_packed().contains(pointer)) return nullptr;
  return static_cast<const deepgemm_packed_weights_t*>(pointer);
}

base::Result<const deepgemm_packed_weights_t*> require_packed(const void* pointer) {
  if (pointer == nullptr) {
    return invalid("packed: is NULL; make packed weights with deepgemm_pack_weights");
  }
  if (const auto* packed = find_packed(pointer)) return packed;
  return invalid("packed: {} is no live deepgemm_packed_weights_t (destroyed, or another pointer)",
                 pointer);
}

base::Result<void> destroy_packed(deepgemm_packed_weights_t* packed) {
  DEEPGEMM_TRY(require_packed(packed));
  if (live_packed().remove(packed)) delete packed;
  return {};
}

}  // namespace deepgemm::runtime
