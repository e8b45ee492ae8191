#include "api/guard.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "deepgemm/deepgemm.h"

namespace deepgemm::api {
namespace {

using Result = base::Result<void>;

TEST(Guard, TurnsErrorsIntoStatusAndSentence) {
  const deepgemm_status_t status = guard(
      []() -> Result { return base::make_error(DEEPGEMM_ERROR_FORMAT, "file {} is damaged", 7); });
  EXPECT_EQ(status, DEEPGEMM_ERROR_FORMAT);
  EXPECT_STREQ(deepgemm_last_error(), "file 7 is damaged");
  EXPECT_EQ(guard([]() -> Result { return {}; }), DEEPGEMM_SUCCESS);
  EXPECT_STREQ(deepgemm_last_error(), "file 7 is damaged") << "success keeps the last failure";
}

TEST(Guard, LetsNoExceptionThrough) {
  EXPECT_EQ(guard([]() -> Result { throw std::bad_alloc(); }), DEEPGEMM_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(guard([]() -> Result { throw std::runtime_error("odd"); }), DEEPGEMM_ERROR_INTERNAL);
  EXPECT_STREQ(deepgemm_last_error(), "odd");
  EXPECT_EQ(guard([]() -> Result { throw 7; }), DEEPGEMM_ERROR_INTERNAL);
}

TEST(Guard, SentencesBelongToTheThread) {
  fail(DEEPGEMM_ERROR_IO, "mine");
  std::string other = "unset";
  std::thread([&] { other = deepgemm_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_STREQ(deepgemm_last_error(), "mine");
}

TEST(Guard, OverlongSentencesAreCut) {
  fail(DEEPGEMM_ERROR_IO, std::string(100000, 'x').c_str());
  const std::string kept = deepgemm_last_error();
  EXPECT_GT(kept.size(), 1000u);
  EXPECT_LT(kept.size(), 100000u);
}

TEST(CopyText, TellsTheSizeAndFillsExactly) {
  size_t needed = 0;
  EXPECT_EQ(copy_text("four", nullptr, 0, &needed).error().code, DEEPGEMM_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(needed, 5u);
  char buffer[8] = "unwritt";
  EXPECT_FALSE(copy_text("four", buffer, 4, nullptr).ok());
  EXPECT_STREQ(buffer, "unwritt");
  EXPECT_TRUE(copy_text("four", buffer, 5, nullptr).ok());
  EXPECT_STREQ(buffer, "four");
  EXPECT_EQ(copy_text("four", nullptr, 9, nullptr).error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
}

TEST(StatusString, NamesEveryCodeAndNoOther) {
  EXPECT_STREQ(deepgemm_status_string(DEEPGEMM_SUCCESS), "DEEPGEMM_SUCCESS");
  for (int code = 1; code <= DEEPGEMM_ERROR_INTERNAL; ++code) {
    const std::string name = deepgemm_status_string(static_cast<deepgemm_status_t>(code));
    EXPECT_EQ(name.rfind("DEEPGEMM_ERROR_", 0), 0u) << code;
  }
  EXPECT_STREQ(deepgemm_status_string(static_cast<deepgemm_status_t>(14)), "unknown status");
  EXPECT_STREQ(deepgemm_status_string(static_cast<deepgemm_status_t>(-1)), "unknown status");
}

TEST(Version, IsTheOneOfTheHeader) { EXPECT_EQ(deepgemm_version(), DEEPGEMM_VERSION); }

TEST(TilingPolicy, FollowsTheLoadWithItsTwoThresholds) {
  const auto block_m = [](double load) { return get_tiling_policy_for_load(load).block_m; };
  EXPECT_EQ(block_m(0), 128);
  EXPECT_EQ(block_m(0.39), 128);
  EXPECT_EQ(block_m(0.4), 64);
  EXPECT_EQ(block_m(0.69), 64);
  EXPECT_EQ(block_m(0.7), 32);
  EXPECT_EQ(block_m(1), 32);
  for (const double odd : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(block_m(odd), 32) << odd;
  }
}

TEST(TilingPolicy, OptimalPoliciesAreThoseOfTheHeader) {
  const gemm_tiling_policy_t a100 = get_optimal_policy_for_a100();
  EXPECT_EQ(a100.block_m, 128);
  EXPECT_EQ(a100.block_n, 128);
  EXPECT_EQ(a100.block_k, 32);
  EXPECT_EQ(a100.warp_m, 64);
  EXPECT_EQ(a100.warp_n, 64);
  const gemm_tiling_policy_t h100 = get_optimal_policy_for_h100();
  EXPECT_EQ(h100.block_m, 128);
  EXPECT_EQ(h100.block_n, 256);
  EXPECT_EQ(h100.block_k, 64);
}

}  // namespace
}  // namespace deepgemm::api
