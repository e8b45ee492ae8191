// libnvrtc, opened at run time: the calls that are used of it, and where it is looked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "jit/compiler.hpp"

namespace deepgemm::jit {

// Declarations of our own, after the NVRTC documentation; a result of 0 is success.
using NvrtcProgram = struct _nvrtcProgram*;  // NOLINT: its name

struct NvrtcCalls {
  int (*version)(int* major, int* minor);
  const char* (*error_text)(int result);
  int (*arch_count)(int* count);
  int (*archs)(int* archs);
  int (*create)(NvrtcProgram* program, const char* text, const char* name, int header_count,
                const char* const* header_texts, const char* const* header_names);
  int (*destroy)(NvrtcProgram* program);
  int (*compile)(NvrtcProgram program, int option_count, const char* const* options);
  int (*log_size)(NvrtcProgram program, size_t* size);
  int (*log)(NvrtcProgram program, char* text);
  int (*cubin_size)(NvrtcProgram program, size_t* size);
  int (*cubin)(NvrtcProgram program, char* bytes);
};

// Stays open until the end of the process: it has threads and exit handlers of its own.
struct NvrtcLibrary {
  NvrtcCalls calls = {};
  std::string path;
  int major = 0;
  int minor = 0;
  std::string build;       // differs between builds of one version
  std::vector<int> archs;  // 90: sm_90 and its suffixed forms
};

// At most one library of each major version from 13 to 12, newest first; the first of: the explicit
// path, one that the process has loaded, Python packages, the CUDA toolkit, the loader's own
// search.
struct NvrtcSearch {
  std::vector<std::shared_ptr<const NvrtcLibrary>> libraries;
  std::vector<std::string> notes;
};
NvrtcSearch find_nvrtc_libraries(const CompilerSettings& settings);

}  // namespace deepgemm::jit
