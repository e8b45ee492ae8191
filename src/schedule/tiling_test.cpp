#include "schedule/tiling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/test_problems.hpp"

namespace deepgemm::schedule {
namespace {

using testing::HasSubstr;

gemm_tiling_policy_t policy(int32_t m, int32_t n, int32_t k, int32_t wm = 0, int32_t wn = 0,
                            int32_t wk = 0) {
  return {m, n, k, wm, wn, wk, 0, L2_PREFETCH_DEFAULT, {}};
}

TEST(Tiling, ObeysAnyPositiveTileOnACpuWithinItsLimits) {
  const Family& cpu = *find_family("cpu_blocked");
  for (const auto& tile : {policy(1, 1, 1), policy(512, 4096, 4096), policy(33, 77, 5)}) {
    const Tilings tilings = apply_policy(cpu, tile, 2, 32);
    ASSERT_EQ(tilings.configs.size(), 1U);
    EXPECT_EQ(tilings.configs[0].block_m, tile.block_m);
    EXPECT_EQ(tilings.configs[0].block_n, tile.block_n);
    EXPECT_EQ(tilings.configs[0].block_k, tile.block_k);
  }
}

TEST(Tiling, RefusesWithTheNearestLegalValueWhichThenPasses) {
  const Family& cpu = *find_family("cpu_blocked");
  const Tilings refused = apply_policy(cpu, policy(1000, 0, 0), 2, 32);
  ASSERT_TRUE(refused.refusal.has_value());
  EXPECT_EQ(refused.refusal->check, "tiling_policy");
  EXPECT_THAT(refused.refusal->reason, HasSubstr("block_m is 1000"));
  EXPECT_THAT(refused.refusal->reason, HasSubstr("nearest legal value is 512"));
  EXPECT_FALSE(apply_policy(cpu, policy(512, 0, 0), 2, 32).refusal.has_value());

  const Family& sm90 = *find_family("sm90");
  const Tilings odd = apply_policy(sm90, policy(96, 128, 64), 132, 16);
  ASSERT_TRUE(odd.refusal.has_value());
  EXPECT_THAT(odd.refusal->reason, HasSubstr("nearest legal value is 128"));
  EXPECT_FALSE(apply_policy(sm90, policy(128, 128, 64), 132, 16).refusal.has_value());
}

TEST(Tiling, RefusesMoreWarpsThanABlockHas) {
  const Tilings tilings =
      apply_policy(*find_family("sm80"), policy(64, 128, 32, 16, 16, 16), 108, 16);
  ASSERT_TRUE(tilings.refusal.has_value());
  EXPECT_THAT(tilings.refusal->reason, HasSubstr("need 64 warps"));
}

TEST(Tiling, KeepsEveryGivenField) {
  const Tilings tilings =
      apply_policy(*find_family("sm80"), policy(128, 128, 32, 64, 64, 0), 108, 16);
  ASSERT_FALSE(tilings.configs.empty());
  for (const KernelConfig& config : tilings.configs) {
    EXPECT_EQ(config.block_m, 128);
    EXPECT_EQ(config.block_n, 128);
    EXPECT_EQ(config.block_k, 32);
    EXPECT_EQ(config.warp_m, 64);
    EXPECT_EQ(config.warp_n, 64);
    EXPECT_EQ(config.block_k % config.warp_k, 0);
  }
}

TEST(Tiling, KeepsRowsOfSharedMemoryAtTheirLengthInBytes) {
  const Family& sm90 = *find_family("sm90");
  EXPECT_EQ(apply_policy(sm90, {}, 132, 8).configs.front().block_k, 128);
  EXPECT_EQ(apply_policy(sm90, {}, 132, 16).configs.front().block_k, 64);
  EXPECT_EQ(apply_policy(sm90, {}, 132, 32).configs.front().block_k, 32);
}

TEST(Tiling, GrantsUnitsAsThePartitionSays) {
  const DeviceProfile a100 = profile_of("a100");
  gemm_tiling_policy_t tiling = {};
  EXPECT_EQ(granted_units(tiling, a100, {}), 108);
  tiling.sm_partition = 20;
  EXPECT_EQ(granted_units(tiling, a100, {}), 20);
  tiling.sm_partition = SM_PARTITION_DYNAMIC;
  EXPECT_EQ(granted_units(tiling, a100, {0.5, 0, 0}), 54);
  EXPECT_EQ(granted_units(tiling, a100, {1.0, 0, 0}), 1);
}

TEST(Tiling, RefusesAPartitionLargerThanTheDevice) {
  gemm_tiling_policy_t tiling = {};
  tiling.sm_partition = 3;
  const Tilings tilings = apply_policy(*find_family("cpu_blocked"), tiling, 2, 32);
  ASSERT_TRUE(tilings.refusal.has_value());
  EXPECT_THAT(tilings.refusal->reason, HasSubstr("sm_partition is 3, but the device has 2"));
}

}  // namespace
}  // namespace deepgemm::schedule
