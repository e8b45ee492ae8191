#include "schedule/tiling.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "base/formats.hpp"
#include "contract/path.hpp"
#include "schedule/refusal.hpp"

namespace deepgemm::schedule {
namespace {

// A size is legal when it is a multiple of `step`, up to `most`.
struct Edge {
  int32_t step, most;
};

// What a family can be built with, in 16-bit elements where `bytes_count`; most = 0: the family has
// no notion of it.
struct TileRules {
  const char* family;
  std::array<Edge, 3> block;  // m, n, k
  std::array<Edge, 3> warp;
  int max_warps;
  bool bytes_count;  // tiles have a fixed length in bytes along K: block_k scales with the element
};

// MMA shapes give the steps; 255 registers a thread and 1024 threads a block the ends.
constexpr TileRules kRules[] = {
    {"cpu_blocked", {{{1, 512}, {1, 4096}, {1, 4096}}}, {{{1, 0}, {1, 0}, {1, 0}}}, 0, false},
    {"cpu_amx", {{{1, 512}, {1, 4096}, {1, 4096}}}, {{{1, 0}, {1, 0}, {1, 0}}}, 0, false},
    {"simt", {{{8, 256}, {8, 256}, {8, 64}}}, {{{8, 64}, {8, 64}, {8, 64}}}, 16, false},
    {"sm70", {{{16, 256}, {16, 256}, {16, 64}}}, {{{16, 64}, {16, 64}, {16, 64}}}, 16, false},
    {"sm80", {{{16, 256}, {8, 256}, {16, 256}}}, {{{16, 64}, {8, 64}, {16, 256}}}, 16, true},
    {"sm90", {{{64, 256}, {8, 256}, {32, 128}}}, {{{16, 16}, {8, 256}, {32, 128}}}, 16, true},
    {"skinny", {{{8, 64}, {8, 128}, {64, 2048}}}, {{{8, 64}, {8, 128}, {16, 2048}}}, 32, true},
    {"w4", {{{8, 256}, {64, 256}, {64, 256}}}, {{{8, 128}, {16, 256}, {16, 256}}}, 16, true},
};

const TileRules& rules_of(const Family& family) {
  for (const TileRules& rules : kRules) {
    if (std::string_view(rules.family) == family.name) return rules;
  }
  return kRules[0];
}

using Sizes = std::array<int32_t, 3>;

Sizes blocks_of(const KernelConfig& c) { return {c.block_m, c.block_n, c.block_k}; }
Sizes warps_of(const KernelConfig& c) { return {c.warp_m, c.warp_n, c.warp_k}; }

constexpr const char* kAxes[] = {"m", "n", "k"};

int32_t nearest_legal(const Edge& edge, int32_t value) {
  const int64_t up = (int64_t{value} + edge.step - 1) / edge.step * edge.step;
  return static_cast<int32_t>(std::min<int64_t>(up, edge.most / edge.step * edge.step));
}

// One size of a block or warp against its rule.
std::optional<Refusal> check_edge(const Family& family, const char* what, int axis,
                                  const Edge& edge, int32_t value) {
  if (value >= 1 && value % edge.step == 0 && value <= edge.most) return std::nullopt;
  return refuse(Check::kTilingPolicy,
                "{}_{} is {}; {} takes multiples of {} up to {}: the nearest legal value is {}",
                what, kAxes[axis], value, family.name, edge.step, edge.most,
                nearest_legal(edge, value));
}

std::optional<Refusal> check_config(const Family& family, const KernelConfig& config) {
  const TileRules& rules = rules_of(family);
  const Sizes block = blocks_of(config);
  const Sizes warp = warps_of(config);
  int64_t warps = 1;
  for (int axis = 0; axis < 3; ++axis) {
    if (auto wrong = check_edge(family, "block", axis, rules.block[axis], block[axis]))
      return wrong;
    if (rules.max_warps == 0) continue;
    if (auto wrong = check_edge(family, "warp", axis, rules.warp[axis], warp[axis])) return wrong;
    if (block[axis] % warp[axis] != 0) {
      return refuse(
          Check::kTilingPolicy,
          "block_{0} is {1}, no multiple of warp_{0}, {2}: the nearest legal value is {3}",
          kAxes[axis], block[axis], warp[axis], std::max(block[axis] / warp[axis], 1) * warp[axis]);
    }
    warps *= block[axis] / warp[axis];
  }
  if (rules.max_warps > 0 && warps > rules.max_warps) {
    return refuse(
        Check::kTilingPolicy,
        "blocks of {}x{}x{} in warps of {}x{}x{} need {} warps; {} has at most {} a block: "
        "give larger warps or smaller blocks",
        block[0], block[1], block[2], warp[0], warp[1], warp[2], warps, family.name,
        rules.max_warps);
  }
  return std::nullopt;
}

KernelConfig scaled(const Family& family, const KernelConfig& base, int element_bits) {
  constexpr int kListedBits = 16;
  KernelConfig config = base;
  if (!rules_of(family).bytes_count) return config;
  config.block_k = base.block_k * kListedBits / element_bits;
  config.warp_k = base.warp_k * kListedBits / element_bits;
  return config;
}

// Puts the given fields in place; warps that were not given shrink until they divide the block.
KernelConfig overlay(const Family& family, const KernelConfig& base,
                     const gemm_tiling_policy_t& policy) {
  KernelConfig config = base;
  const auto put = [](int32_t& field, int32_t given) {
    if (given > 0) field = given;
  };
  put(config.block_m, policy.block_m);
  put(config.block_n, policy.block_n);
  put(config.block_k, policy.block_k);
  if (rules_of(family).max_warps == 0) return config;
  const bool whole_rows = std::string_view(family.name) == "sm90";  // a warp spans all columns
  config.warp_m = policy.warp_m > 0 ? policy.warp_m : std::gcd(base.warp_m, config.block_m);
  config.warp_n = policy.warp_n > 0 ? policy.warp_n
                  : whole_rows      ? config.block_n
                                    : std::gcd(base.warp_n, config.block_n);
  config.warp_k = policy.warp_k > 0 ? policy.warp_k
                  : whole_rows      ? config.block_k
                                    : std::gcd(base.warp_k, config.block_k);
  return config;
}

}  // namespace

bool fixes_tile(const gemm_tiling_policy_t& policy) {
  return policy.block_m > 0 || policy.block_n > 0 || policy.block_k > 0 || policy.warp_m > 0 ||
         policy.warp_n > 0 || policy.warp_k > 0;
}

Tilings apply_policy(const Family& family, const gemm_tiling_policy_t& policy, int units,
                     int element_bits) {
  Tilings tilings;
  if (policy.sm_partition > units) {
    tilings.refusal =
        refuse(Check::kTilingPolicy,
               "sm_partition is {}, but the device has {}: the nearest legal value is {}",
               policy.sm_partition, units, units);
    return tilings;
  }
  for (const KernelConfig& listed : family_configs(family)) {
    const KernelConfig base = scaled(family, listed, element_bits);
    if (!fixes_tile(policy)) {
      tilings.configs.push_back(base);
      continue;
    }
    const KernelConfig config = overlay(family, base, policy);
    auto wrong = check_config(family, config);
    if (wrong && !tilings.refusal) tilings.refusal = std::move(wrong);
    if (wrong || std::ranges::count(tilings.configs, config) > 0) continue;
    tilings.configs.push_back(config);
  }
  if (!tilings.configs.empty()) tilings.refusal.reset();
  return tilings;
}

int granted_units(const gemm_tiling_policy_t& policy, const DeviceProfile& profile,
                  const DeviceState& state) {
  if (policy.sm_partition > 0) return std::min(policy.sm_partition, profile.units);
  if (policy.sm_partition == SM_PARTITION_ALL) return profile.units;
  const double free = std::clamp(1 - state.load, 0.0, 1.0) * profile.units;
  return std::max(1, static_cast<int>(free + 0.5));
}

int tile_element_bits(const Family& family, contract::PathId path, gemm_precision_t a) {
  const bool in_double = contract::path_info(path).accumulator_bits == 53;
  if (std::string_view(family.name) == "simt") return in_double ? 64 : 32;
  // FP32 is widened behind shared memory.
  if (in_double && std::string_view(family.name) == "sm80" && a != PRECISION_FP64) return 32;
  return base::find_format(tensor_operand(path, a))->storage_bits;
}

int64_t shared_bytes(const Family& family, const KernelConfig& config, int a_bits, int b_bits) {
  if (rules_of(family).max_warps == 0 || std::string_view(family.name) == "skinny") return 0;
  const int64_t bits = (int64_t{config.block_m} * a_bits + int64_t{config.block_n} * b_bits) *
                       config.block_k * std::max(config.stages, 1);
  return bits / 8;
}

std::string config_name(const KernelConfig& c) {
  std::string name = fmt::format("{}x{}x{}", c.block_m, c.block_n, c.block_k);
  if (c.warp_m > 0) name += fmt::format(" w{}x{}x{}", c.warp_m, c.warp_n, c.warp_k);
  if (c.stages > 1) name += fmt::format(" s{}", c.stages);
  if (c.split_k > 1) name += fmt::format(" k{}", c.split_k);
  if (c.cluster > 1) name += fmt::format(" c{}", c.cluster);
  return name;
}

}  // namespace deepgemm::schedule
