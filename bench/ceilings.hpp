// What this CPU can do at most, measured.
#pragma once

namespace deepgemm::bench {

// FP32 GFLOP/s of one thread that does nothing but multiply and add in registers.
double measure_fma_gflops();

// GB/s that `threads` threads read together from a buffer that no cache holds; the best of several
// passes.
double measure_read_gbs(int threads);

}  // namespace deepgemm::bench
