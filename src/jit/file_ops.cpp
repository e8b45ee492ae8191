#include "jit/file_ops.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "jit/descriptor.hpp"

namespace deepgemm::jit {
namespace {

FileInfo to_info(const struct stat& status) {
  FileInfo info;
  if (S_ISREG(status.st_mode)) info.kind = FileInfo::Kind::kFile;
  if (S_ISDIR(status.st_mode)) info.kind = FileInfo::Kind::kDirectory;
  info.owner = status.st_uid;
  info.permissions = status.st_mode & 07777;
  info.bytes = status.st_size;
  info.changed_ns = int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
  return info;
}

int result_of(int returned) { return returned == 0 ? 0 : errno; }

int read_all(int file, std::vector<uint8_t>& bytes) {
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return 0;
}

}  // namespace

int FileOps::inspect(const std::string& path, FileInfo& info) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) return errno;
  info = to_info(status);
  return 0;
}

int FileOps::read(const std::string& path, int64_t max_bytes, FileInfo& info,
                  std::vector<uint8_t>& bytes) {
  // Non-blocking, because opening a pipe would otherwise wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) return errno;
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return errno;
  info = to_info(status);
  if (info.kind == FileInfo::Kind::kDirectory) return EISDIR;
  if (info.kind != FileInfo::Kind::kFile) return EINVAL;
  if (info.bytes > max_bytes) return EFBIG;
  bytes.resize(static_cast<size_t>(info.bytes));
  return read_all(file.get(), bytes);
}

int FileOps::write_new(const std::string& path, std::span<const uint8_t> bytes, bool flush) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return errno;
  if (const int error = write_all(file.get(), bytes)) return error;
  return flush ? result_of(::fsync(file.get())) : 0;
}

int FileOps::make_directory(const std::string& path) {
  return result_of(::mkdir(path.c_str(), 0700));
}

int FileOps::rename(const std::string& from, const std::string& to) {
  return result_of(::rename(from.c_str(), to.c_str()));
}

int FileOps::remove(const std::string& path) { return result_of(std::remove(path.c_str())); }

int FileOps::touch(const std::string& path) {
  return result_of(::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW));
}

int FileOps::list(const std::string& path, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return errno;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  return errno;
}

FileOps& system_files() {
  static FileOps files;
  return files;
}

int write_all(int file, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

int remove_tree(FileOps& files, const std::string& path) {
  FileInfo info;
  if (const int error = files.inspect(path, info)) return error == ENOENT ? 0 : error;
  int first = 0;
  if (info.kind == FileInfo::Kind::kDirectory) {
    std::vector<std::string> names;
    first = files.list(path, names);
    for (const std::string& name : names) {
      const int error = remove_tree(files, path + "/" + name);
      if (first == 0) first = error;
    }
  }
  const int error = files.remove(path);
  if (first == 0 && error != ENOENT) first = error;
  return first;
}

std::string unique_name() {
  static std::atomic<uint64_t> counter{0};
  uint64_t random = 0;
  // Processes of several containers can share a directory and have equal ids, hence the time where
  // the system has no random numbers yet.
  if (::getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
    random = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return fmt::format("{}-{:016x}{:x}", ::getpid(), random, counter++);
}

}  // namespace deepgemm::jit
