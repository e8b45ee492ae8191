#include "contract/path.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/formats.hpp"

namespace deepgemm::contract {
namespace {

constexpr std::array<Path, 14> kPaths = {{
    {PathId::kFp64, "fp64", "FP64 products and sums", PRECISION_FP64, 1, 1, 53},
    {PathId::kFp32Acc64, "fp32_acc64", "FP32 operands, FP64 products and sums", PRECISION_FP32, 1,
     1, 53},
    {PathId::kFp32, "fp32", "FP32 operands, FP32 sums", PRECISION_FP32, 1, 1, 24},
    {PathId::kTf32x3, "3xtf32", "FP32 operands split in two TF32 parts, FP32 sums", PRECISION_TF32,
     3, 3, 24},
    // BF16 products go through half of the steps.
    {PathId::kTf32Bf16, "tf32_2xbf16",
     "FP32 operands cut to TF32, products of what that loses in BF16, FP32 sums", PRECISION_TF32, 3,
     2, 24},
    {PathId::kBf16x3, "3xbf16", "FP32 operands split in three BF16 parts, FP32 sums",
     PRECISION_BF16, 6, 6, 24},
    {PathId::kTf32, "tf32", "operands rounded to TF32, FP32 sums", PRECISION_TF32, 1, 1, 24},
    {PathId::kFp16, "fp16", "FP16 operands, FP32 sums", PRECISION_FP16, 1, 1, 24},
    {PathId::kBf16, "bf16", "BF16 operands, FP32 sums", PRECISION_BF16, 1, 1, 24},
    {PathId::kFp8, "fp8", "FP8 operands, FP32 sums", PRECISION_FP8_E4M3, 1, 1, 24},
    {PathId::kInt8, "int8", "INT8 operands, exact INT32 sums", PRECISION_INT8, 1, 1, 0},
    {PathId::kW8A16, "w8a16", "8-bit weights widened, float activations, FP32 sums",
     PRECISION_DEFAULT, 1, 1, 24},
    {PathId::kW4A16, "w4a16", "INT4 weights dequantised in registers, float activations, FP32 sums",
     PRECISION_DEFAULT, 1, 1, 24},
    {PathId::kW4A8, "w4a8", "INT4 weights, 8-bit activations, scaled FP32 sums", PRECISION_DEFAULT,
     1, 1, 24},
}};

constexpr unsigned bit(gemm_precision_t precision) {
  const auto index = static_cast<unsigned>(precision);
  return index < 32 ? 1u << index : 0u;
}

constexpr unsigned kFp8Bits = bit(PRECISION_FP8_E4M3) | bit(PRECISION_FP8_E5M2);
constexpr unsigned kInt4Bits =
    bit(PRECISION_INT4) | bit(PRECISION_INT4_AWQ) | bit(PRECISION_INT4_GPTQ);
constexpr unsigned kFp32Bits = bit(PRECISION_FP32) | bit(PRECISION_TF32);
constexpr unsigned kHalfBits = bit(PRECISION_FP16) | bit(PRECISION_BF16);
constexpr unsigned kDenseBits =
    bit(PRECISION_FP64) | kFp32Bits | kHalfBits | kFp8Bits | bit(PRECISION_INT8);

// Storage that a path takes for A and B, in the order of PathId.
struct Storage {
  unsigned a;
  unsigned b;
  const char* words;
};
constexpr std::array<Storage, 14> kStorage = {{
    {kDenseBits, kDenseBits, "any dense format"},
    {kDenseBits, kDenseBits, "any dense format"},
    {kDenseBits, kDenseBits, "any dense format"},
    {kFp32Bits | kHalfBits, kFp32Bits | kHalfBits, "fp32, fp16 or bf16"},
    {kFp32Bits | kHalfBits, kFp32Bits | kHalfBits, "fp32, fp16 or bf16"},
    {kFp32Bits | kHalfBits, kFp32Bits | kHalfBits, "fp32, fp16 or bf16"},
    {kFp32Bits | kHalfBits, kFp32Bits | kHalfBits, "fp32, fp16 or bf16"},
    {kFp32Bits | kHalfBits | kFp8Bits, kFp32Bits | kHalfBits | kFp8Bits, "fp32, fp16, bf16 or fp8"},
    {kFp32Bits | kHalfBits | kFp8Bits, kFp32Bits | kHalfBits | kFp8Bits, "fp32, fp16, bf16 or fp8"},
    {kFp8Bits, kFp8Bits, "fp8 for both operands"},
    {bit(PRECISION_INT8), bit(PRECISION_INT8), "int8 for both operands"},
    {kFp32Bits | kHalfBits, kFp8Bits | bit(PRECISION_INT8),
     "fp16, bf16 or fp32 activations and int8 or fp8 weights"},
    {kFp32Bits | kHalfBits, kInt4Bits, "fp16, bf16 or fp32 activations and int4 weights"},
    {kFp8Bits | bit(PRECISION_INT8), kInt4Bits, "int8 or fp8 activations and int4 weights"},
}};

}  // namespace

std::span<const Path> all_paths() { return kPaths; }

const Path& path_info(PathId id) { return kPaths[static_cast<size_t>(id)]; }

const Path* find_path(const char* name) {
  if (name == nullptr) return nullptr;
  for (const Path& path : kPaths) {
    if (std::strcmp(path.name, name) == 0) return &path;
  }
  return nullptr;
}

gemm_precision_t multiplicand_of(const Path& path, gemm_precision_t a) {
  if (path.multiplicand != PRECISION_DEFAULT) return path.multiplicand;
  return a == PRECISION_TF32 ? PRECISION_FP32 : a;
}

std::string storage_refusal(const Path& path, gemm_precision_t a, gemm_precision_t b) {
  const Storage& storage = kStorage[static_cast<size_t>(path.id)];
  if ((storage.a & bit(a)) != 0 && (storage.b & bit(b)) != 0) return {};
  const base::FormatInfo* a_format = base::find_format(a);
  const base::FormatInfo* b_format = base::find_format(b);
  return fmt::format("path {} takes {}; A is {} and B is {}", path.name, storage.words,
                     a_format != nullptr ? a_format->name : "default",
                     b_format != nullptr ? b_format->name : "default");
}

}  // namespace deepgemm::contract
