// Inside of Executable, for the files of this backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/generate.hpp"
#include "backend/cpu/kernels.hpp"
#include "backend/cpu/launch.hpp"
#include "backend/cpu/skip.hpp"
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
  ExactStream exact_stream;         // for packed weights and few rows
  const AmxKernels* amx = nullptr;  // of the family on tile units
  ThreadPool* pool = nullptr;
  Multiplicand multiplicand = Multiplicand::kFloat;
  int64_t block_m = 0, block_n = 0, block_k = 0;  // block_n: columns of op(B) in a tile
  int slots = 1;
  bool stochastic_output = false;
  SkipSetup skip;                  // with block_k; a launch of integers may take shorter chains
  mutable SkipCounts skip_counts;  // of all launches

  // Tile of C: with SWIGLU half of block_n, because a tile holds gate and up columns.
  bool swiglu() const { return problem.epilogue.activation == GEMM_ACTIVATION_SWIGLU; }
  int64_t tile_columns() const { return swiglu() ? block_n / 2 : block_n; }

  // A tile of rows of A is packed once for all tiles of columns where there are several, else by
  // each slot for itself.
  bool shares_a() const { return column_tiles() > 1; }
  int64_t column_tiles() const;

  // The workspace: packed A, shared or one for each slot, then the slots. A slot has, each part a
  // multiple of 64 bytes, the sums of a tile [padded_m][sums_stride], the product's scratch, and
  // two rows of the epilogue.
  int64_t padded_m() const;  // rows of sums: whole tiles of a tile unit
  int64_t padded_n() const;  // columns of sums: whole panels
  // Not a power of two: the rows would compete for a few sets of the caches.
  int64_t sums_stride() const { return padded_n() + 16; }
  int64_t sums_bytes() const { return padded_m() * sums_stride() * int64_t{sizeof(double)}; }
  int64_t a_bytes() const;
  int64_t scratch_bytes() const;
  int64_t slot_bytes() const;
  int64_t slots_offset() const { return (shares_a() ? 1 : slots) * a_bytes(); }
  int64_t skip_offset() const;  // norms of tile skipping come last
  int64_t workspace_bytes() const;
};

}  // namespace deepgemm::cpu
