#include "runtime/scratch.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

namespace deepgemm::runtime {
namespace {

TEST(Scratch, GrowsToTheLargestReservationAndGoesWithTheLast) {
  Scratch scratch;
  EXPECT_EQ(Scratch::Use(scratch).data(), nullptr);
  auto small = scratch.reserve(1000);
  ASSERT_TRUE(small.ok());
  auto large = scratch.reserve(1 << 20);
  ASSERT_TRUE(large.ok());
  void* const data = Scratch::Use(scratch).data();
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  std::memset(data, 1, 1 << 20);
  large->reset();
  EXPECT_EQ(Scratch::Use(scratch).data(), data) << "still reserved by the small one";
  small->reset();
  EXPECT_EQ(Scratch::Use(scratch).data(), nullptr);
}

TEST(Scratch, NoBytesNeedNoReservation) {
  Scratch scratch;
  const auto none = scratch.reserve(0);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
}

TEST(Scratch, ImpossibleSizesAreOutOfMemoryAndLeaveItUsable) {
  Scratch scratch;
  const auto refused = scratch.reserve(std::numeric_limits<size_t>::max() / 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(scratch.reserve(64).ok());
}

}  // namespace
}  // namespace deepgemm::runtime
