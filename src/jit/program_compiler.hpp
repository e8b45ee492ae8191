// A compiler that is a program: the host's C++ compiler and nvcc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/compiler.hpp"
#include "jit/process.hpp"

namespace deepgemm::jit {

struct ProgramSpec {
  std::string path;  // absolute
  CompilerIdentity identity;
  std::string setting;      // the variable that chooses another one
  const char* source_file;  // in the working directory
  const char* output_file;
  int64_t memory_bytes = 0;
  std::function<bool(const Source&)> accepts;
  // All but the program itself. Runs in `directory`, so that no path needs to be in the output.
  std::function<std::vector<std::string>(const Source&, const std::string& directory)> arguments;
};

std::shared_ptr<const Compiler> make_program_compiler(ProgramSpec spec,
                                                      const CompilerSettings& settings);

// What a compiler may see of the environment: not the variables that change its output.
std::vector<std::string> compiler_environment(const CompilerSettings& settings,
                                              const std::string& temp_directory);

// Runs `path` with arguments that make it tell about itself. The error is a reason to pass over it.
base::Result<std::string> ask_program(const std::string& path,
                                      const std::vector<std::string>& arguments,
                                      const CompilerSettings& settings);

// Programs to try, in order; the first that `probe` likes is the result.
struct ProgramCandidates {
  std::vector<std::string> names;
  const char* setting = nullptr;  // the variable when the one name was chosen explicitly
  const char* none;               // the note when not one program was found
};
using ProgramProbe = base::Result<std::shared_ptr<const Compiler>> (*)(const std::string& path,
                                                                       const CompilerSettings&);
CompilerSearch take_first(const ProgramCandidates& candidates, ProgramProbe probe,
                          const CompilerSettings& settings);

// Absolute path of a program: of `name` itself when it has a slash, else of the first executable
// file of that name in a list of directories such as PATH.
std::optional<std::string> find_program(const std::string& name, const std::string& search_path);

}  // namespace deepgemm::jit
