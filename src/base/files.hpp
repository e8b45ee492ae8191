// Files and the cache directory. Errors are IO and name the path, the reason and the next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace deepgemm::base {

// Content of a regular file of at most `max_bytes`; larger ones are refused before they are read.
Result<std::string> read_file(const std::string& path, int64_t max_bytes);

// A file mapped for reading. The bytes stay readable while the object lives, if nobody truncates
// the file meanwhile (the system then raises SIGBUS).
class MappedFile {
 public:
  // Regular files of at most `max_bytes`; empty files give an empty span.
  static Result<MappedFile> open(const std::string& path, int64_t max_bytes);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Replaces a file as a whole: other processes see the old content or the new, also after a crash.
// Writes a temporary file beside it, flushes it and renames it.
Result<void> write_file_atomic(const std::string& path, std::string_view content);

// Where compiled kernels and tuning data are kept.
struct CacheDirectory {
  std::string path;     // empty: memory only
  bool usable = false;  // exists (or was created, mode 0700) and takes files
  std::string source;   // the variable it comes from; empty: memory only
  std::string reason;   // why it is not usable, or why an earlier place was passed over
};

// DEEPGEMM_CACHE_DIR, else $XDG_CACHE_HOME/deepgemm, else $HOME/.cache/deepgemm, else memory only.
// An explicit DEEPGEMM_CACHE_DIR that cannot be used is not replaced by another place: the result
// then has its path, usable = false and the reason. Looks and writes a probe file at each call.
CacheDirectory resolve_cache_directory();

}  // namespace deepgemm::base
