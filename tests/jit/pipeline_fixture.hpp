// A cache, a pipeline and a fake compiler that takes no time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/temporary_directory.hpp"
#include "jit/compiler.hpp"
#include "jit/disk_cache.hpp"
#include "jit/fake_compiler.hpp"
#include "jit/module.hpp"
#include "jit/pipeline.hpp"

namespace deepgemm::jit {

class PipelineFixture : public testing::Test {
 protected:
  // Script text that does what a compiler would: the result depends on the header.
  static std::string compile_script() {
    return "if grep -q 'kAnswer = 1;' answer.hpp; then cp '" DEEPGEMM_SAMPLE_1
           "' kernel.so; else cp '" DEEPGEMM_SAMPLE_2 "' kernel.so; fi";
  }

  // A fake compiler called `name`, alone. Each compile adds a line to compiles().
  CompilerSearch fake(const std::string& body, const std::string& version = "12.2.0",
                      const std::string& name = "bin/g++") {
    write_script(directory_ / name, gnu_version(version),
                 "echo x >> '" + log_path() + "'\n" + body);
    CompilerSettings settings = settings_;
    settings.cxx = directory_ / name;
    return find_compilers(Language::kCpp, settings);
  }
  CompilerSearch good() { return fake(compile_script()); }

  size_t compiles() const {
    std::ifstream file(log_path());
    return static_cast<size_t>(
        std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
  }
  std::string log_path() const { return directory_.path() + "/compiles"; }

  DiskCacheSettings cache_settings() const {
    DiskCacheSettings settings;
    settings.directory = directory_.path() + "/cache";
    return settings;
  }

  static int answer_of(const Module& module) {
    return reinterpret_cast<int (*)()>(module.symbol("deepgemm_kernel_answer"))();
  }
  // The answer of a built kernel; -1 when building failed.
  static int answer_of(const base::Result<std::shared_ptr<const Module>>& module) {
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().message);
    return module.ok() ? answer_of(**module) : -1;
  }

  base::TemporaryDirectory directory_;
  CompilerSettings settings_ = settings_in(directory_.path());
};

}  // namespace deepgemm::jit
