// The host's C++ compiler: GCC or Clang.
#pragma once

#include "jit/compiler.hpp"

namespace deepgemm::jit {

// The explicit one, or else g++, c++, clang++ and versioned names, the first that answers
// `--version` as GCC >= 10 or Clang >= 10 does (these know -std=c++20). At most one.
CompilerSearch find_host_cxx(const CompilerSettings& settings);

}  // namespace deepgemm::jit
