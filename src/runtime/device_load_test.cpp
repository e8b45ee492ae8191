#include "runtime/device_load.hpp"

#include <gtest/gtest.h>

namespace deepgemm::runtime {
namespace {

using std::chrono::milliseconds;

TEST(OwnWork, IsTheShareOfTheLastWholeWindow) {
  const OwnWork::Clock::time_point start;
  OwnWork work(start);
  work.add(250e3);
  EXPECT_EQ(work.share(start + milliseconds(999)), std::nullopt);
  EXPECT_DOUBLE_EQ(*work.share(start + milliseconds(1000)), 0.25);
  work.add(1e6);
  EXPECT_DOUBLE_EQ(*work.share(start + milliseconds(1500)), 0.25) << "the window is not over";
  EXPECT_DOUBLE_EQ(*work.share(start + milliseconds(3000)), 0.5);
  EXPECT_DOUBLE_EQ(*work.share(start + milliseconds(4000)), 0);
}

TEST(LoadOfOthers, NeverTakesOwnLaunchesForOthers) {
  EXPECT_DOUBLE_EQ(load_of_others(0.5, 0), 0.5);
  EXPECT_DOUBLE_EQ(load_of_others(0.9, 0.4), 0.3);
  EXPECT_EQ(load_of_others(1, 0.7), 0) << "launches that take 1.4 times the prediction";
  EXPECT_EQ(load_of_others(0.2, 1.3), 0) << "launches that queue up";
  EXPECT_EQ(load_of_others(1, 0), 1);
}

}  // namespace
}  // namespace deepgemm::runtime
