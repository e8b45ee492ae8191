// Tensors as files hold them: element types and views into mapped memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::io {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBf16,
  kF8E4m3,
  kF8E5m2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
};

struct DTypeInfo {
  DType dtype;
  const char* safetensors;     // "F16"
  const char* npy;             // "<f2"; nullptr: .npy has no such type
  int64_t bytes;               // of one element
  gemm_precision_t precision;  // PRECISION_DEFAULT: no format of matrix products
};

std::span<const DTypeInfo> all_dtypes();
const DTypeInfo& dtype_info(DType dtype);
const DTypeInfo* find_safetensors_dtype(const std::string& name);
const DTypeInfo* find_npy_dtype(const std::string& descr);

// A tensor in memory that someone else owns. Little-endian, contiguous. Element i need not be
// aligned to its size: files made by other programs may start their data anywhere.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // slowest dimension first
  bool column_major = false;   // Fortran order; only .npy files have it
  std::span<const std::byte> data;

  int64_t elements() const;
};

// "[64, 576]"
std::string shape_text(std::span<const int64_t> shape);

// Bytes of a tensor; FORMAT error, starting with `subject`, when a size is negative or the product
// does not fit 63 bits.
base::Result<int64_t> tensor_bytes(const std::string& subject, DType dtype,
                                   std::span<const int64_t> shape);

}  // namespace deepgemm::io
