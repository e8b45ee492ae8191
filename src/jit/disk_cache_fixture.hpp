// A disk cache in a directory of its own; for tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "base/temporary_directory.hpp"
#include "jit/cache_entry.hpp"
#include "jit/disk_cache.hpp"
#include "jit/fake_compiler.hpp"

namespace deepgemm::jit {

namespace fs = std::filesystem;

inline const CompilerIdentity kCompiler = {"g++", "12.2", "-O3"};

inline Binary binary_of(const std::string& text) {
  Binary binary;
  binary.bytes.assign(text.begin(), text.end());
  binary.log = "a note";
  return binary;
}

inline std::string text_of(const Binary& binary) {
  return {binary.bytes.begin(), binary.bytes.end()};
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheSettings settings(FileOps* files = nullptr) const {
    DiskCacheSettings result;
    result.directory = root_;
    result.library_version = "1.2.3";
    result.files = files;
    return result;
  }
  std::string publish(DiskCache& cache, const Source& source, const std::string& text) {
    return cache.publish(source, kCompiler, cache.key_of(source, kCompiler), binary_of(text));
  }
  // Content of the entry; "miss" when there is none.
  std::string find(DiskCache& cache, const Source& source) {
    const auto hit = cache.find(source, cache.key_of(source, kCompiler));
    return hit ? text_of(hit->binary) : "miss";
  }
  std::string entry_of(const Source& source) const {
    return root_ + "/1.2.3/" + source.arch + "/" + cache_key(source, kCompiler, "1.2.3").hex();
  }
  size_t files_in(const std::string& folder) const {
    std::error_code ignored;
    return static_cast<size_t>(std::distance(fs::directory_iterator(root_ + "/" + folder, ignored),
                                             fs::directory_iterator()));
  }

  base::TemporaryDirectory directory_;
  const std::string root_ = directory_ / "cache";
  const Source source_ = answer_source(1);
};

}  // namespace deepgemm::jit
