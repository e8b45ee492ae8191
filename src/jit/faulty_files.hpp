// A file system that fails on purpose; for tests.
#pragma once

#include <cerrno>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "jit/file_ops.hpp"

namespace deepgemm::jit {

// Asks `fault` before each call: "rename", path -> errno value, or 0 to do it really.
class FaultyFiles : public FileOps {
 public:
  using Fault = std::function<int(const std::string& call, const std::string& path)>;
  explicit FaultyFiles(Fault fault) : fault_(std::move(fault)) {}

  int inspect(const std::string& path, FileInfo& info) override {
    const int error = ask("inspect", path);
    return error != 0 ? error : FileOps::inspect(path, info);
  }
  int read(const std::string& path, int64_t max_bytes, FileInfo& info,
           std::vector<uint8_t>& bytes) override {
    const int error = ask("read", path);
    return error != 0 ? error : FileOps::read(path, max_bytes, info, bytes);
  }
  int write_new(const std::string& path, std::span<const uint8_t> bytes, bool flush) override {
    const int error = ask("write", path);
    if (error == ENOSPC) FileOps::write_new(path, bytes.first(bytes.size() / 2), false);
    return error != 0 ? error : FileOps::write_new(path, bytes, flush);
  }
  int make_directory(const std::string& path) override {
    const int error = ask("mkdir", path);
    return error != 0 ? error : FileOps::make_directory(path);
  }
  int rename(const std::string& from, const std::string& to) override {
    const int error = ask("rename", to);
    return error != 0 ? error : FileOps::rename(from, to);
  }
  int remove(const std::string& path) override {
    const int error = ask("remove", path);
    return error != 0 ? error : FileOps::remove(path);
  }
  int touch(const std::string& path) override {
    const int error = ask("touch", path);
    return error != 0 ? error : FileOps::touch(path);
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    const int error = ask("list", path);
    return error != 0 ? error : FileOps::list(path, names);
  }

 private:
  int ask(const std::string& call, const std::string& path) {
    const std::lock_guard lock(mutex_);
    return fault_(call, path);
  }

  std::mutex mutex_;
  Fault fault_;
};

}  // namespace deepgemm::jit
