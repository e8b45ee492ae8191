// Kernels for x86-64 CPUs with AVX-512 F, BW, DQ and VL.
#include "backend/cpu/kernels.hpp"

#define DEEPGEMM_VECTOR_BYTES 64
#define DEEPGEMM_ROWS 12
#include "backend/cpu/kernels.inl"

namespace deepgemm::cpu {

constinit const IsaKernels kAvx512Kernels = make_isa_kernels();

}  // namespace deepgemm::cpu
