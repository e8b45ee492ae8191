#include "schedule/family.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "schedule/test_problems.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;

const Family& family_of(const char* name) { return *find_family(name); }

TEST(Family, CatalogueIsUniqueAndEveryFamilyHasConfigurations) {
  std::set<std::string> names;
  for (const Family& family : all_families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family_configs(family).empty()) << family.name;
    EXPECT_NE(family.paths, 0U) << family.name;
    EXPECT_FALSE(path_names(family).empty());
  }
  EXPECT_EQ(find_family("sm91"), nullptr);
}

TEST(Family, EveryListedConfigurationObeysTheRulesForPolicies) {
  for (const Family& family : all_families()) {
    for (const KernelConfig& config : family_configs(family)) {
      gemm_tiling_policy_t policy = {config.block_m,
                                     config.block_n,
                                     config.block_k,
                                     config.warp_m,
                                     config.warp_n,
                                     config.warp_k,
                                     0,
                                     L2_PREFETCH_DEFAULT,
                                     {}};
      const Tilings tilings = apply_policy(family, policy, 1, 16);
      EXPECT_FALSE(tilings.refusal.has_value()) << family.name << " " << config_name(config) << ": "
                                                << (tilings.refusal ? tilings.refusal->reason : "");
    }
  }
}

TEST(Family, CpuTilesShareOneBlockOfK) {
  for (const char* name : {"cpu_blocked", "cpu_amx"}) {
    std::set<int32_t> block_k;
    for (const KernelConfig& config : family_configs(family_of(name))) {
      block_k.insert(config.block_k);
    }
    EXPECT_EQ(block_k.size(), 1U);
    EXPECT_EQ(config_name(family_configs(family_of(name)).front()), "512x256x256");
  }
}

TEST(Accumulation, OnACpuRoundsEachProductToNearestAndPromotesEveryBlock) {
  const Family& cpu = family_of("cpu_blocked");
  const KernelConfig config = family_configs(cpu).front();
  const auto sums = accumulation(cpu, PathId::kFp16, config, profile_of("cpu"), 4096);
  EXPECT_EQ(sums.bits, 24);
  EXPECT_FALSE(sums.truncates);
  EXPECT_EQ(sums.step, 1);
  EXPECT_EQ(sums.chain, 256);
  EXPECT_EQ(sums.promoted_bits, 24);
  EXPECT_EQ(accumulation(cpu, PathId::kFp32Acc64, config, profile_of("cpu"), 4096).bits, 53);
}

// 32 products in chains of 16 pairs, then K / 32 steps; never less than the FMA kernel that takes
// the place of tiles.
TEST(Accumulation, OnTileUnitsCountsTheStepsAndFlushesSubnormals) {
  const Family& tiles = family_of("cpu_amx");
  const KernelConfig config = family_configs(tiles).front();
  const auto sums = accumulation(tiles, PathId::kBf16, config, profile_of("cpu"), 4096);
  EXPECT_EQ(sums.bits, 24);
  EXPECT_EQ(sums.chain, 256);
  EXPECT_TRUE(sums.flushes_subnormals);
  EXPECT_EQ(accumulation(tiles, PathId::kBf16, config, profile_of("cpu"), 32768).chain, 1056);
  EXPECT_GT(
      accumulation(tiles, PathId::kW4A16, config, profile_of("cpu"), 4096, 128).dequant_roundoff,
      0);
}

TEST(Accumulation, OfInt8NeverOverflowsInt32) {
  const Family& cpu = family_of("cpu_blocked");
  const KernelConfig config = family_configs(cpu).front();
  for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{1} << 40}) {
    const auto sums = accumulation(cpu, PathId::kInt8, config, profile_of("cpu"), k);
    EXPECT_LT(sums.chain * 128 * 128, int64_t{1} << 31);
    EXPECT_GE(sums.chain, 1);
  }
}

TEST(Accumulation, OnTensorCoresTakesTheFactsOfTheChip) {
  const KernelConfig config = family_configs(family_of("sm90")).front();
  const auto half =
      accumulation(family_of("sm90"), PathId::kBf16, config, profile_of("h200"), 4096);
  EXPECT_TRUE(half.truncates);
  EXPECT_EQ(half.step, 16);
  EXPECT_EQ(half.aligned_bits, 26);
  EXPECT_EQ(half.chain, 0);
  const auto fp8 = accumulation(family_of("sm90"), PathId::kFp8, config, profile_of("h200"), 4096);
  EXPECT_EQ(fp8.bits, 14);
  EXPECT_EQ(fp8.chain, 128);
  EXPECT_EQ(fp8.promoted_bits, 24);
}

TEST(Accumulation, CountsSplitsOfKOverBlocksAndWarps) {
  const KernelConfig config = {8, 32, 512, 8, 32, 64, 4, 2, 1};
  const auto sums =
      accumulation(family_of("skinny"), PathId::kFp16, config, profile_of("h200"), 4096);
  EXPECT_EQ(sums.splits, 16);
}

TEST(Accumulation, AppliesGroupScalesToEachGroup) {
  const KernelConfig config = family_configs(family_of("w4")).front();
  const auto sums =
      accumulation(family_of("w4"), PathId::kW4A16, config, profile_of("h200"), 4096, 32);
  EXPECT_EQ(sums.chain, 32);
  EXPECT_GT(sums.dequant_roundoff, 0);
  EXPECT_FALSE(sums.dequant_rounds);
  const auto widened =
      accumulation(family_of("sm80"), PathId::kW4A16, config, profile_of("a100"), 4096, 128);
  EXPECT_TRUE(widened.dequant_rounds);
}

}  // namespace
}  // namespace deepgemm::schedule
