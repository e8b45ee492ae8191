// The nvcc program of a CUDA toolkit.
#pragma once

#include "jit/compiler.hpp"

namespace deepgemm::jit {

// The explicit one, or else that of the toolkit, of PATH or below /usr/local/cuda; at most one, of
// version 12 or later (these know -std=c++20).
CompilerSearch find_nvcc(const CompilerSettings& settings);

}  // namespace deepgemm::jit
