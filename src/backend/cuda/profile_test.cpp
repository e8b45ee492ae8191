#include "backend/cuda/profile.hpp"

#include <gtest/gtest.h>

namespace deepgemm::cuda {
namespace {

DeviceFacts facts(const std::string& title, int sm, int sms) {
  DeviceFacts of;
  of.ordinal = 1;
  of.title = title;
  of.sm = sm;
  of.sms = sms;
  of.l2_bytes = 60 << 20;
  of.memory_bytes = int64_t{150} << 30;
  of.shared_bytes_per_block = 227 << 10;
  of.memory_clock_khz = 3201000;
  of.memory_bus_bits = 6144;
  return of;
}

TEST(CudaProfile, KnowsTheShippedChipsByTheirTitles) {
  const auto same_rates = [](const char* title, int sm, int sms, const char* name) {
    const schedule::DeviceProfile made = device_profile(facts(title, sm, sms));
    const schedule::DeviceProfile* shipped = schedule::find_profile(name);
    EXPECT_EQ(made.peak.bf16, shipped->peak.bf16) << title;
    EXPECT_EQ(made.bandwidth_gbs, shipped->bandwidth_gbs) << title;
    EXPECT_EQ(made.name, "cuda:1");
    EXPECT_EQ(made.title, title);
  };
  same_rates("NVIDIA H200", 90, 132, "h200");
  same_rates("NVIDIA A100-SXM4-80GB", 80, 108, "a100");
  same_rates("NVIDIA GeForce RTX 4090", 89, 128, "rtx4090");
  same_rates("NVIDIA L40S", 89, 142, "l40s");
  same_rates("Tesla V100-SXM2-32GB", 70, 80, "v100");
}

TEST(CudaProfile, TakesSizesFromTheDriver) {
  const schedule::DeviceProfile made = device_profile(facts("NVIDIA H200", 90, 132));
  EXPECT_EQ(made.units, 132);
  EXPECT_EQ(made.l2_bytes, 60 << 20);
  EXPECT_EQ(made.sm, 90);
}

TEST(CudaProfile, EstimatesAnUnknownChipFromItsGeneration) {
  const schedule::DeviceProfile made = device_profile(facts("NVIDIA X100", 90, 66));
  EXPECT_GT(made.peak.bf16, 0);
  EXPECT_NE(made.source.find("estimated"), std::string::npos);
  EXPECT_NEAR(made.bandwidth_gbs, 2 * 3201e6 * 6144 / 8 / 1e9, 1);
  const schedule::DeviceProfile newer = device_profile(facts("NVIDIA GB10", 121, 48));
  EXPECT_EQ(newer.sm, 121);
  EXPECT_NE(newer.source.find("rtx5090"), std::string::npos) << newer.source;
}

TEST(CudaProfile, ScalesAPartOfAChip) {
  const schedule::DeviceProfile part = device_profile(facts("NVIDIA H200", 90, 16));
  EXPECT_LT(part.peak.bf16, schedule::find_profile("h200")->peak.bf16 / 8);
  EXPECT_EQ(part.units, 16);
}

}  // namespace
}  // namespace deepgemm::cuda
