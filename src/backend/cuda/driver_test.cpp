#include "backend/cuda/driver.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/fake_driver.hpp"

namespace deepgemm::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

base::Result<Driver> load(FakeDriver& fake, const std::optional<std::string>& visible = {}) {
  return load_driver([&](const char* name) { return fake.symbol(name); }, "libcuda.so.1", visible);
}

TEST(CudaDriver, FillsTheWholeTableAndInitialises) {
  FakeDriver fake;
  const auto driver = load(fake);
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  EXPECT_EQ(driver->version, 12080);
  EXPECT_EQ(fake.count("cuInit"), 1);
#define DEEPGEMM_CUDA_CALL(member, symbol, parameters) \
  EXPECT_NE(driver->member, nullptr) << #symbol;
#include "backend/cuda/driver_api.inc"
#undef DEEPGEMM_CUDA_CALL
}

TEST(CudaDriver, NamesTheCallThatAnOldDriverLacks) {
  FakeDriver fake;
  const auto driver = load_driver(
      [&](const char* name) {
        return std::string(name) == "cuLaunchKernelEx" ? nullptr : fake.symbol(name);
      },
      "/usr/lib/libcuda.so.1", {});
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, DEEPGEMM_ERROR_DEVICE);
  EXPECT_THAT(driver.error().message,
              AllOf(HasSubstr("too old"), HasSubstr("cuLaunchKernelEx"),
                    HasSubstr("/usr/lib/libcuda.so.1"), HasSubstr("CUDA 12.0")));
  EXPECT_EQ(fake.count("cuInit"), 0);
}

TEST(CudaDriver, RefusesAnOldVersionBeforeItIsInitialised) {
  FakeDriver fake;
  fake.version = 11080;
  const auto driver = load(fake);
  ASSERT_FALSE(driver.ok());
  EXPECT_THAT(driver.error().message, AllOf(HasSubstr("CUDA 11.8"), HasSubstr("525")));
  EXPECT_EQ(fake.count("cuInit"), 0);
}

TEST(CudaDriver, SaysThatVisibleDevicesHidesAllOfThem) {
  FakeDriver fake;
  for (const char* visible : {"", "7"}) {
    fake.fail("cuInit", CuResult::kNoDevice);
    const auto driver = load(fake, visible);
    ASSERT_FALSE(driver.ok());
    EXPECT_EQ(driver.error().code, DEEPGEMM_ERROR_DEVICE);
    EXPECT_THAT(driver.error().message,
                HasSubstr(fmt::format("CUDA_VISIBLE_DEVICES is '{}'", visible)));
  }
  fake.fail("cuInit", CuResult::kNoDevice);
  const auto none = load(fake);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message,
              AllOf(HasSubstr("nvidia-smi -L"), Not(HasSubstr("CUDA_VISIBLE_DEVICES"))));
}

struct InitFailure {
  CuResult result;
  const char* says;
};

TEST(CudaDriver, TellsTheNextStepOfEachFailureToInitialise) {
  FakeDriver fake;
  const InitFailure failures[] = {
      {CuResult::kStubLibrary, "stub"},
      {CuResult::kDriverMismatch, "reboot"},
      {CuResult::kSystemNotReady, "nvidia-fabricmanager"},
      {CuResult::kOperatingSystem, "permissions"},
      {CuResult::kUnknown, "nvidia_uvm"},
      {CuResult::kNotInitialized, "spawn"},
      {CuResult::kMpsConnection, "MPS control daemon"},
      {static_cast<CuResult>(12345), "CUDA_ERROR_OF_TEST (12345)"},
  };
  for (const InitFailure& failure : failures) {
    fake.fail("cuInit", failure.result);
    const auto driver = load(fake);
    ASSERT_FALSE(driver.ok());
    EXPECT_EQ(driver.error().code, DEEPGEMM_ERROR_DEVICE);
    EXPECT_THAT(driver.error().message,
                AllOf(HasSubstr("Initialising CUDA failed"), HasSubstr(failure.says)));
  }
}

TEST(CudaDriver, LabelsAStickyFaultAsEarlierWorkUnlessItMayBeOfThisCall) {
  FakeDriver fake;
  const Driver& driver = fake.driver();
  const auto before = driver_error(driver, CuResult::kIllegalAddress, "Launching kernel 'x'");
  EXPECT_EQ(before.code, DEEPGEMM_ERROR_DEVICE);
  EXPECT_THAT(before.message, AllOf(HasSubstr("Launching kernel 'x' failed"), HasSubstr("700"),
                                    HasSubstr("had already failed before this call"),
                                    HasSubstr("compute-sanitizer")));
  const auto during =
      driver_error(driver, CuResult::kIllegalAddress, "Waiting for a stream", FaultTime::kDuring);
  EXPECT_THAT(during.message, Not(HasSubstr("had already failed")));
}

TEST(CudaDriver, GivesEveryKindOfResultItsCode) {
  FakeDriver fake;
  const Driver& driver = fake.driver();
  const std::pair<CuResult, deepgemm_status_t> codes[] = {
      {CuResult::kMisalignedAddress, DEEPGEMM_ERROR_DEVICE},
      {CuResult::kAssert, DEEPGEMM_ERROR_DEVICE},
      {CuResult::kOutOfMemory, DEEPGEMM_ERROR_OUT_OF_MEMORY},
      {CuResult::kUnsupportedPtx, DEEPGEMM_ERROR_COMPILE_FAILED},
      {CuResult::kOutOfResources, DEEPGEMM_ERROR_UNSUPPORTED},
      {CuResult::kCaptureImplicit, DEEPGEMM_ERROR_INVALID_ARGUMENT},
      {CuResult::kInvalidValue, DEEPGEMM_ERROR_INTERNAL},
      {static_cast<CuResult>(4321), DEEPGEMM_ERROR_DEVICE},
  };
  for (const auto& [result, code] : codes) {
    EXPECT_EQ(driver_error(driver, result, "It").code, code) << static_cast<int>(result);
  }
}

TEST(CudaDriver, AnswersTheSameEachTimeInThisProcess) {
  const auto first = process_driver();
  const auto second = process_driver();
  ASSERT_EQ(first.ok(), second.ok());
  if (first.ok()) {
    EXPECT_EQ(*first, *second);
    return;
  }
  EXPECT_EQ(first.error().code, DEEPGEMM_ERROR_DEVICE);
  EXPECT_EQ(first.error().message, second.error().message);
  EXPECT_FALSE(first.error().message.empty());
}

}  // namespace
}  // namespace deepgemm::cuda
