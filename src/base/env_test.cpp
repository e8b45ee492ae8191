#include "base/env.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <set>

namespace deepgemm::base {
namespace {

TEST(EnvTable, HasAtMostTwelveCompleteRows) {
  EXPECT_LE(env_table().size(), 12u);
  std::set<std::string> names;
  for (const EnvVariable& variable : env_table()) {
    EXPECT_EQ(std::strncmp(variable.name, "DEEPGEMM_", 9), 0) << variable.name;
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    for (const char* text : {variable.type, variable.default_value, variable.meaning}) {
      EXPECT_NE(*text, '\0') << variable.name;
    }
  }
  for (const EnvVariable& variable : foreign_env_table()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
  }
}

TEST(Env, SeesVariablesThatAreSetLater) {
  ::unsetenv("DEEPGEMM_DEVICE");
  EXPECT_FALSE(env("DEEPGEMM_DEVICE"));
  ::setenv("DEEPGEMM_DEVICE", "cpu", 1);
  EXPECT_EQ(env("DEEPGEMM_DEVICE"), "cpu");
  ::setenv("DEEPGEMM_DEVICE", "a100", 1);
  EXPECT_EQ(env("DEEPGEMM_DEVICE"), "a100");
  ::unsetenv("DEEPGEMM_DEVICE");
  EXPECT_FALSE(env("DEEPGEMM_DEVICE"));
}

TEST(Env, TakesEmptyAsUnsetExceptForVisibleDevices) {
  ::setenv("DEEPGEMM_DEVICE", "", 1);
  EXPECT_FALSE(env("DEEPGEMM_DEVICE"));
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(env("CUDA_VISIBLE_DEVICES"), "");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_FALSE(env("CUDA_VISIBLE_DEVICES"));
}

TEST(Env, AnswersOnlyForListedNames) {
  ::setenv("DEEPGEMM_NOT_IN_THE_TABLE", "1", 1);
  EXPECT_FALSE(env("DEEPGEMM_NOT_IN_THE_TABLE"));
  ::setenv("CPATH", "/usr/include", 1);
  EXPECT_FALSE(env("CPATH"));
  ::unsetenv("CPATH");
}

TEST(EnvInteger, AcceptsWholeNumbersWithinTheRange) {
  ::unsetenv("DEEPGEMM_NUM_THREADS");
  EXPECT_FALSE(*env_integer("DEEPGEMM_NUM_THREADS", 1, 64));
  ::setenv("DEEPGEMM_NUM_THREADS", "64", 1);
  EXPECT_EQ(*env_integer("DEEPGEMM_NUM_THREADS", 1, 64), 64);
  for (const char* bad : {"0", "65", "-1", "4x", " 4", "4.0", "99999999999999999999"}) {
    ::setenv("DEEPGEMM_NUM_THREADS", bad, 1);
    const auto result = env_integer("DEEPGEMM_NUM_THREADS", 1, 64);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(result.error().message.find(bad), std::string::npos);
    EXPECT_NE(result.error().message.find("1 ... 64"), std::string::npos);
  }
  ::unsetenv("DEEPGEMM_NUM_THREADS");
}

}  // namespace
}  // namespace deepgemm::base
