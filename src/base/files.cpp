#include "base/files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/env.hpp"

namespace deepgemm::base {
namespace {

std::string error_text(int error) { return std::generic_category().message(error); }

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

struct OpenFile {
  Descriptor file;
  int64_t size;
};

Result<OpenFile> open_regular(const std::string& path, int64_t max_bytes) {
  // Non-blocking, because opening a pipe would otherwise wait for a writer.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    return make_error(DEEPGEMM_ERROR_IO,
                      "Cannot open '{}': {}. Check the path and its permissions.", path,
                      error_text(errno));
  }
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) {
    return make_error(DEEPGEMM_ERROR_IO, "Cannot inspect '{}': {}.", path, error_text(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(DEEPGEMM_ERROR_IO, "'{}' is {}; give the path of a file.", path,
                      S_ISDIR(status.st_mode) ? "a directory" : "no regular file");
  }
  if (status.st_size > max_bytes) {
    return make_error(DEEPGEMM_ERROR_IO, "'{}' has {} bytes, more than the {} that are read here.",
                      path, static_cast<int64_t>(status.st_size), max_bytes);
  }
  return OpenFile{std::move(file), status.st_size};
}

Result<void> write_all(int file, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return make_error(DEEPGEMM_ERROR_IO, "Cannot write '{}': {}. Check the free space.", path,
                        error_text(errno));
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// A new file that did not exist before; its name goes into `name`.
Result<Descriptor> create_temporary(const std::string& stem, std::string& name) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Processes of several containers can share a directory and have equal ids, hence the time.
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    name = fmt::format("{}.tmp-{}-{:x}-{}", stem, ::getpid(), now, counter++);
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) return Descriptor(file);
    if (errno != EEXIST) break;
  }
  return make_error(DEEPGEMM_ERROR_IO,
                    "Cannot create '{}': {}. Check the directory and its permissions.", name,
                    error_text(errno));
}

Result<void> fill_and_flush(const Descriptor& file, std::string_view content,
                            const std::string& path) {
  DEEPGEMM_TRY(write_all(file.get(), content, path));
  if (::fsync(file.get()) != 0) {
    return make_error(DEEPGEMM_ERROR_IO, "Cannot flush '{}': {}.", path, error_text(errno));
  }
  return {};
}

// Creates the directory and those above it that are missing, for this user alone.
Result<void> create_directories(const std::filesystem::path& path) {
  std::filesystem::path prefix;
  for (const std::filesystem::path& part : path) {
    prefix /= part;
    if (::mkdir(prefix.c_str(), 0700) == 0 || errno == EEXIST) continue;
    struct stat status = {};
    const int error = errno;  // some systems say "read-only" or "denied" of directories that exist
    if (::stat(prefix.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) continue;
    return make_error(DEEPGEMM_ERROR_IO, "cannot create '{}': {}", prefix.string(),
                      error_text(error));
  }
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return make_error(DEEPGEMM_ERROR_IO, "'{}' is not a directory", path.string());
  }
  return {};
}

// Permission bits alone do not tell: root passes them, read-only file systems do not show in them.
Result<void> probe_writable(const std::string& directory) {
  std::string name;
  DEEPGEMM_TRY(create_temporary(directory + "/probe", name));
  ::unlink(name.c_str());
  return {};
}

CacheDirectory try_directory(const char* source, const std::string& value, const char* below) {
  CacheDirectory result{value, false, source, {}};
  if (value.starts_with('~')) {
    result.reason =
        fmt::format("{} is '{}', but only a shell expands ~; give the full path", source, value);
    return result;
  }
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(value, error);
  if (*below != '\0') path /= below;
  result.path = path.lexically_normal().string();
  Result<void> done = create_directories(result.path);
  if (done.ok()) done = probe_writable(result.path);
  result.usable = done.ok();
  if (!done.ok()) result.reason = fmt::format("{}: {}", source, done.error().message);
  return result;
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  DEEPGEMM_TRY_ASSIGN(opened, open_regular(path, max_bytes));
  std::string content;
  content.reserve(static_cast<size_t>(opened.size));
  char buffer[1 << 16];
  for (;;) {  // the size is a hint only: the file may grow, and /proc states 0
    const ssize_t got = ::read(opened.file.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return make_error(DEEPGEMM_ERROR_IO, "Cannot read '{}': {}.", path, error_text(errno));
    }
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      return make_error(DEEPGEMM_ERROR_IO, "'{}' has more than the {} bytes that are read here.",
                        path, max_bytes);
    }
  }
}

Result<MappedFile> MappedFile::open(const std::string& path, int64_t max_bytes) {
  DEEPGEMM_TRY_ASSIGN(opened, open_regular(path, max_bytes));
  const size_t size = static_cast<size_t>(opened.size);
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.file.get(), 0);
  if (data == MAP_FAILED) {
    return make_error(DEEPGEMM_ERROR_IO, "Cannot map '{}' ({} bytes): {}.", path, size,
                      error_text(errno));
  }
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<void> write_file_atomic(const std::string& path, std::string_view content) {
  std::string name;
  DEEPGEMM_TRY_ASSIGN(file, create_temporary(path, name));
  Result<void> done = fill_and_flush(file, content, name);
  if (done.ok() && ::rename(name.c_str(), path.c_str()) != 0) {
    done = make_error(DEEPGEMM_ERROR_IO, "Cannot replace '{}': {}.", path, error_text(errno));
  }
  if (!done.ok()) {
    ::unlink(name.c_str());
    return done;
  }
  // Makes the new name survive a crash. Some file systems cannot flush directories; the content is
  // safe.
  const Descriptor directory(
      ::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
  return {};
}

CacheDirectory resolve_cache_directory() {
  if (const std::optional<std::string> chosen = env("DEEPGEMM_CACHE_DIR")) {
    return try_directory("DEEPGEMM_CACHE_DIR", *chosen, "");
  }
  struct Place {
    const char* variable;
    const char* below;
  };
  std::string reason;
  for (const Place& place :
       {Place{"XDG_CACHE_HOME", "deepgemm"}, Place{"HOME", ".cache/deepgemm"}}) {
    const std::optional<std::string> base = env(place.variable);
    if (!base) continue;
    CacheDirectory found = try_directory(place.variable, *base, place.below);
    if (found.usable) {
      found.reason = reason;
      return found;
    }
    reason += (reason.empty() ? "" : "; ") + found.reason;
  }
  if (reason.empty()) reason = "neither DEEPGEMM_CACHE_DIR, XDG_CACHE_HOME nor HOME is set";
  return {{}, false, {}, reason};
}

}  // namespace deepgemm::base
