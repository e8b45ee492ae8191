// Inside of Executable, for the files of this backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.hpp"
#include "backend/cpu/launch.hpp"
#include "backend/cpu/thread_pool.hpp"
#include "intent/problem.hpp"

namespace deepgemm::cpu {

// What the multiplier sees. Operands are widened to it exactly; scales are multiplied in with one
// rounding each, but for kInteger.
enum class Multiplicand : uint8_t {
  kFloat,
  kDouble,
  // Integer codes as FP32 values. Sums of up to kIntegerChain products stay below 2^24 and are thus
  // exact; scales wait for the epilogue. Where scales change along k, kDouble takes its place.
  kInteger,
};

constexpr int64_t kIntegerChain = 512;  // |a| <= 2^7, |b| <= 255: 512 products stay below 2^24

class Executable {
 public:
  intent::Problem problem;
  const IsaKernels* kernels = nullptr;
  ThreadPool* pool = nullptr;
  Multiplicand multiplicand = Multiplicand::kFloat;
  int64_t block_m = 0, block_n = 0, block_k = 0;  // block_n: columns of op(B) in a tile
  int slots = 1;

  // Tile of C: with SWIGLU half of block_n, because a tile holds gate and up columns.
  bool swiglu() const { return problem.epilogue.activation == GEMM_ACTIVATION_SWIGLU; }
  int64_t tile_columns() const { return swiglu() ? block_n / 2 : block_n; }

  // Scratch of one slot, in this order, each part a multiple of 64 bytes: sums [block_m][padded_n]
  // in FP64, packed A, packed B, one row of the epilogue.
  int64_t padded_n() const;  // columns of sums: whole panels
  int64_t a_bytes() const;
  int64_t b_bytes() const;
  int64_t slot_bytes() const;

 private:
  int64_t value_bytes() const;  // of a multiplicand
};

}  // namespace deepgemm::cpu
