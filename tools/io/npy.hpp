// The .npy format of NumPy, versions 1 to 3.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/files.hpp"
#include "base/result.hpp"
#include "io/tensor.hpp"

namespace deepgemm::io {

constexpr size_t kMaxNpyHeader = 1 << 16;  // bytes; headers of plain arrays take about 128

// Reads a whole file that lies in memory; the view lives as long as `file`. FORMAT errors start
// with `subject`; big-endian, object and structured arrays are refused by name.
base::Result<TensorView> parse_npy(std::span<const std::byte> file, const std::string& subject);

// A mapped file and its array. Immutable; the view lives as long as this object.
class NpyFile {
 public:
  static base::Result<NpyFile> open(const std::string& path);

  const TensorView& tensor() const { return tensor_; }

 private:
  NpyFile(base::MappedFile file, TensorView tensor)
      : file_(std::move(file)), tensor_(std::move(tensor)) {}

  base::MappedFile file_;
  TensorView tensor_;
};

// Writes version 1.0. INVALID_ARGUMENT for types that .npy does not have (BF16, FP8).
base::Result<void> write_npy(const std::string& path, const TensorView& tensor);

}  // namespace deepgemm::io
