// The environment of a process that has fake compilers and a cache directory of its own.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "jit/service.hpp"
#include "pipeline_fixture.hpp"

namespace deepgemm::jit {

class ServiceFixture : public PipelineFixture {
 protected:
  ServiceFixture() {
    // No compiler of the machine is found, except through what a test sets.
    for (const char* name :
         {"DEEPGEMM_JIT", "DEEPGEMM_CXX", "DEEPGEMM_NVCC_PATH", "DEEPGEMM_NVRTC_PATH",
          "DEEPGEMM_DUMP_DIR", "XDG_CACHE_HOME", "CUDA_HOME", "VIRTUAL_ENV"}) {
      set(name, "");
    }
    set("PATH", directory_ / "bin");
    set("HOME", directory_ / "home");
    set("TMPDIR", settings_.temp_directory);
    set("DEEPGEMM_CACHE_DIR", cache_directory());
  }
  ~ServiceFixture() override {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }

  // Until the test ends; an empty value is an unset one.
  void set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    before_.emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    ::setenv(name.c_str(), value.c_str(), 1);
  }

  std::string cache_directory() const { return directory_.path() + "/cache"; }

  // A compiler in PATH.
  void install(const std::string& body, const std::string& version = "12.2.0",
               const std::string& name = "bin/g++") {
    write_script(directory_ / name, gnu_version(version),
                 "echo x >> '" + log_path() + "'\n" + body);
  }
  void install() { install(compile_script()); }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace deepgemm::jit
