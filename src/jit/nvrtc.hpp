// NVRTC, the CUDA compiler that is a library.
#pragma once

#include "jit/compiler.hpp"

namespace deepgemm::jit {

// One for each library found (see nvrtc_library.hpp). It compiles in the calling thread and cannot
// be stopped, so that the time limits of the settings do not hold. Functions without an execution
// space are device functions.
CompilerSearch find_nvrtc(const CompilerSettings& settings);

}  // namespace deepgemm::jit
