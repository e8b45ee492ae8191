#include "base/log.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/files.hpp"
#include "base/temporary_directory.hpp"

namespace deepgemm::base {
namespace {

// Text that counts how often it is formatted.
struct Counted {
  int& count;
};

}  // namespace
}  // namespace deepgemm::base

template <>
struct fmt::formatter<deepgemm::base::Counted> : fmt::formatter<int> {
  template <class Context>
  auto format(const deepgemm::base::Counted& value, Context& context) const {
    return fmt::formatter<int>::format(++value.count, context);
  }
};

namespace deepgemm::base {
namespace {

class Log : public testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }

  static void reset() {
    set_log_callback(nullptr, nullptr);
    ::unsetenv("DEEPGEMM_LOG_LEVEL");
    ::unsetenv("DEEPGEMM_LOG_FILE");
  }
};

struct Record {
  deepgemm_log_level_t level;
  std::string category;
  std::string message;
};

void collect(void* user, deepgemm_log_level_t level, const char* category, const char* message) {
  static_cast<std::vector<Record>*>(user)->push_back({level, category, message});
}

TEST_F(Log, IsSilentAndFormatsNothingByDefault) {
  int formatted = 0;
  testing::internal::CaptureStderr();
  log(DEEPGEMM_LOG_ERROR, LogCategory::kPlan, "{}", Counted{formatted});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(formatted, 0);
}

TEST_F(Log, WritesToStandardErrorUpToTheLevel) {
  ::setenv("DEEPGEMM_LOG_LEVEL", "warning", 1);
  int formatted = 0;
  testing::internal::CaptureStderr();
  log(DEEPGEMM_LOG_ERROR, LogCategory::kCache, "lost {} entries", 3);
  log(DEEPGEMM_LOG_WARNING, LogCategory::kPack, "tiny scales");
  log(DEEPGEMM_LOG_INFO, LogCategory::kPlan, "{}", Counted{formatted});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "deepgemm: error: cache: lost 3 entries\ndeepgemm: warning: pack: tiny scales\n");
  EXPECT_EQ(formatted, 0);
}

TEST_F(Log, HeedsALevelThatIsSetLater) {
  EXPECT_FALSE(log_enabled(DEEPGEMM_LOG_ERROR));
  ::setenv("DEEPGEMM_LOG_LEVEL", "debug", 1);
  EXPECT_TRUE(log_enabled(DEEPGEMM_LOG_DEBUG));
  ::setenv("DEEPGEMM_LOG_LEVEL", "error", 1);
  EXPECT_FALSE(log_enabled(DEEPGEMM_LOG_WARNING));
  ::setenv("DEEPGEMM_LOG_LEVEL", "loud", 1);  // no level: as "warning"
  EXPECT_TRUE(log_enabled(DEEPGEMM_LOG_WARNING));
  EXPECT_FALSE(log_enabled(DEEPGEMM_LOG_INFO));
}

TEST_F(Log, AppendsToTheFile) {
  const TemporaryDirectory directory;
  const std::string path = directory / "log.txt";
  ::setenv("DEEPGEMM_LOG_LEVEL", "info", 1);
  ::setenv("DEEPGEMM_LOG_FILE", path.c_str(), 1);
  testing::internal::CaptureStderr();
  log(DEEPGEMM_LOG_INFO, LogCategory::kMemory, "one");
  log(DEEPGEMM_LOG_INFO, LogCategory::kLaunch, "two");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(*read_file(path, 1000), "deepgemm: info: memory: one\ndeepgemm: info: launch: two\n");
}

TEST_F(Log, FallsBackToStandardErrorAndSaysSoOnce) {
  const TemporaryDirectory directory;
  ::setenv("DEEPGEMM_LOG_LEVEL", "info", 1);
  ::setenv("DEEPGEMM_LOG_FILE", directory.path().c_str(), 1);
  testing::internal::CaptureStderr();
  log(DEEPGEMM_LOG_INFO, LogCategory::kPlan, "one");
  log(DEEPGEMM_LOG_INFO, LogCategory::kPlan, "two");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "deepgemm: warning: DEEPGEMM_LOG_FILE is '" + directory.path() +
                "', which cannot be written; logging to standard error.\n"
                "deepgemm: info: plan: one\ndeepgemm: info: plan: two\n");
}

TEST_F(Log, GivesTheCallbackEveryLevelUnlessTheVariableLimitsIt) {
  std::vector<Record> records;
  set_log_callback(collect, &records);
  testing::internal::CaptureStderr();
  log(DEEPGEMM_LOG_DEBUG, LogCategory::kLaunch, "m = {}", 7);
  ::setenv("DEEPGEMM_LOG_LEVEL", "error", 1);
  log(DEEPGEMM_LOG_DEBUG, LogCategory::kLaunch, "m = {}", 8);
  set_log_callback(nullptr, nullptr);
  ::unsetenv("DEEPGEMM_LOG_LEVEL");
  log(DEEPGEMM_LOG_ERROR, LogCategory::kLaunch, "nobody listens");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].level, DEEPGEMM_LOG_DEBUG);
  EXPECT_EQ(records[0].category, "launch");
  EXPECT_EQ(records[0].message, "m = 7");
}

TEST_F(Log, LosesNoRecordOfConcurrentThreads) {
  static std::atomic<int> received{0};
  received = 0;
  set_log_callback([](void*, deepgemm_log_level_t, const char*, const char*) { ++received; },
                   nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) log(DEEPGEMM_LOG_DEBUG, LogCategory::kPlan, "{}", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(received, 2000);
}

}  // namespace
}  // namespace deepgemm::base
