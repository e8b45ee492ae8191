#include "schedule/profile.hpp"

#include <gtest/gtest.h>

#include <set>

namespace deepgemm::schedule {
namespace {

TEST(Profile, ShipsEveryChipOfTheMission) {
  for (const char* name :
       {"v100", "t4", "a100", "a10", "l4", "l40s", "rtx4090", "h100", "h200", "h20", "b200",
        "rtx5090", "cpu_generic", "cpu_avx2", "cpu_avx512", "cpu_amx"}) {
    EXPECT_NE(find_profile(name), nullptr) << name;
  }
  EXPECT_EQ(find_profile("h2000"), nullptr);
}

TEST(Profile, NamesAreUniqueAndFactsHaveASource) {
  std::set<std::string> names;
  for (const DeviceProfile& profile : all_profiles()) {
    EXPECT_TRUE(names.insert(profile.name).second) << profile.name;
    EXPECT_FALSE(profile.source.empty()) << profile.name;
    EXPECT_GT(profile.units, 0) << profile.name;
    EXPECT_GT(profile.peak.fp32, 0) << profile.name;
    EXPECT_GT(profile.bandwidth_gbs, 0) << profile.name;
    EXPECT_GT(profile.shared_bytes_per_block, 0) << profile.name;
  }
}

TEST(Profile, LeavesOutUnitsThatAChipDoesNotHave) {
  EXPECT_EQ(find_profile("v100")->peak.bf16, 0);
  EXPECT_EQ(find_profile("t4")->peak.tf32, 0);
  EXPECT_EQ(find_profile("a100")->peak.fp8, 0);
  EXPECT_GT(find_profile("l4")->peak.fp8, 0);
}

TEST(Profile, TakesMeasuredCeilingsOfTheH200AtFaceValue) {
  const DeviceProfile& h200 = *find_profile("h200");
  EXPECT_EQ(h200.bandwidth_gbs, 4685);
  EXPECT_EQ(h200.peak.bf16, 805);
  EXPECT_EQ(h200.peak.fp8, 1548);
  EXPECT_EQ(h200.peak.int8, 962);
  EXPECT_EQ(h200.attainable_compute, 1);
  EXPECT_EQ(h200.tensor_aligned_bits, 26);
  EXPECT_EQ(h200.fp8_accumulator_bits, 14);
}

TEST(Profile, ScalesCpusWithThreads) {
  const DeviceProfile one = cpu_profile("avx2", 1);
  const DeviceProfile two = cpu_profile("avx2", 2);
  EXPECT_NEAR(one.peak.fp32, 0.120, 1e-12);
  EXPECT_NEAR(two.peak.fp32, 0.240, 1e-12);
  EXPECT_EQ(one.bandwidth_gbs, 15);
  EXPECT_EQ(two.bandwidth_gbs, 30);
  EXPECT_EQ(cpu_profile("avx2", 0).units, 1);
  EXPECT_EQ(cpu_profile("avx2", 64).bandwidth_gbs, cpu_profile("avx2", 8).bandwidth_gbs);
}

TEST(Profile, SaysWhenAnInstructionSetHasNoFigures) {
  const DeviceProfile neon = cpu_profile("neon", 4);
  EXPECT_EQ(neon.name, "cpu_neon");
  EXPECT_NE(neon.source.find("no figures for neon"), std::string::npos);
}

}  // namespace
}  // namespace deepgemm::schedule
