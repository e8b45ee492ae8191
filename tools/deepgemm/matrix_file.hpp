// Matrices in files: `weights.safetensors:tensor.name` or `x.npy`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "deepgemm/product.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace deepgemm::cli {

// A matrix as a file holds it; the view lives as long as this object.
struct MatrixFile {
  std::shared_ptr<const void> file;  // keeps the mapping
  io::TensorView tensor;
  std::string name;  // as given
  gemm_precision_t precision = PRECISION_DEFAULT;
  int64_t rows = 0, cols = 0;

  // Every element, row-major. Exact.
  std::vector<double> values() const;
};

// A row-major matrix of rows x cols with both exchanged.
std::vector<double> transposed(const std::vector<double>& matrix, int64_t rows, int64_t cols);

// The tensor of an open safetensors file; when there is none of this name the error lists the
// nearest.
base::Result<io::TensorView> find_tensor(const io::SafetensorsFile& file, const std::string& path,
                                         const std::string& name);

// Opens a file and takes a matrix from it: two dimensions, or one as a single row, of a type that
// products take. Errors are file problems and say what to do.
base::Result<MatrixFile> load_matrix(const std::string& specification);
base::Result<MatrixFile> as_matrix(const io::TensorView& tensor, const std::string& name);

// Writes rows x cols values stored as `precision`, row-major: .npy or .safetensors (tensor "C") by
// the ending of the path.
base::Result<void> save_matrix(const std::string& path, gemm_precision_t precision, int64_t rows,
                               int64_t cols, const std::vector<double>& values);

}  // namespace deepgemm::cli
