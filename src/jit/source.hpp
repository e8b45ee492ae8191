// What a compiler is given: text, named headers, options. Nothing here depends on paths or times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deepgemm::jit {

enum class Language : uint8_t { kCpp, kCuda };

// "cpp", "cuda".
const char* language_name(Language language);

struct Header {
  std::string name;  // as in #include "name"; relative, without ".."
  std::string text;
};

// One kernel. `symbols` are the extern "C" entries, known before compiling; they begin with
// deepgemm_kernel_.
struct Source {
  Language language = Language::kCpp;
  std::string name;  // for people, not part of the key: the kept source is called so
  std::string text;
  std::vector<Header> headers;
  std::vector<std::string> options;  // e.g. -mavx2; no paths
  std::string arch;                  // "avx512", "sm_90a": also checked when a binary is loaded
  std::vector<std::string> symbols;
};

// A compiled kernel: a shared object (kCpp) or a cubin (kCuda), and what the compiler said.
struct Binary {
  std::vector<uint8_t> bytes;
  std::string log;
  double seconds = 0;  // spent compiling; 0 from the cache
};

}  // namespace deepgemm::jit
