// Kernels for every CPU: vectors of 16 bytes, as SSE2 and NEON have them.
#include "backend/cpu/kernels.hpp"

#define DEEPGEMM_VECTOR_BYTES 16
#define DEEPGEMM_ROWS 4
#include "backend/cpu/kernels.inl"

namespace deepgemm::cpu {

constinit const IsaKernels kGenericKernels = make_isa_kernels();

}  // namespace deepgemm::cpu
