// Shell scripts that answer like compilers, and settings that find nothing but them; for tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "jit/compiler.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

// A script that prints `version` when its first argument is --version, and else runs `body`.
inline void write_script(const std::string& path, const std::string& version,
                         const std::string& body) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path);
  file << "#!/bin/sh\nPATH=/usr/bin:/bin\nif [ \"$1\" = --version ]; then\ncat <<'END'\n"
       << version << "\nEND\nexit 0\nfi\n"
       << body << "\n";
  file.close();
  ASSERT_TRUE(file.good()) << path;
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
}

inline std::string gnu_version(const std::string& number) {
  return "g++ (Test) " + number +
         "\nCopyright (C) 2022 Free Software Foundation, Inc.\nThis is free software";
}

inline CompilerSettings settings_in(const std::string& directory) {
  CompilerSettings settings;
  settings.search_path = "/usr/local/bin:/usr/bin:/bin";
  settings.temp_directory = directory + "/temp";
  settings.failed_directory = directory + "/failed";
  std::filesystem::create_directories(settings.temp_directory);
  return settings;
}

// extern "C" int deepgemm_kernel_answer() returns `answer`.
inline Source answer_source(int answer) {
  Source source;
  source.name = "answer";
  source.text =
      "#include \"answer.hpp\"\nextern \"C\" int deepgemm_kernel_answer() { return kAnswer; }\n";
  source.headers = {{"answer.hpp", "constexpr int kAnswer = " + std::to_string(answer) + ";\n"}};
  source.arch = "generic";
  source.symbols = {"deepgemm_kernel_answer"};
  return source;
}

}  // namespace deepgemm::jit
