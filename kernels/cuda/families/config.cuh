// Template argument of every family: what is fixed when a kernel is compiled, and the sizes that
// follow. Plain types only: the host reads it too.
#pragma once

namespace deepgemm::kernel {

using i32 = int;
using i64 = long long;
using u32 = unsigned int;
using u64 = unsigned long long;

// Formats of operands as stored.
enum class Format : unsigned char { kFp64, kFp32, kFp16, kBf16, kE4m3, kE5m2, kInt8 };

constexpr i32 format_bytes(Format format) {
  switch (format) {
    case Format::kFp64:
      return 8;
    case Format::kFp32:
      return 4;
    case Format::kFp16:
    case Format::kBf16:
      return 2;
    default:
      return 1;
  }
}

// Which neighbours of an element lie beside it in memory.
enum class Access : unsigned char {
  kAlongK,        // k_step is 1
  kAlongRows,     // row_step is 1
  kStrided,       // any steps
  kBlocked,       // tiles of 16x16, in which k runs fastest
  kBlockedAcross  // tiles of 16x16, in which rows run fastest
};

constexpr bool along_k(Access access) {
  return access == Access::kAlongK || access == Access::kBlocked;
}
constexpr bool along_rows(Access access) {
  return access == Access::kAlongRows || access == Access::kBlockedAcross;
}

struct Operand {
  Format format = Format::kFp32;
  Access access = Access::kAlongK;
  i32 width = 4;           // bytes: base and steps are multiples of it; at most 16
  bool streaming = false;  // read once: first to leave the caches
  bool whole = false;      // lines are multiples of 16 bytes: of a chunk all or nothing exists
};

// How products are formed.
enum class Math : unsigned char {
  kFp64,       // FP64 FMA, on CUDA cores (simt) or tensor cores (sm80)
  kFp32Acc64,  // the same of FP32 operands, widened in registers (sm80)
  kFp32,       // FP32 FMA
  kInt32,      // integer multiply-add
  kFp16,       // tensor cores, FP32 sums
  kBf16,       // likewise
  kTf32,       // likewise; FP32 operands are rounded
  kTf32x3,     // likewise; FP32 operands are split in two parts, three products
  kTf32Bf16,   // likewise; the two products with small parts are of BF16
  kFp8,        // likewise
  kInt8,       // tensor cores, INT32 sums
};

enum class Activation : unsigned char { kNone, kRelu, kGelu, kGeluTanh, kSilu, kSwiglu };

struct Epilogue {
  Format output = Format::kFp32;
  Activation activation = Activation::kNone;
  bool bias = false;
  Format bias_format = Format::kFp32;
  bool residual = false;
  Format residual_format = Format::kFp32;
  bool row_scale = false;     // scale_a and scale_b are factors of rows and columns of the product;
  bool column_scale = false;  // false also where they apply to groups of k
  bool stochastic = false;    // rounding of the output
  bool quads = false;  // columns of C and residual are contiguous, four of them aligned together
};

struct Config {
  i32 block_m = 128, block_n = 128, block_k = 16;
  i32 warp_m = 32, warp_n = 64;
  i32 warps_k = 1;     // warps that share K (skinny)
  i32 stages = 2;      // skinny: pieces of k that a warp loads together
  i32 resident = 1;    // blocks that a multiprocessor should hold: limits the registers
  bool split = false;  // arguments.splits may be above 1
  Math math = Math::kFp32;
  Operand a, b;
  i32 promote = 0;  // products between additions of the sums to totals; 0: never
  bool scaled =
      false;  // a total adds scale_a * scale_b * sum: scales of groups of `promote` values
  Epilogue epilogue;
  i32 fixed_n = 0, fixed_k = 0;  // sizes that are known; 0: as the arguments say

  constexpr i32 warps_m() const { return block_m / warp_m; }
  constexpr i32 warps_n() const { return block_n / warp_n; }
  constexpr i32 threads() const { return warps_m() * warps_n() * warps_k * 32; }
  constexpr bool swiglu() const { return epilogue.activation == Activation::kSwiglu; }
  // Columns of C that a block or a warp makes.
  constexpr i32 output_columns(i32 tile) const { return swiglu() ? tile / 2 : tile; }
};

constexpr i32 smaller(i32 a, i32 b) { return a < b ? a : b; }
constexpr i32 larger(i32 a, i32 b) { return a > b ? a : b; }

constexpr bool is_integer(Math math) { return math == Math::kInt32 || math == Math::kInt8; }

// Bytes of a sum, and of a total (memory/totals.cuh).
constexpr bool sums_in_double(Math math) { return math == Math::kFp64 || math == Math::kFp32Acc64; }
constexpr i32 sum_bytes(const Config& c) { return sums_in_double(c.math) ? 8 : 4; }
constexpr bool wide_totals(const Config& c) {
  return c.promote > 0 && (sums_in_double(c.math) || (is_integer(c.math) && !c.scaled));
}
constexpr i32 total_bytes(const Config& c) { return wide_totals(c) ? 8 : sum_bytes(c); }

// Rows of sums that a warp stages in shared memory for the epilogue: warp_n sums each, and a gap
// that keeps lanes that write below each other in different banks.
constexpr i32 staging_pitch(const Config& c) { return c.warp_n * total_bytes(c) + 32; }
constexpr i32 staging_bytes(const Config& c, i32 rows) {
  return c.warps_m() * c.warps_n() * rows * staging_pitch(c);
}

// simt: elements of a lane's part of the warp's tile; its rows come in groups of neighbours.
constexpr i32 simt_lane_n(const Config& c) { return c.warp_m * c.warp_n / 32 >= 64 ? 8 : 4; }
constexpr i32 simt_lane_m(const Config& c) { return c.warp_m * c.warp_n / 32 / simt_lane_n(c); }
constexpr i32 simt_staged_rows(const Config& c) {
  return c.warp_m / simt_lane_m(c) * smaller(simt_lane_m(c), 4);
}
constexpr i32 simt_stage_bytes(const Config& c) {
  return c.block_k * (c.block_m + c.block_n) * sum_bytes(c);
}
constexpr i32 simt_shared_bytes(const Config& c) {
  return larger(c.stages * simt_stage_bytes(c), staging_bytes(c, simt_staged_rows(c)));
}

// sm80: bytes of an element as the multiplier takes it, and values of k in one multiplication.
constexpr i32 multiplicand_bytes(Math math) {
  switch (math) {
    case Math::kFp64:
      return 8;
    case Math::kFp32Acc64:
    case Math::kTf32:
    case Math::kTf32x3:
    case Math::kTf32Bf16:
      return 4;
    case Math::kFp16:
    case Math::kBf16:
      return 2;
    default:
      return 1;
  }
}
constexpr i32 sm80_step_k(Math math) { return 32 / multiplicand_bytes(math); }
constexpr i32 kSm80StagedRows = 16;
constexpr i32 sm80_stage_bytes(const Config& c) {
  return c.block_k * (c.block_m + c.block_n) * multiplicand_bytes(c.math);
}
constexpr i32 sm80_shared_bytes(const Config& c) {
  return larger(c.stages * sm80_stage_bytes(c), staging_bytes(c, kSm80StagedRows));
}

// skinny: every warp stages its sums.
constexpr i32 skinny_shared_bytes(const Config& c) {
  return c.warps_k * c.block_m * staging_pitch(c);
}

// True when an operand's elements are not what the multiplier takes.
constexpr bool needs_conversion(Math math, Format format) {
  switch (math) {
    case Math::kFp16:
      return format != Format::kFp16;
    case Math::kBf16:
      return format != Format::kBf16;
    case Math::kFp32Acc64:
    case Math::kTf32:
    case Math::kTf32x3:
    case Math::kTf32Bf16:
      return format != Format::kFp32;
    case Math::kFp64:
      return format != Format::kFp64;
    default:
      return false;
  }
}

template <bool kCondition, class A, class B>
struct Select {
  using Type = A;
};
template <class A, class B>
struct Select<false, A, B> {
  using Type = B;
};
template <bool kCondition, class A, class B>
using SelectType = typename Select<kCondition, A, B>::Type;

}  // namespace deepgemm::kernel
