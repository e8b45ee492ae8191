#include "io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "io/output_file.hpp"

static_assert(std::endian::native == std::endian::little, "files are mapped, not byte-swapped");

namespace deepgemm::io {
namespace {

using Json = nlohmann::json;

constexpr size_t kPrefix = sizeof(uint64_t);
constexpr size_t kAlignment = 64;  // of the data part, when written
constexpr size_t kMaxQuoted = 120;

// Names come from the file: quoted, with control characters escaped, and cut when long.
std::string quote_name(const std::string& text) {
  const bool cut = text.size() > kMaxQuoted;
  const Json value = cut ? text.substr(0, kMaxQuoted) + "..." : text;
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

template <class... Args>
base::Error format_error(const std::string& subject, fmt::format_string<Args...> format,
                         Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_FORMAT, "{}: {}", subject,
                          fmt::format(format, std::forward<Args>(args)...));
}

// Receives the events of the JSON parser and holds them against the grammar of a header. Every
// method returns false to end the parse; error_ then has the reason.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& subject) : subject_(subject) {}

  SafetensorsHeader& header() { return header_; }
  const base::Error& error() const { return error_; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_float(double, const std::string&) override {
    return unexpected("a fraction or huge number");
  }
  bool binary(Json::binary_t&) override { return unexpected("binary data"); }

  bool number_integer(int64_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return unexpected("a number");
    return fail(fmt::format("{} holds {}; sizes and offsets are not negative", key_, value));
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) return add_size(value);
    if (place_ == Place::kOffsets) return add_offset(value);
    return unexpected("a number");
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return unexpected("a string");
    const DTypeInfo* info = find_safetensors_dtype(value);
    if (info == nullptr) return fail(fmt::format("unknown dtype {}", quote_name(value)));
    tensor_.dtype = info->dtype;
    return true;
  }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kRoot;
        return true;
      case Place::kRoot:
        place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
        keys_.clear();
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    if (place_ == Place::kRoot) return begin_entry(name);
    if (!keys_.insert(name).second) return fail(fmt::format("key {} twice", quote_name(name)));
    const bool known = name == "dtype" || name == "shape" || name == "data_offsets";
    if (place_ == Place::kTensor && !known) {
      return fail(fmt::format("unknown key {}", quote_name(name)));
    }
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (keys_.size() != 3) return fail("dtype, shape and data_offsets are all needed");
      header_.tensors.push_back(std::move(tensor_));
    }
    place_ = place_ == Place::kRoot ? Place::kStart : Place::kRoot;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype") return unexpected("an array");
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) {
      return fail("data_offsets must be [begin, end]");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = format_error(subject_, "the header is not valid JSON at its byte {}", position);
    return false;
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets };

  bool begin_entry(const std::string& name) {
    tensor_ = {};
    tensor_.name = name;
    in_metadata_ = name == "__metadata__";
    key_.clear();
    if (names_.insert(name).second) return true;
    return fail("the name occurs twice");
  }

  bool add_size(uint64_t value) {
    if (value > INT64_MAX) return fail(fmt::format("shape holds {}, over 2^63 - 1", value));
    tensor_.shape.push_back(static_cast<int64_t>(value));
    return tensor_.shape.size() <= kMaxTensorRank ||
           fail(fmt::format("shape has more than {} dimensions", kMaxTensorRank));
  }

  bool add_offset(uint64_t value) {
    (offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
    return ++offsets_ <= 2 || fail("data_offsets must be [begin, end]");
  }

  bool unexpected(const char* what) {
    if (place_ == Place::kStart) return fail(fmt::format("{} where an object must be", what));
    if (place_ == Place::kRoot) return fail(fmt::format("{} where an object must be", what));
    return fail(fmt::format("{} is not allowed in {}", what, quote_name(key_)));
  }

  bool fail(const std::string& rule) {
    const bool inside = place_ != Place::kStart && !names_.empty();
    const std::string where = !inside        ? "header"
                              : in_metadata_ ? "__metadata__"
                                             : "tensor " + quote_name(tensor_.name);
    error_ = format_error(subject_, "{}: {}", where, rule);
    return false;
  }

  const std::string& subject_;
  SafetensorsHeader header_;
  base::Error error_;
  Place place_ = Place::kStart;
  bool in_metadata_ = false;
  DeclaredTensor tensor_;
  int offsets_ = 0;
  std::string key_;             // last key inside a tensor or the metadata
  std::set<std::string> keys_;  // of the current inner object
  std::set<std::string> names_;
};

// Checks one tensor against the data part and the end of the tensor before it.
base::Result<void> check_placement(const DeclaredTensor& tensor, uint64_t previous_end,
                                   uint64_t data_size, const std::string& subject) {
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const std::string name = fmt::format("{}: tensor {}", subject, quote_name(tensor.name));
  if (tensor.end < tensor.begin || tensor.end > data_size) {
    return format_error(name, "data_offsets [{}, {}] do not lie in the {} bytes of data",
                        tensor.begin, tensor.end, data_size);
  }
  DEEPGEMM_TRY_ASSIGN(bytes, tensor_bytes(name, tensor.dtype, tensor.shape));
  const uint64_t given = tensor.end - tensor.begin;
  if (given != static_cast<uint64_t>(bytes)) {
    return format_error(name, "data_offsets span {} bytes, but {} of shape {} takes {}", given,
                        info.safetensors, shape_text(tensor.shape), bytes);
  }
  if (tensor.begin % static_cast<uint64_t>(info.bytes) != 0) {
    return format_error(name,
                        "begins at offset {}, which {} bytes of {} do not divide (misaligned)",
                        tensor.begin, info.bytes, info.safetensors);
  }
  if (tensor.begin < previous_end) {
    return format_error(name, "begins at offset {} and overlaps the tensor that ends at {}",
                        tensor.begin, previous_end);
  }
  if (tensor.begin > previous_end) {
    return format_error(name, "begins at offset {} and leaves a gap after {}", tensor.begin,
                        previous_end);
  }
  return {};
}

base::Result<std::string_view> header_text(std::span<const std::byte> file,
                                           const std::string& subject) {
  uint64_t length = 0;
  if (file.size() < kPrefix) {
    return format_error(subject, "{} bytes are too few for a safetensors file", file.size());
  }
  std::memcpy(&length, file.data(), kPrefix);
  if (length > kMaxSafetensorsHeader) {
    return format_error(subject,
                        "the header length {} is over the limit of {} bytes; is this a "
                        "safetensors file?",
                        length, kMaxSafetensorsHeader);
  }
  if (length > file.size() - kPrefix) {
    return format_error(subject, "the header length {} is more than the {} bytes that follow it",
                        length, file.size() - kPrefix);
  }
  const auto* text = reinterpret_cast<const char*>(file.data()) + kPrefix;
  return std::string_view(text, static_cast<size_t>(length));
}

}  // namespace

base::Result<SafetensorsHeader> parse_safetensors_header(std::string_view json,
                                                         const std::string& subject) {
  if (json.empty() || json.front() != '{') {
    return format_error(subject, "the header must begin with {{");
  }
  HeaderReader reader(subject);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) return reader.error();
  return std::move(reader.header());
}

base::Result<SafetensorsContents> parse_safetensors(std::span<const std::byte> file,
                                                    const std::string& subject) {
  DEEPGEMM_TRY_ASSIGN(text, header_text(file, subject));
  DEEPGEMM_TRY_ASSIGN(header, parse_safetensors_header(text, subject));
  const auto data = file.subspan(kPrefix + text.size());
  // Empty tensors share their offset with the neighbour and come first.
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  SafetensorsContents contents;
  contents.metadata = std::move(header.metadata);
  uint64_t end = 0;
  for (DeclaredTensor& tensor : header.tensors) {
    DEEPGEMM_TRY(check_placement(tensor, end, data.size(), subject));
    end = tensor.end;
    TensorView view;
    view.dtype = tensor.dtype;
    view.shape = std::move(tensor.shape);
    view.data = data.subspan(tensor.begin, tensor.end - tensor.begin);
    contents.tensors.emplace(std::move(tensor.name), std::move(view));
  }
  if (end != data.size()) {
    return format_error(subject, "{} bytes after the last tensor belong to none",
                        data.size() - end);
  }
  return contents;
}

base::Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  DEEPGEMM_TRY_ASSIGN(file, base::MappedFile::open(path, std::numeric_limits<int64_t>::max()));
  DEEPGEMM_TRY_ASSIGN(contents, parse_safetensors(file.bytes(), path));
  // Moving does not change the address of the bytes.
  return SafetensorsFile(std::move(file), std::move(contents));
}

base::Result<void> write_safetensors(const std::string& path,
                                     std::span<const std::pair<std::string, TensorView>> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  std::vector<std::span<const std::byte>> parts(2);
  for (const auto& [name, tensor] : tensors) {
    if (header.contains(name) || name == "__metadata__" || tensor.column_major) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "tensor {} cannot be written to {}: its name is taken or its data is "
                              "column-major; rename or transpose it",
                              quote_name(name), path);
    }
    const uint64_t end = offset + tensor.data.size();
    header[name] = {{"dtype", dtype_info(tensor.dtype).safetensors},
                    {"shape", tensor.shape},
                    {"data_offsets", {offset, end}}};
    parts.push_back(tensor.data);
    offset = end;
  }
  std::string text = header.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  text.append((kAlignment - (text.size() + kPrefix) % kAlignment) % kAlignment, ' ');
  const uint64_t length = text.size();
  parts[0] = std::as_bytes(std::span(&length, 1));
  parts[1] = std::as_bytes(std::span(text));
  return write_file(path, parts);
}

}  // namespace deepgemm::io
