#include "backend/cuda/nvml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "backend/cuda/cuda_fixture.hpp"
#include "backend/cuda/nvml_sampler.hpp"

namespace deepgemm::cuda {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kUuid = "GPU-a0010203";
constexpr milliseconds kPatience{5000};

std::atomic<int> clock_calls{0};
std::atomic<int> init_result{0};
std::atomic<int> power_result{0};

// An NVML that knows one GPU.
Nvml fake_nvml() {
  init_result = 0;
  power_result = 0;
  Nvml nvml;
  nvml.error_text = [](int) { return "Driver Not Loaded"; };
  nvml.init = [] { return init_result.load(); };
  nvml.handle_by_uuid = [](const char* uuid, NvmlDevice* device) {
    *device = reinterpret_cast<NvmlDevice>(0x10);
    return std::strcmp(uuid, kUuid) == 0 ? 0 : 6;
  };
  nvml.clock = [](NvmlDevice, int kind, unsigned* mhz) {
    ++clock_calls;
    *mhz = kind == 1 ? 1755 : 3201;
    return 0;
  };
  nvml.max_clock = [](NvmlDevice, int, unsigned* mhz) {
    *mhz = 1980;
    return 0;
  };
  nvml.power = [](NvmlDevice, unsigned* milliwatts) {
    *milliwatts = 700500;
    return power_result.load();
  };
  nvml.energy = [](NvmlDevice, unsigned long long* millijoules) {
    *millijoules = 5'000'000'000'000;
    return 0;
  };
  nvml.temperature = [](NvmlDevice, int, unsigned* celsius) {
    *celsius = 64;
    return 0;
  };
  nvml.utilization = [](NvmlDevice, NvmlUtilization* percent) {
    *percent = {87, 25};
    return 0;
  };
  nvml.memory = [](NvmlDevice, NvmlMemory* bytes) {
    *bytes = {100, 60, 40};
    return 0;
  };
  nvml.throttle = [](NvmlDevice, unsigned long long* reasons) {
    *reasons = 0x25;
    return 0;
  };
  return nvml;
}

TEST(Nvml, GivesMetricsInTheirUnits) {
  const Nvml nvml = fake_nvml();
  const std::pair<Metric, double> expected[] = {
      {Metric::kSmClock, 1755}, {Metric::kMaxSmClock, 1980}, {Metric::kMemoryClock, 3201},
      {Metric::kPower, 700.5},  {Metric::kEnergy, 5e9},      {Metric::kTemperature, 64},
      {Metric::kSmLoad, 0.87},  {Metric::kMemoryLoad, 0.25}, {Metric::kFreeMemory, 60},
      {Metric::kThrottle, 0x25}};
  for (const auto& [metric, value] : expected) {
    const auto read = read_metric(nvml, nullptr, metric);
    ASSERT_TRUE(read.has_value()) << metric_name(metric);
    EXPECT_DOUBLE_EQ(*read, value) << metric_name(metric);
  }
}

TEST(Nvml, TakesAMissingCallAndAFailureAsUnknown) {
  Nvml nvml = fake_nvml();
  EXPECT_FALSE(read_metric(nvml, nullptr, Metric::kPowerLimit).has_value());  // no such call
  power_result = 3;                                                           // not supported
  EXPECT_FALSE(read_metric(nvml, nullptr, Metric::kPower).has_value());
  for (size_t i = 0; i < kMetrics; ++i) {
    EXPECT_FALSE(read_metric(Nvml{}, nullptr, static_cast<Metric>(i)).has_value());
  }
}

TEST(Nvml, LoadsWhatALibraryHas) {
  std::vector<std::string> asked;
  const Nvml nvml = load_nvml([&](const char* name) -> void* {
    asked.emplace_back(name);
    return asked.back() == "nvmlInit_v2" ? reinterpret_cast<void*>(0x10) : nullptr;
  });
  EXPECT_NE(nvml.init, nullptr);
  EXPECT_EQ(nvml.power, nullptr);
  EXPECT_THAT(asked, ::testing::Contains("nvmlDeviceGetHandleByUUID"));
}

TEST(Nvml, NamesEveryMetricAndEveryReason) {
  EXPECT_STREQ(metric_name(Metric::kSmClock), "sm_clock");
  EXPECT_STREQ(metric_unit(Metric::kPower), "W");
  EXPECT_THAT(throttle_reasons(0x25), ElementsAre("power cap", "software thermal"));
  EXPECT_THAT(throttle_reasons(1), IsEmpty());  // idle
  EXPECT_EQ(throttle_reasons(0x1FE).size(), 8U);
}

class NvmlSamplerTest : public ::testing::Test {
 protected:
  // Waits until `done`, at most some seconds.
  static bool eventually(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  Nvml nvml_ = fake_nvml();
};

TEST_F(NvmlSamplerTest, StartsAtTheFirstQuestionWithoutWaiting) {
  const int before = clock_calls;
  NvmlSampler sampler(&nvml_);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(clock_calls, before);  // nobody has asked
  const Telemetry first = sampler.latest(kUuid);
  EXPECT_FALSE(first[Metric::kPower].value.has_value());
  EXPECT_THAT(first.unknown_because, HasSubstr("first sample"));
  EXPECT_TRUE(eventually([&] { return sampler.latest(kUuid)[Metric::kPower].value == 700.5; }));
  EXPECT_EQ(sampler.latest(kUuid).unknown_because, "");
}

TEST_F(NvmlSamplerTest, SamplesAgainAndAgainWithTheAge) {
  NvmlSampler sampler(&nvml_, {.period = milliseconds(2)});
  const Telemetry first = sampler.fresh(kUuid, kPatience);
  EXPECT_EQ(first[Metric::kSmClock].value, 1755);
  EXPECT_LT(first[Metric::kSmClock].age, kPatience);
  const int before = clock_calls;
  EXPECT_TRUE(eventually([&] { return clock_calls > before + 20; }));
}

TEST_F(NvmlSamplerTest, IsParkedWhileNobodyAsksAndGoesOnWhenAsked) {
  NvmlSampler sampler(&nvml_, {.period = milliseconds(1), .park_after = milliseconds(30)});
  ASSERT_TRUE(sampler.fresh(kUuid, kPatience)[Metric::kPower].value.has_value());
  // Parked once a while passes without a sample.
  EXPECT_TRUE(eventually([&] {
    const int before = clock_calls;
    std::this_thread::sleep_for(milliseconds(60));
    return clock_calls == before;
  }));
  const auto age = sampler.latest(kUuid)[Metric::kPower].age;
  EXPECT_GE(age, milliseconds(50));  // the old sample says that it is old
  const int before = clock_calls;
  EXPECT_TRUE(eventually([&] { return clock_calls > before; }));
}

TEST_F(NvmlSamplerTest, ForgetsAValueThatCannotBeReadAnyMore) {
  NvmlSampler sampler(&nvml_);
  ASSERT_TRUE(sampler.fresh(kUuid, kPatience)[Metric::kPower].value.has_value());
  power_result = 15;  // GPU is lost
  const Telemetry later = sampler.fresh(kUuid, kPatience);
  EXPECT_FALSE(later[Metric::kPower].value.has_value());
  EXPECT_TRUE(later[Metric::kSmClock].value.has_value());
}

TEST_F(NvmlSamplerTest, SaysWhyNothingIsKnown) {
  NvmlSampler none(nullptr);
  EXPECT_THAT(none.latest(kUuid).unknown_because, HasSubstr("does not open"));
  EXPECT_THAT(none.fresh(kUuid, kPatience).unknown_because, HasSubstr("does not open"));
  const Nvml empty;
  NvmlSampler useless(&empty);
  EXPECT_THAT(useless.fresh(kUuid, kPatience).unknown_because, HasSubstr("nvmlInit_v2"));
  init_result = 9;
  NvmlSampler failing(&nvml_);
  EXPECT_THAT(failing.fresh(kUuid, kPatience).unknown_because, HasSubstr("Driver Not Loaded"));
}

TEST_F(NvmlSamplerTest, SaysThatAGpuIsNotKnownAndServesTheOthers) {
  NvmlSampler sampler(&nvml_);
  const Telemetry other = sampler.fresh("GPU-other", kPatience);
  EXPECT_FALSE(other[Metric::kSmClock].value.has_value());
  EXPECT_THAT(other.unknown_because, HasSubstr("NVML:"));
  EXPECT_TRUE(sampler.fresh(kUuid, kPatience)[Metric::kSmClock].value.has_value());
}

TEST_F(NvmlSamplerTest, AnswersAfterItsEnd) {
  NvmlSampler sampler(&nvml_);
  ASSERT_TRUE(sampler.fresh(kUuid, kPatience)[Metric::kPower].value.has_value());
  sampler.stop();
  const int before = clock_calls;
  EXPECT_TRUE(sampler.fresh(kUuid, kPatience)[Metric::kPower].value.has_value());
  EXPECT_EQ(clock_calls, before);
}

TEST_F(NvmlSamplerTest, IsUnknownInAForkedChildAndEndsWithIt) {
  NvmlSampler sampler(&nvml_, {.period = milliseconds(1)});
  ASSERT_TRUE(sampler.fresh(kUuid, kPatience)[Metric::kPower].value.has_value());
  for (int i = 0; i < 20; ++i) {  // also at moments when the thread holds the lock
    EXPECT_TRUE(holds_in_child([&] {
      const Telemetry child = sampler.latest(kUuid);
      sampler.stop();
      return !child[Metric::kPower].value.has_value() &&
             child.unknown_because.find("forked") != std::string::npos;
    }));
  }
}

TEST_F(NvmlSamplerTest, OfThisProcessAnswersWithOrWithoutNvml) {
  const Telemetry telemetry = process_sampler().fresh("GPU-none-such", kPatience);
  EXPECT_NE(telemetry.unknown_because, "");
  EXPECT_FALSE(telemetry[Metric::kPower].value.has_value());
}

TEST_F(NvmlSamplerTest, ServesThreadsAtOnce) {
  NvmlSampler sampler(&nvml_, {.period = milliseconds(1)});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) sampler.latest(i % 2 == 0 ? kUuid : "GPU-other");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(sampler.fresh(kUuid, kPatience)[Metric::kPower].value.has_value());
}

}  // namespace
}  // namespace deepgemm::cuda
