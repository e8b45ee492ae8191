// A library of the system, opened at run time.
#pragma once

#include <span>
#include <string>

#include "base/result.hpp"

namespace deepgemm::cuda {

// Stays open until the end of the process, because drivers have threads and exit handlers of their
// own. Any thread.
class SharedLibrary {
 public:
  // The first of `names` (paths, or names for the loader) that opens. IO, with the loader's words
  // for each.
  static base::Result<SharedLibrary> open(std::span<const char* const> names);

  // Null when the library does not have it.
  void* symbol(const char* name) const;
  // The file that the loader chose.
  const std::string& path() const { return path_; }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::string path_;
};

}  // namespace deepgemm::cuda
