// Tilings: what each family can be built with, and a caller's policy laid over its configurations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/family.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::schedule {

// Configurations to consider for operands of at most `element_bits` each: those of the family
// without a policy, with block_k in elements of that width (family_configs counts 16-bit elements
// where rows of shared memory have a fixed length in bytes); with a policy, each with the given
// fields in place, kept when the family can be built like that. When none is left, `refusal` tells
// the field, its value, the rule and the nearest legal value.
struct Tilings {
  std::vector<KernelConfig> configs;
  std::optional<Refusal> refusal;
};
Tilings apply_policy(const Family& family, const gemm_tiling_policy_t& policy, int units,
                     int element_bits);

// True when the policy fixes a tile (sm_partition and l2_prefetch do not).
bool fixes_tile(const gemm_tiling_policy_t& policy);

// SMs or threads that a policy grants on a device in this state. DYNAMIC: those not busy, at
// least 1.
int granted_units(const gemm_tiling_policy_t& policy, const DeviceProfile& profile,
                  const DeviceState& state);

// Elements as tiles in shared memory hold them: as the multiplier takes them; simt's are widened to
// its sums.
int tile_element_bits(const Family& family, contract::PathId path, gemm_precision_t a);

// Bytes of shared memory that the stages of a tile take; 0 for families whose tiles lie elsewhere
// (skinny loads into registers).
int64_t shared_bytes(const Family& family, const KernelConfig& config, int a_bits, int b_bits);

// "128x256x64 w16x256x64 s4 k2 c2": block, warps, stages, split-K and cluster, unless 0 or 1.
std::string config_name(const KernelConfig& config);

}  // namespace deepgemm::schedule
