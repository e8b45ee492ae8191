#include "io/tensor.hpp"

#include <fmt/ranges.h>

#include <limits>

namespace deepgemm::io {
namespace {

constexpr DTypeInfo kDTypes[] = {
    {DType::kF64, "F64", "<f8", 8, PRECISION_FP64},
    {DType::kF32, "F32", "<f4", 4, PRECISION_FP32},
    {DType::kF16, "F16", "<f2", 2, PRECISION_FP16},
    {DType::kBf16, "BF16", nullptr, 2, PRECISION_BF16},
    {DType::kF8E4m3, "F8_E4M3", nullptr, 1, PRECISION_FP8_E4M3},
    {DType::kF8E5m2, "F8_E5M2", nullptr, 1, PRECISION_FP8_E5M2},
    {DType::kI64, "I64", "<i8", 8, PRECISION_DEFAULT},
    {DType::kI32, "I32", "<i4", 4, PRECISION_DEFAULT},
    {DType::kI16, "I16", "<i2", 2, PRECISION_DEFAULT},
    {DType::kI8, "I8", "|i1", 1, PRECISION_INT8},
    {DType::kU8, "U8", "|u1", 1, PRECISION_DEFAULT},
    {DType::kBool, "BOOL", "|b1", 1, PRECISION_DEFAULT},
};

}  // namespace

std::span<const DTypeInfo> all_dtypes() { return kDTypes; }

const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

const DTypeInfo* find_safetensors_dtype(const std::string& name) {
  for (const DTypeInfo& info : kDTypes) {
    if (name == info.safetensors) return &info;
  }
  return nullptr;
}

const DTypeInfo* find_npy_dtype(const std::string& descr) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.npy != nullptr && descr == info.npy) return &info;
  }
  return nullptr;
}

int64_t TensorView::elements() const {
  return static_cast<int64_t>(data.size()) / dtype_info(dtype).bytes;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

base::Result<int64_t> tensor_bytes(const std::string& subject, DType dtype,
                                   std::span<const int64_t> shape) {
  // A zero makes the tensor empty, but does not excuse other sizes that overflow.
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t product = dtype_info(dtype).bytes;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      return base::make_error(DEEPGEMM_ERROR_FORMAT, "{}: shape {} has a negative size", subject,
                              shape_text(shape));
    }
    empty = empty || size == 0;
    if (size > 0 && product > kMax / size) {
      return base::make_error(DEEPGEMM_ERROR_FORMAT, "{}: the product of shape {} overflows",
                              subject, shape_text(shape));
    }
    if (size > 0) product *= size;
  }
  return empty ? 0 : product;
}

}  // namespace deepgemm::io
