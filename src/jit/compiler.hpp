// Compilers found at run time.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

// What makes two compilers give different code: enters the cache key. No paths.
struct CompilerIdentity {
  std::string kind;     // "g++", "clang++", "nvrtc", "nvcc"
  std::string version;  // full version text
  std::string options;  // that are given besides those of a source
};

// Thread-safe after construction.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual const CompilerIdentity& identity() const = 0;
  virtual std::string location() const = 0;  // path or library, for people
  virtual bool accepts(const Source& source) const = 0;
  // What one compile may take, for the number of parallel ones.
  virtual int64_t memory_bytes() const = 0;
  // COMPILE_FAILED: the message has the command, how it ended, the last lines it printed, where the
  // source was kept, and a hint. Never leaves a file behind on success.
  virtual base::Result<Binary> compile(const Source& source) const = 0;
};

// Where compilers are looked for. Empty: not set.
struct CompilerSettings {
  // Explicit choices: what is set is used, or the search ends with nothing and a note.
  std::string cxx;         // program of C++ sources: a path, or a name in search_path
  std::string nvrtc_path;  // NVRTC library, or the directory that has it
  std::string nvcc_path;   // the nvcc program

  std::string search_path;  // as in PATH
  std::string cuda_home;    // a CUDA toolkit
  std::string virtual_env;  // a Python environment
  std::string user_home;    // may have Python packages below .local

  std::string temp_directory;    // of private working directories
  std::string failed_directory;  // sources of failed compiles are kept here; empty: nowhere
  std::chrono::milliseconds probe_limit{5000};
  std::chrono::milliseconds compile_limit{300000};

  bool operator==(const CompilerSettings&) const = default;
};

// From DEEPGEMM_CXX, DEEPGEMM_NVRTC_PATH, DEEPGEMM_NVCC_PATH, DEEPGEMM_DUMP_DIR and the usual
// variables of others, read anew at each call. Without DEEPGEMM_DUMP_DIR sources of failed compiles
// go to `failed` below the cache directory, if there is one.
CompilerSettings compiler_settings_from_environment(const std::string& cache_directory);

// Found and probed compilers of a language, best first; empty when there is none. The reasons why
// others were passed over come with it. Searching is done anew at each call, starts programs and
// opens libraries: keep the result.
struct CompilerSearch {
  std::vector<std::shared_ptr<const Compiler>> compilers;
  std::vector<std::string> notes;
};
CompilerSearch find_compilers(Language language, const CompilerSettings& settings);

// COMPILER_MISSING with the notes of a search that found no compiler for `source`.
base::Error no_compiler_error(const CompilerSearch& search, const Source& source);

}  // namespace deepgemm::jit
