#include "deepgemm/matrix_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/formats.hpp"
#include "intent/words.hpp"

namespace deepgemm::cli {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kNpy = ".npy";

template <class... Args>
base::Error file_error(fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_FORMAT, format, std::forward<Args>(args)...);
}

// The names nearest to `wanted`, best first.
std::vector<std::string> nearest_names(const io::SafetensorsContents& contents,
                                       const std::string& wanted) {
  constexpr size_t kShown = 3;
  std::vector<intent::Word> words;
  for (const auto& [name, tensor] : contents.tensors) words.push_back({0, name.c_str()});
  std::vector<std::string> nearest;
  while (nearest.size() < kShown && !words.empty()) {
    nearest.push_back(intent::nearest_word(words, wanted));
    std::erase_if(words, [&](const intent::Word& word) { return nearest.back() == word.name; });
  }
  return nearest;
}

base::Result<MatrixFile> load_npy(const std::string& path) {
  DEEPGEMM_TRY_ASSIGN(file, io::NpyFile::open(path));
  const auto shared = std::make_shared<io::NpyFile>(std::move(file));
  DEEPGEMM_TRY_ASSIGN(matrix, as_matrix(shared->tensor(), path));
  matrix.file = shared;
  return std::move(matrix);
}

base::Result<MatrixFile> load_safetensors(const std::string& path, const std::string& name,
                                          const std::string& specification) {
  DEEPGEMM_TRY_ASSIGN(file, io::SafetensorsFile::open(path));
  const auto shared = std::make_shared<io::SafetensorsFile>(std::move(file));
  DEEPGEMM_TRY_ASSIGN(tensor, find_tensor(*shared, path, name));
  DEEPGEMM_TRY_ASSIGN(matrix, as_matrix(tensor, specification));
  matrix.file = shared;
  return std::move(matrix);
}

}  // namespace

std::vector<double> MatrixFile::values() const {
  std::vector<double> values(static_cast<size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t stored = tensor.column_major ? col * rows + row : row * cols + col;
      values[static_cast<size_t>(row * cols + col)] =
          base::decode(precision, tensor.data.data(), stored);
    }
  }
  return values;
}

std::vector<double> transposed(const std::vector<double>& matrix, int64_t rows, int64_t cols) {
  std::vector<double> result(matrix.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      result[static_cast<size_t>(col * rows + row)] = matrix[static_cast<size_t>(row * cols + col)];
    }
  }
  return result;
}

base::Result<io::TensorView> find_tensor(const io::SafetensorsFile& file, const std::string& path,
                                         const std::string& name) {
  const auto& tensors = file.contents().tensors;
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  return file_error("{} has no tensor \"{}\"; the nearest of its {} names are: {}", path, name,
                    tensors.size(), fmt::join(nearest_names(file.contents(), name), ", "));
}

base::Result<MatrixFile> as_matrix(const io::TensorView& tensor, const std::string& name) {
  const io::DTypeInfo& info = io::dtype_info(tensor.dtype);
  if (info.precision == PRECISION_DEFAULT) {
    return file_error(
        "{} holds {}, which no product takes; use F64, F32, F16, BF16, F8_E4M3, F8_E5M2 "
        "or I8",
        name, info.safetensors);
  }
  if (tensor.shape.empty() || tensor.shape.size() > 2) {
    return file_error("{} has shape {}; a matrix has two dimensions", name,
                      io::shape_text(tensor.shape));
  }
  MatrixFile matrix;
  matrix.tensor = tensor;
  matrix.name = name;
  matrix.precision = info.precision;
  matrix.rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  matrix.cols = tensor.shape.back();
  return matrix;
}

base::Result<MatrixFile> load_matrix(const std::string& specification) {
  if (specification.ends_with(kNpy)) return load_npy(specification);
  const size_t at = specification.rfind(kSafetensors);
  if (at == std::string::npos) {
    return file_error("{} is neither <file>.npy nor <file>.safetensors:<tensor>", specification);
  }
  const size_t end = at + kSafetensors.size();
  const std::string name =
      end < specification.size() && specification[end] == ':' ? specification.substr(end + 1) : "";
  return load_safetensors(specification.substr(0, end), name, specification);
}

base::Result<void> save_matrix(const std::string& path, gemm_precision_t precision, int64_t rows,
                               int64_t cols, const std::vector<double>& values) {
  io::TensorView tensor;
  for (const io::DTypeInfo& info : io::all_dtypes()) {
    if (info.precision == precision) tensor.dtype = info.dtype;
  }
  const int64_t count = rows * cols;
  const Buffer buffer(base::storage_bytes(precision, count));
  for (int64_t i = 0; i < count; ++i) {
    base::encode(precision, buffer.data(), i, values[static_cast<size_t>(i)]);
  }
  tensor.shape = {rows, cols};
  tensor.data = buffer.memory();
  if (path.ends_with(kNpy)) return io::write_npy(path, tensor);
  if (path.ends_with(kSafetensors)) {
    const std::pair<std::string, io::TensorView> tensors[] = {{"C", tensor}};
    return io::write_safetensors(path, tensors, {});
  }
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                          "--output {}: the path must end in .npy or .safetensors", path);
}

}  // namespace deepgemm::cli
