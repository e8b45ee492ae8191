#include "runtime/context.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <thread>

#include "jit/service.hpp"
#include "runtime/device.hpp"

namespace deepgemm::runtime {
namespace {

// Puts the process back as it was.
class ContextTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("DEEPGEMM_DEVICE");
    unsetenv("DEEPGEMM_NVCC_PATH");
    EXPECT_TRUE(set_current_device(nullptr).ok());
    EXPECT_TRUE(set_nvcc_path(nullptr).ok());
    set_hooks(nullptr);
    set_default_stream(nullptr);
  }
};

TEST_F(ContextTest, TheCpuIsLaunchableAndProfilesAreNot) {
  const auto cpu = find_device("cpu");
  ASSERT_TRUE(cpu.ok());
  EXPECT_TRUE((*cpu)->launchable());
  const auto h200 = find_device("h200");
  ASSERT_TRUE(h200.ok()) << h200.error().message;
  EXPECT_FALSE((*h200)->launchable());
  EXPECT_EQ((*h200)->profile().name, "h200");
}

TEST_F(ContextTest, BackendsThatAreNotBuiltAreUnsupported) {
  const auto device = find_device("sim:h200");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, DEEPGEMM_ERROR_UNSUPPORTED);
  EXPECT_NE(device.error().message.find("not part of this build"), std::string::npos);
}

TEST_F(ContextTest, AGpuThatIsNotThereIsAnErrorThatSaysWhy) {
  const auto device = find_device("cuda:99");
  ASSERT_FALSE(device.ok());
  EXPECT_TRUE(device.error().code == DEEPGEMM_ERROR_DEVICE ||           // no driver
              device.error().code == DEEPGEMM_ERROR_INVALID_ARGUMENT);  // fewer GPUs
  EXPECT_FALSE(device.error().message.empty());
}

TEST_F(ContextTest, UnknownNamesListTheKnownOnes) {
  for (const char* name : {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda:0x"}) {
    const auto device = find_device(name);
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_EQ(device.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(device.error().message.find("cpu"), std::string::npos) << device.error().message;
  }
}

TEST_F(ContextTest, WhatIsSetWinsOverTheEnvironmentAndThatOverTheAutomaticDevice) {
  unsetenv("DEEPGEMM_DEVICE");
  EXPECT_EQ(current_device(), automatic_device());
  setenv("DEEPGEMM_DEVICE", "a100", 1);
  EXPECT_EQ(current_device(), "a100");
  ASSERT_TRUE(set_current_device("h200").ok());
  EXPECT_EQ(current_device(), "h200");
  EXPECT_FALSE(set_current_device("nonsense").ok());
  EXPECT_EQ(current_device(), "h200") << "a refused name changes nothing";
}

TEST_F(ContextTest, TheNvccPathMustBeAnExecutableFile) {
  for (const char* path : {"", "/", "/nowhere/nvcc", "/etc/passwd"}) {
    const auto result = set_nvcc_path(path);
    ASSERT_FALSE(result.ok()) << path;
    EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  }
  setenv("DEEPGEMM_NVCC_PATH", "/usr/bin/env", 1);
  EXPECT_EQ(nvcc_path(), "/usr/bin/env");
  ASSERT_TRUE(set_nvcc_path("/bin/sh").ok());
  EXPECT_EQ(nvcc_path(), "/bin/sh");
  EXPECT_EQ(jit::process_service().nvcc_path(), "/bin/sh");
  ASSERT_TRUE(set_nvcc_path(nullptr).ok());
  EXPECT_EQ(nvcc_path(), "/usr/bin/env");
}

TEST_F(ContextTest, TheDefaultStreamBelongsToTheThread) {
  int object = 0;
  set_default_stream(&object);
  void* seen = &object;
  std::thread([&] { seen = default_stream(); }).join();
  EXPECT_EQ(seen, nullptr);
  EXPECT_EQ(default_stream(), &object);
}

TEST_F(ContextTest, HooksAreCopied) {
  EXPECT_FALSE(hooks().has_value());
  {
    deepgemm_hooks_t given = {};
    given.user = this;
    set_hooks(&given);
  }
  ASSERT_TRUE(hooks().has_value());
  EXPECT_EQ(hooks()->user, this);
  set_hooks(nullptr);
  EXPECT_FALSE(hooks().has_value());
}

}  // namespace
}  // namespace deepgemm::runtime
