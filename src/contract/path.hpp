// Arithmetic paths: how products are formed and summed, independent of any kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "deepgemm/types.h"

namespace deepgemm::contract {

// Order is the order of listings; names are in the table behind find_path.
enum class PathId : uint8_t {
  kFp64,       // FP64 operands and sums
  kFp32Acc64,  // FP32 operands, FP64 sums
  kFp32,       // FP32 operands, FP32 sums (FMA)
  kTf32x3,     // FP32 operands split in TF32 big + small: three tensor-core products
  kTf32Bf16,   // FP32 operands cut to TF32; products of what that loses in BF16, at twice the rate
  kBf16x3,     // FP32 operands split in three BF16 parts: the six largest of nine products
  kTf32,       // operands rounded to TF32, FP32 sums
  kFp16,       // FP16 operands, FP32 sums
  kBf16,       // BF16 operands, FP32 sums
  kFp8,        // FP8 operands, FP32 sums, promoted as the family states
  kInt8,       // INT8 operands, INT32 sums: exact
  kW8A16,      // INT8 or FP8 weights widened, FP16/BF16/FP32 activations, FP32 sums
  kW4A16,      // INT4 weights dequantised in registers, FP16/BF16/FP32 activations, FP32 sums
  kW4A8,       // INT4 weights, INT8 or FP8 activations
};

struct Path {
  PathId id;
  const char* name;               // "fp64", "fp32_acc64", "fp32", "3xtf32", "tf32_2xbf16", ...
  const char* description;        // one phrase for reports
  gemm_precision_t multiplicand;  // what the multiplier sees; wider operands are rounded to it.
                                  // PRECISION_DEFAULT: the format that the activations (A) have
  int parts;                      // products per multiplication: 1; 3xTF32: 3; 3xBF16: 6
  int passes;  // their steps of summing, and their time, in those of products of `multiplicand`
  int accumulator_bits;  // significand bits of the sums: 53, 24, or 0 for exact integers
};

std::span<const Path> all_paths();
const Path& path_info(PathId id);
const Path* find_path(const char* name);  // nullptr when unknown

// What the multiplier sees when A is stored as `a`.
gemm_precision_t multiplicand_of(const Path& path, gemm_precision_t a);

// Empty when the path can take operands stored like this, else a sentence.
std::string storage_refusal(const Path& path, gemm_precision_t a, gemm_precision_t b);

// How a kernel sums K products: facts of family, device and tiling (see schedule/family.hpp).
// Products are exact (or fused with the addition) unless product_rounds says otherwise.
struct Accumulation {
  int bits = 24;           // significand bits kept while summing (tensor cores may keep fewer)
  bool truncates = false;  // rounds toward zero, not to nearest
  int64_t step = 1;        // products summed exactly before one rounding (k of one MMA)
  int64_t chain = 0;       // products between promotions; 0: never promoted
  int promoted_bits = 24;  // accumulator after promotion
  int64_t splits = 1;      // partial sums added in the end (split-K), over at most ceil(K / splits)
                           // products each, rounded up to a multiple of chain (or of step)
  bool dequant_rounds = false;  // dequantised weights are rounded to the multiplicand format
  double dequant_roundoff = 0;  // relative error of scale application per product
  // Tensor cores line up the addends of a step with the largest and cut each to this many bits.
  // 0: the sum of a step is exact when `bits` is at least 24; below, each addend is cut to `bits`.
  int aligned_bits = 0;
  bool flushes_subnormals = false;  // subnormal operands, products and sums count as zero
  bool product_rounds = false;      // multiplies, rounds, then adds: no fused multiply-add
};

}  // namespace deepgemm::contract
