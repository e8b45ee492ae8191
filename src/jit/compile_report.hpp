// What is said, and kept, of a compile that failed.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "jit/process.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

struct CompileFailure {
  const Source& source;
  std::string compiler;  // for people
  std::string how;       // "exited with status 1"
  std::string command;   // as one could type it, in the kept directory
  std::string output;
  std::string hint;  // a sentence
};

// Of the failures kept in a directory, the newest so many stay.
inline constexpr size_t kFailuresKept = 16;

// Keeps source, headers, command and output in a directory of their own below `directory`, unless
// that is empty, and words the COMPILE_FAILED error.
base::Error report_failure(const CompileFailure& failure, const std::string& directory);

// The hint for the usual ends of a compiler.
std::string hint_for(const ProcessEnd& end);

}  // namespace deepgemm::jit
