#include "schedule/family.hpp"

#include <algorithm>
#include <vector>

#include "contract/bound.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;

template <class... Ids>
constexpr uint32_t path_set(Ids... ids) {
  return ((1U << static_cast<unsigned>(ids)) | ...);
}

std::vector<Family> make_families() {
  using enum PathId;
  using enum Backend;
  return {
#define PATHS(...) path_set(__VA_ARGS__)
#define DEEPGEMM_FAMILY(name, design, backend, sm_min, sm_max, paths, max_m, alignment, hopper) \
  Family{#name, design, backend, sm_min, sm_max, paths, max_m, alignment, hopper},
#include "kernels/catalog.inc"
#undef DEEPGEMM_FAMILY
#undef PATHS
  };
}

// block m, n, k; warp m, n, k; stages; split_k; cluster. block_k of CPU tiles is one value: the
// order of summation must not depend on M.
constexpr KernelConfig kCpuBlocked[] = {{512, 256, 256}, {256, 128, 256}, {64, 256, 256},
                                        {64, 64, 256},   {32, 128, 256},  {16, 256, 256},
                                        {8, 256, 256},   {8, 128, 256}};

constexpr KernelConfig kCpuAmx[] = {{512, 256, 256}, {512, 128, 256}, {128, 128, 256},
                                    {32, 256, 256},  {32, 64, 256},   {16, 128, 256},
                                    {16, 32, 256}};

constexpr KernelConfig kSimt[] = {
    {128, 128, 16, 32, 64, 16, 2, 1, 1}, {64, 64, 16, 32, 32, 16, 2, 1, 1},
    {32, 32, 32, 16, 16, 32, 2, 1, 1},   {8, 64, 32, 8, 16, 32, 2, 1, 1},
    {8, 64, 32, 8, 16, 32, 2, 8, 1},
};

constexpr KernelConfig kSm70[] = {
    {128, 128, 32, 64, 64, 32, 2, 1, 1}, {128, 64, 32, 32, 64, 32, 2, 1, 1},
    {64, 64, 32, 32, 32, 32, 2, 1, 1},   {32, 64, 32, 16, 32, 32, 2, 1, 1},
    {16, 64, 32, 16, 16, 32, 2, 4, 1},
};

// The best of some 150 that were measured on an H200, for M = 16 ... 4096; those with less shared
// memory are for chips that have less.
constexpr KernelConfig kSm80[] = {
    {128, 256, 64, 64, 64, 64, 3, 1, 1}, {128, 128, 32, 64, 64, 32, 4, 1, 1},
    {128, 128, 64, 64, 64, 64, 3, 1, 1}, {128, 128, 128, 64, 32, 128, 3, 1, 1},
    {128, 64, 32, 64, 32, 32, 4, 1, 1},  {64, 128, 32, 32, 64, 32, 4, 1, 1},
    {128, 128, 32, 32, 64, 32, 4, 1, 1}, {64, 64, 128, 32, 32, 128, 3, 1, 1},
    {64, 64, 64, 32, 32, 64, 4, 1, 1},   {64, 32, 128, 32, 16, 128, 6, 1, 1},
    {32, 32, 128, 16, 16, 128, 6, 1, 1}, {16, 32, 256, 16, 16, 256, 5, 1, 1},
    {16, 64, 128, 16, 16, 128, 6, 1, 1}, {16, 32, 128, 16, 16, 128, 8, 1, 1},
    {16, 64, 64, 16, 16, 64, 4, 1, 1},   {64, 128, 32, 32, 64, 32, 4, 4, 1},
    {32, 64, 64, 16, 32, 64, 4, 4, 1},
};

// A warp group of four warps owns 64 rows: 16 a warp.
constexpr KernelConfig kSm90[] = {
    {128, 256, 64, 16, 256, 64, 4, 1, 2}, {128, 128, 64, 16, 128, 64, 6, 1, 2},
    {128, 192, 64, 16, 192, 64, 5, 1, 2}, {64, 256, 64, 16, 256, 64, 5, 1, 1},
    {64, 128, 64, 16, 128, 64, 8, 1, 1},  {64, 64, 64, 16, 64, 64, 8, 1, 1},
    {64, 32, 64, 16, 32, 64, 8, 1, 1},    {64, 128, 64, 16, 128, 64, 8, 4, 1},
};

// Warps split block_k among them; block_n is chosen so that blocks come near the number of SMs.
constexpr KernelConfig kSkinny[] = {
    {8, 32, 512, 8, 32, 64, 4, 1, 1},   {8, 16, 1024, 8, 16, 64, 4, 1, 1},
    {8, 64, 512, 8, 64, 64, 3, 1, 1},   {8, 32, 256, 8, 32, 32, 4, 1, 1},
    {16, 32, 512, 16, 32, 64, 4, 1, 1}, {16, 16, 1024, 16, 16, 64, 3, 1, 1},
    {16, 32, 256, 16, 32, 32, 4, 1, 1}, {32, 32, 128, 32, 32, 32, 6, 1, 1},
    {64, 32, 128, 64, 32, 32, 4, 1, 1}, {64, 64, 128, 64, 64, 32, 6, 1, 1},
    {64, 32, 128, 64, 32, 32, 8, 2, 2},
};

// Weights are the row operand: a warp owns 16 columns of N.
constexpr KernelConfig kW4[] = {
    {8, 64, 128, 8, 16, 32, 4, 1, 1},     {8, 64, 128, 8, 16, 32, 4, 4, 1},
    {16, 64, 128, 16, 16, 128, 6, 1, 1},  {16, 64, 128, 16, 16, 128, 6, 4, 1},
    {32, 64, 128, 32, 16, 128, 6, 1, 1},  {32, 64, 128, 32, 16, 128, 6, 4, 1},
    {64, 64, 128, 64, 16, 128, 4, 1, 1},  {64, 64, 128, 64, 16, 128, 4, 4, 1},
    {128, 128, 64, 128, 16, 64, 5, 1, 1}, {128, 128, 64, 128, 16, 64, 5, 4, 1},
    {256, 128, 64, 128, 16, 64, 4, 1, 1},
};

struct FamilyConfigs {
  const char* name;
  std::span<const KernelConfig> configs;
};

constexpr FamilyConfigs kConfigs[] = {
    {"cpu_blocked", kCpuBlocked},
    {"cpu_amx", kCpuAmx},
    {"simt", kSimt},
    {"sm70", kSm70},
    {"sm80", kSm80},
    {"sm90", kSm90},
    {"w4", kW4},
    {"skinny", kSkinny},
};

// FMA in FP32 or FP64, one rounding a product, to nearest.
contract::Accumulation fma_sums(PathId path, const KernelConfig& config) {
  contract::Accumulation sum;
  const contract::Path& info = contract::path_info(path);
  sum.bits = info.accumulator_bits == 53 ? 53 : 24;
  sum.promoted_bits = sum.bits;
  sum.chain = config.block_k;
  return sum;
}

// Tile units of a CPU: a step adds 16 pairs of BF16 products in two chains, the steps are added in
// FP32, subnormals are zero throughout (kernels/cpu/amx.hpp). Launches whose weights do not suit
// the tiles sum as cpu_blocked does; the chain covers both.
contract::Accumulation tile_sums(const KernelConfig& config, int64_t k) {
  constexpr int64_t kStep = 32;
  contract::Accumulation sum;
  sum.chain = std::max<int64_t>(config.block_k, kStep + (k + kStep - 1) / kStep);
  sum.flushes_subnormals = true;
  return sum;
}

// Tensor cores: what the profile says of them.
contract::Accumulation tensor_sums(PathId path, const KernelConfig& config,
                                   const DeviceProfile& profile) {
  constexpr int kFp8Step = 32;                             // k of one FP8 MMA
  if (contract::path_info(path).accumulator_bits == 53) {  // as FMA; nothing is promoted
    contract::Accumulation sum = fma_sums(path, config);
    sum.chain = 0;
    return sum;
  }
  contract::Accumulation sum;
  sum.bits = profile.tensor_accumulator_bits;
  sum.truncates = profile.tensor_truncates;
  sum.aligned_bits = profile.tensor_aligned_bits;
  sum.step = contract::path_info(path).multiplicand == PRECISION_TF32 ? profile.tf32_step
             : path == PathId::kFp8 || path == PathId::kW4A8          ? kFp8Step
                                                                      : profile.half_step;
  // INT4 weights times FP8 activations run as FP8; times INT8 activations they are exact anyway.
  if (path == PathId::kFp8 || path == PathId::kW4A8) {
    sum.bits = profile.fp8_accumulator_bits;
    sum.aligned_bits = 0;
    sum.chain = contract::kPromotionInterval;  // promoted to FP32 every 128 products
  }
  const int64_t warps_k = config.warp_k > 0 ? config.block_k / config.warp_k : 1;
  sum.splits = std::max<int64_t>(warps_k, 1);
  return sum;
}

}  // namespace

std::span<const Family> all_families() {
  static const std::vector<Family> families = make_families();
  return families;
}

const Family* find_family(const std::string& name) {
  for (const Family& family : all_families()) {
    if (name == family.name) return &family;
  }
  return nullptr;
}

std::string path_names(const Family& family) {
  std::string names;
  for (const contract::Path& path : contract::all_paths()) {
    if (!family.supports(path.id)) continue;
    if (!names.empty()) names += ", ";
    names += path.name;
  }
  return names;
}

std::span<const KernelConfig> family_configs(const Family& family) {
  for (const FamilyConfigs& entry : kConfigs) {
    if (std::string_view(entry.name) == family.name) return entry.configs;
  }
  return {};
}

bool uses_tensor_cores(const Family& family, PathId path) {
  const std::string_view name = family.name;
  if (name == "cpu_blocked" || name == "simt") return false;
  return path != PathId::kFp32;  // skinny multiplies FP32 with FMA
}

gemm_precision_t tensor_operand(PathId path, gemm_precision_t a) {
  const contract::Path& info = contract::path_info(path);
  return info.accumulator_bits == 53 ? PRECISION_FP64 : contract::multiplicand_of(info, a);
}

contract::Accumulation accumulation(const Family& family, PathId path, const KernelConfig& config,
                                    const DeviceProfile& profile, int64_t k, int64_t group_size) {
  constexpr double kFp32Roundoff = 0x1p-24;
  const std::string_view name = family.name;
  const bool tensor = uses_tensor_cores(family, path);
  contract::Accumulation sum = name == "cpu_amx" ? tile_sums(config, k)
                               : tensor          ? tensor_sums(path, config, profile)
                                                 : fma_sums(path, config);
  const bool grouped = group_size > 0 && group_size < k;
  if (path == PathId::kInt8) {
    // Exact until INT32 is full; then the sums are added in FP64, or scaled into FP32 after each
    // group.
    sum = {};
    sum.bits = 31;
    sum.chain = std::min(std::max<int64_t>(k, 1), grouped ? group_size : kInt32Products);
    sum.promoted_bits = grouped ? 24 : 53;
  } else if (tensor && name != "cpu_amx" && (grouped || name == "w4")) {
    // Scales are applied to the sums of each group, in FP32.
    const int64_t group = group_size > 0 ? group_size : config.block_k;
    sum.chain = sum.chain > 0 ? std::min(sum.chain, group) : group;
  }
  if (path == PathId::kW4A16 || path == PathId::kW4A8 ||
      (path == PathId::kW8A16 && name == "cpu_amx")) {
    // Code minus zero point is exact; times an FP16 or BF16 scale it is exact in FP32, times an
    // FP32 scale it rounds once. Planning does not know the scales' format.
    sum.dequant_roundoff = kFp32Roundoff;
  }
  if (path == PathId::kW4A16 && (name == "sm70" || name == "sm80")) sum.dequant_rounds = true;
  sum.splits *= std::max(config.split_k, 1);
  return sum;
}

}  // namespace deepgemm::schedule
