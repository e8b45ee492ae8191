#include "io/npy.hpp"

#include <cstring>
#include <limits>
#include <string_view>

#include "io/output_file.hpp"

namespace deepgemm::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;

template <class... Args>
base::Error format_error(const std::string& subject, fmt::format_string<Args...> format,
                         Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_FORMAT, "{}: {}", subject,
                          fmt::format(format, std::forward<Args>(args)...));
}

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Parser of the dictionary literal in a header: exactly the keys descr, fortran_order and shape.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& subject)
      : text_(text), subject_(subject) {}

  base::Result<Header> parse() {
    if (!take('{')) return expected("{");
    while (!take('}')) {
      DEEPGEMM_TRY_ASSIGN(key, string());
      if (!take(':')) return expected(":");
      DEEPGEMM_TRY(value(key));
      if (take(',')) continue;
      if (!take('}')) return expected("}");
      break;
    }
    skip_space();
    if (position_ != text_.size()) return expected("the end");
    if (seen_ != (kDescr | kOrder | kShape)) {
      return format_error(subject_, "the header needs the keys descr, fortran_order and shape");
    }
    return std::move(header_);
  }

 private:
  static constexpr int kDescr = 1;
  static constexpr int kOrder = 2;
  static constexpr int kShape = 4;

  base::Result<void> value(const std::string& key) {
    const int flag = key == "descr"           ? kDescr
                     : key == "fortran_order" ? kOrder
                     : key == "shape"         ? kShape
                                              : 0;
    if (flag == 0) return format_error(subject_, "unknown key '{}' in the header", key);
    if ((seen_ & flag) != 0) return format_error(subject_, "key '{}' twice in the header", key);
    seen_ |= flag;
    if (flag == kDescr) return descr();
    if (flag == kShape) return shape();
    header_.fortran_order = take_word("True");
    if (!header_.fortran_order && !take_word("False")) return expected("True or False");
    return {};
  }

  base::Result<void> descr() {
    if (peek() == '[') {
      return format_error(subject_, "structured arrays are not supported; save one field alone");
    }
    DEEPGEMM_TRY_ASSIGN(text, string());
    header_.descr = std::move(text);
    return {};
  }

  base::Result<void> shape() {
    if (!take('(')) return expected("(");
    while (!take(')')) {
      DEEPGEMM_TRY(size());
      if (take(',')) continue;
      if (!take(')')) return expected(")");
      break;
    }
    return {};
  }

  base::Result<void> size() {
    skip_space();
    const size_t start = position_;
    int64_t value = 0;
    for (; position_ < text_.size() && is_digit(text_[position_]); ++position_) {
      const int64_t digit = text_[position_] - '0';
      if (value > (INT64_MAX - digit) / 10) {
        return format_error(subject_, "a size in shape overflows");
      }
      value = value * 10 + digit;
    }
    if (position_ == start) return expected("a size");
    header_.shape.push_back(value);
    return {};
  }

  base::Result<std::string> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return expected("a string");
    const size_t start = ++position_;
    for (; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == quote) return std::string(text_.substr(start, position_++ - start));
      if (c == '\\' || c < ' ' || c > '~') break;
    }
    return expected("a plain string");
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void skip_space() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) {
      ++position_;
    }
  }

  char peek() {
    skip_space();
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }

  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }

  base::Error expected(const char* what) const {
    return format_error(subject_, "expected {} at byte {} of the header", what, position_);
  }

  std::string_view text_;
  const std::string& subject_;
  size_t position_ = 0;
  int seen_ = 0;
  Header header_;
};

base::Result<DType> dtype_of(const std::string& descr, const std::string& subject) {
  // One-byte types have no byte order; '=' does not occur in files.
  if (const DTypeInfo* info = find_npy_dtype(descr)) return info->dtype;
  if (descr.size() == 3 && descr[2] == '1' && descr[0] != '|') {
    if (const DTypeInfo* info = find_npy_dtype("|" + descr.substr(1))) return info->dtype;
  }
  if (descr.starts_with('>')) {
    return format_error(subject, "dtype '{}' is big-endian; save it as '<{}'", descr,
                        descr.substr(1));
  }
  if (descr.find('O') != std::string::npos) {
    return format_error(subject, "dtype '{}' holds Python objects; save a plain number type",
                        descr);
  }
  return format_error(subject,
                      "dtype '{}' is not supported; use '<f8', '<f4', '<f2', '<i8', '<i4', '<i2', "
                      "'|i1', '|u1' or '|b1'",
                      descr);
}

// The text of the header and where the data begins.
struct Frame {
  std::string_view header;
  size_t data_offset = 0;
};

base::Result<Frame> frame_of(std::span<const std::byte> file, const std::string& subject) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const size_t version_at = kMagic.size();
  if (!text.starts_with(kMagic) || text.size() < version_at + 2) {
    return format_error(subject, "this is not a .npy file: it does not begin with \\x93NUMPY");
  }
  const int major = static_cast<unsigned char>(text[version_at]);
  const int minor = static_cast<unsigned char>(text[version_at + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    return format_error(subject, "version {}.{} is unknown; 1.0, 2.0 and 3.0 can be read", major,
                        minor);
  }
  const size_t length_at = version_at + 2;
  const size_t length_bytes = major == 1 ? 2 : 4;
  uint32_t length = 0;
  if (text.size() < length_at + length_bytes) return format_error(subject, "the file is cut short");
  std::memcpy(&length, text.data() + length_at, length_bytes);
  const size_t header_at = length_at + length_bytes;
  if (length > kMaxNpyHeader) {
    return format_error(subject, "the header length {} is over the limit of {} bytes", length,
                        kMaxNpyHeader);
  }
  if (length > text.size() - header_at) {
    return format_error(subject, "the header length {} is more than the {} bytes that follow it",
                        length, text.size() - header_at);
  }
  return Frame{text.substr(header_at, length), header_at + length};
}

}  // namespace

base::Result<TensorView> parse_npy(std::span<const std::byte> file, const std::string& subject) {
  DEEPGEMM_TRY_ASSIGN(frame, frame_of(file, subject));
  DEEPGEMM_TRY_ASSIGN(header, HeaderParser(frame.header, subject).parse());
  DEEPGEMM_TRY_ASSIGN(dtype, dtype_of(header.descr, subject));
  DEEPGEMM_TRY_ASSIGN(bytes, tensor_bytes(subject, dtype, header.shape));
  const auto data = file.subspan(frame.data_offset);
  if (data.size() != static_cast<uint64_t>(bytes)) {
    return format_error(subject, "holds {} bytes of data, but '{}' of shape {} takes {}",
                        data.size(), header.descr, shape_text(header.shape), bytes);
  }
  TensorView view;
  view.dtype = dtype;
  view.shape = std::move(header.shape);
  view.column_major = header.fortran_order;
  view.data = data;
  return view;
}

base::Result<NpyFile> NpyFile::open(const std::string& path) {
  DEEPGEMM_TRY_ASSIGN(file, base::MappedFile::open(path, std::numeric_limits<int64_t>::max()));
  DEEPGEMM_TRY_ASSIGN(tensor, parse_npy(file.bytes(), path));
  // Moving does not change the address of the bytes.
  return NpyFile(std::move(file), std::move(tensor));
}

base::Result<void> write_npy(const std::string& path, const TensorView& tensor) {
  const DTypeInfo& info = dtype_info(tensor.dtype);
  if (info.npy == nullptr) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "{} cannot be written to {}: .npy has no such type; name a .safetensors "
        "file",
        info.safetensors, path);
  }
  std::string sizes;
  for (const int64_t size : tensor.shape) sizes += fmt::format("{}, ", size);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}",
                                 info.npy, tensor.column_major ? "True" : "False", sizes);
  const size_t before = kMagic.size() + 4;
  text.append((kAlignment - (before + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string prefix(kMagic);
  prefix +=
      {'\x01', '\0', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(prefix)),
                                              std::as_bytes(std::span(text)), tensor.data};
  return write_file(path, parts);
}

}  // namespace deepgemm::io
