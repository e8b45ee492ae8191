// Kernels for x86-64 CPUs with AVX2 and FMA.
#include "backend/cpu/kernels.hpp"

#define DEEPGEMM_VECTOR_BYTES 32
#define DEEPGEMM_ROWS 6
#include "backend/cpu/kernels.inl"

namespace deepgemm::cpu {

constinit const IsaKernels kAvx2Kernels = make_isa_kernels();

}  // namespace deepgemm::cpu
