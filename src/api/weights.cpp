// "Weights" of deepgemm.h.
#include "api/guard.hpp"
#include "deepgemm/deepgemm.h"
#include "runtime/layouts.hpp"
#include "runtime/packed_weights.hpp"
#include "runtime/plan_handle.hpp"

using deepgemm::api::guard;
using deepgemm::api::require;
using deepgemm::api::require_known;
using Result = deepgemm::base::Result<void>;
namespace runtime = deepgemm::runtime;

static Result check_tensors(const deepgemm_weight_tensors_t* tensors) {
  DEEPGEMM_TRY(require(tensors, "tensors"));
  DEEPGEMM_TRY(require_known(tensors->format, WEIGHT_FORMAT_INT8_CHANNEL, "tensors.format"));
  DEEPGEMM_TRY(require_known(tensors->precision, PRECISION_INT4_GPTQ, "tensors.precision"));
  return require_known(tensors->scale_precision, PRECISION_INT4_GPTQ, "tensors.scale_precision");
}

deepgemm_status_t deepgemm_pack_weights(deepgemm_packed_weights_t** packed, const gemm_plan_t* plan,
                                        const deepgemm_weight_tensors_t* tensors) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(packed, "packed"));
    *packed = nullptr;
    DEEPGEMM_TRY_ASSIGN(handle, runtime::find_plan(plan));
    DEEPGEMM_TRY(check_tensors(tensors));
    DEEPGEMM_TRY_ASSIGN(weights, runtime::pack_weights(handle->data(), *tensors));
    *packed = weights;
    return {};
  });
}

deepgemm_status_t deepgemm_unpack_weights(const deepgemm_packed_weights_t* packed,
                                          const deepgemm_weight_tensors_t* tensors) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY_ASSIGN(weights, runtime::require_packed(packed));
    DEEPGEMM_TRY(check_tensors(tensors));
    return runtime::unpack_weights(*weights, *tensors);
  });
}

deepgemm_status_t deepgemm_get_packed_info(const deepgemm_packed_weights_t* packed,
                                           deepgemm_packed_info_t* info) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY_ASSIGN(weights, runtime::require_packed(packed));
    DEEPGEMM_TRY(require(info, "info"));
    *info = weights->info;
    return {};
  });
}

deepgemm_status_t deepgemm_destroy_packed_weights(deepgemm_packed_weights_t** packed) {
  return guard([&]() -> Result {
    if (packed == nullptr || *packed == nullptr) return {};
    DEEPGEMM_TRY(runtime::destroy_packed(*packed));
    *packed = nullptr;
    return {};
  });
}

deepgemm_status_t deepgemm_convert_layout(void* destination,
                                          const gemm_layout_t* destination_layout,
                                          const void* source, const gemm_layout_t* source_layout,
                                          gemm_precision_t precision) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(destination_layout, "destination_layout"));
    DEEPGEMM_TRY(require(source_layout, "source_layout"));
    DEEPGEMM_TRY(require_known(precision, PRECISION_INT4_GPTQ, "precision"));
    return runtime::convert_layout(destination, *destination_layout, source, *source_layout,
                                   precision);
  });
}

deepgemm_status_t deepgemm_layout_bytes(const gemm_layout_t* layout, gemm_precision_t precision,
                                        size_t* bytes) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(layout, "layout"));
    DEEPGEMM_TRY(require(bytes, "bytes"));
    DEEPGEMM_TRY(require_known(precision, PRECISION_INT4_GPTQ, "precision"));
    DEEPGEMM_TRY_ASSIGN(size, runtime::layout_bytes(*layout, precision));
    *bytes = size;
    return {};
  });
}
