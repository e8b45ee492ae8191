// Kernel families: what they can compute, on what, in which configurations. Filled from
// kernels/catalog.inc, the one list that also feeds tests, benches, docs and `deepgemm list`.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "contract/path.hpp"
#include "deepgemm/types.h"
#include "schedule/profile.hpp"

namespace deepgemm::schedule {

// Parameters of one kernel instance. CPU families use block_* only.
struct KernelConfig {
  int32_t block_m = 0, block_n = 0, block_k = 0;
  int32_t warp_m = 0, warp_n = 0, warp_k = 0;
  int32_t stages = 0;
  int32_t split_k = 1;
  int32_t cluster = 1;

  bool operator==(const KernelConfig&) const = default;
};

struct Family {
  const char* name;    // "cpu_blocked", "cpu_amx", "simt", "sm80", "sm90", "skinny", "w4", "sm70"
  const char* design;  // one phrase
  Backend backend;
  int sm_min, sm_max;  // inclusive; 0, 0 for CPUs
  uint32_t paths;      // bit i: PathId i
  int64_t max_m;       // 0: any
  int32_t alignment;   // elements that leading strides must divide by; 1: any
  bool hopper_opt;     // only with deepgemm_enable_hopper_opt(true)

  bool supports(contract::PathId path) const { return (paths >> static_cast<unsigned>(path)) & 1U; }
};

// Products of 8-bit codes whose sum stays within INT32: each is at most 2^14 (zero point included
// for INT4: 15 * 128). A multiple of every block_k up to 4096.
constexpr int64_t kInt32Products = 126976;

std::span<const Family> all_families();
const Family* find_family(const std::string& name);

// "fp16, w8a16": names of the paths of a family.
std::string path_names(const Family& family);

// Configurations of a family, best guess first. All of them are candidates for every M: the set of
// kernels is finite. Tilings given by the caller come on top (tiling.hpp).
std::span<const KernelConfig> family_configs(const Family& family);

// Tensor cores of a GPU or tile units of a CPU. False: FMA on vector or CUDA cores.
bool uses_tensor_cores(const Family& family, contract::PathId path);

// What tensor cores multiply on this path when A is stored as `a`: its multiplicand, but FP64 where
// sums are FP64.
gemm_precision_t tensor_operand(contract::PathId path, gemm_precision_t a);

// How the family sums K products with this path and configuration on this chip. group_size: of
// quantised weights, 0 when there are none.
contract::Accumulation accumulation(const Family& family, contract::PathId path,
                                    const KernelConfig& config, const DeviceProfile& profile,
                                    int64_t k, int64_t group_size = 0);

}  // namespace deepgemm::schedule
