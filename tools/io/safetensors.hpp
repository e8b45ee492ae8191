// The safetensors format: an 8-byte little-endian header length, a JSON header, then the data.
// Format: https://github.com/huggingface/safetensors (README, "Format"). What that page demands of
// writers is demanded of files here: no gaps, no overlaps, no duplicate names.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "base/result.hpp"
#include "io/tensor.hpp"

namespace deepgemm::io {

constexpr size_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the limit of the format
constexpr size_t kMaxTensorRank = 32;

// One tensor as the header declares it, before its figures are checked against the file.
struct DeclaredTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // offsets into the data part, in bytes
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<DeclaredTensor> tensors;  // in the order of the header
};

// Reads the JSON text of a header. FORMAT errors start with `subject` and name tensor and rule. The
// parser neither recurses nor builds a tree, so nesting and size of the text are harmless.
base::Result<SafetensorsHeader> parse_safetensors_header(std::string_view json,
                                                         const std::string& subject);

struct SafetensorsContents {
  std::map<std::string, std::string> metadata;
  std::map<std::string, TensorView> tensors;  // views into the bytes that were parsed
};

// Reads a whole file that lies in memory; the views live as long as `file`.
base::Result<SafetensorsContents> parse_safetensors(std::span<const std::byte> file,
                                                    const std::string& subject);

// A mapped file and its contents. Immutable; the views live as long as this object.
class SafetensorsFile {
 public:
  static base::Result<SafetensorsFile> open(const std::string& path);

  const SafetensorsContents& contents() const { return contents_; }

 private:
  SafetensorsFile(base::MappedFile file, SafetensorsContents contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}

  base::MappedFile file_;
  SafetensorsContents contents_;
};

// Writes tensors in the given order, without gaps, the data part at a multiple of 64.
// INVALID_ARGUMENT for a name given twice or column-major data, IO when the file cannot be written.
base::Result<void> write_safetensors(const std::string& path,
                                     std::span<const std::pair<std::string, TensorView>> tensors,
                                     const std::map<std::string, std::string>& metadata);

}  // namespace deepgemm::io
