#include "deepgemm/cli_testing.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace deepgemm::cli {

std::string scratch(const std::string& name) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("deepgemm_cli_{}", getpid());
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Outcome run_program(const std::string& arguments, const std::string& environment,
                    const std::string& pipe) {
  const std::string out = scratch("out"), err = scratch("err"), code = scratch("code");
  // The subshell keeps the program's own exit code, whatever stands after the pipe.
  const std::string command =
      fmt::format("{{ {} '{}' {} 2>'{}'; echo $? >'{}'; }} {} >'{}'", environment, DEEPGEMM_PROGRAM,
                  arguments, err, code, pipe, out);
  [[maybe_unused]] const int ignored = std::system(command.c_str());
  Outcome outcome;
  outcome.out = read_text(out);
  outcome.err = read_text(err);
  const std::string digits = read_text(code);
  if (!digits.empty()) outcome.code = std::stoi(digits);
  return outcome;
}

}  // namespace deepgemm::cli
