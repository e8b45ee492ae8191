// Stochastic rounding and tile skipping in plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/formats.hpp"
#include "schedule/test_problems.hpp"

namespace deepgemm::schedule {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const contract::ErrorBound& bound_of(const Report& report) {
  static const contract::ErrorBound kNone;
  EXPECT_TRUE(report.choice) << outcome_of(report);
  return report.choice ? report.choice->certificate.bound : kNone;
}

TEST(StochasticRounding, IsPlannedForASeedFromReliabilityTwoOn) {
  const Report report = plan_of("cpu", "nt m=64 n=64 k=64 a=bf16 seed=7 reliability=2");
  EXPECT_TRUE(bound_of(report).stochastic_output);
  EXPECT_GT(bound_of(report).relative, 2 * base::find_format(PRECISION_BF16)->unit_roundoff);
  EXPECT_THAT(report.choice->notes, Contains(HasSubstr("rounded stochastically")));
  EXPECT_THAT(report_text(report), HasSubstr("output rounded stochastically to bf16"));
}

TEST(StochasticRounding, IsTheNearestRoundingElsewhereAndSaysWhy) {
  struct Case {
    const char* device;
    const char* line;
    const char* note;
  };
  const Case cases[] = {
      {"cpu", "nt m=64 n=64 k=64 a=bf16 seed=7 reliability=1", "reliability_level 1"},
      {"cpu", "nt m=64 n=64 k=64 a=fp32 seed=7 reliability=2", "fp32 output"},
      {"cpu", "nt m=64 n=64 k=64 a=bf16 seed=7 reliability=2 repro=batch", "place in the batch"},
      {"cpu", "nt m=64 n=64 k=64 a=bf16 rel=0.005 seed=7 reliability=2", "leaves no room"},
  };
  for (const Case& c : cases) {
    const Report report = plan_of(c.device, c.line);
    EXPECT_FALSE(bound_of(report).stochastic_output) << c.line;
    EXPECT_THAT(report.choice->notes, Contains(HasSubstr(c.note))) << c.line;
  }
  const Report unasked = plan_of("cpu", "nt m=64 n=64 k=64 a=bf16 reliability=2");
  EXPECT_FALSE(bound_of(unasked).stochastic_output);
  EXPECT_THAT(unasked.choice->notes, Not(Contains(HasSubstr("seed"))));
}

TEST(StochasticRounding, IsPlannedForGpusToo) {
  const Report report = plan_of("h200", "nt m=64 n=64 k=64 a=bf16 seed=7 reliability=2");
  EXPECT_TRUE(bound_of(report).stochastic_output);
}

TEST(StochasticRounding, IsPlannedWhereTheLimitHasRoomForTwiceTheRounding) {
  const Report report = plan_of("cpu", "nt m=64 n=64 k=64 a=bf16 rel=0.009 seed=7 reliability=2");
  EXPECT_TRUE(bound_of(report).stochastic_output);
  EXPECT_LE(bound_of(report).relative, 0.009);
}

TEST(TileSkipping, GetsItsShareOfTheLimitInTheCertificate) {
  const std::string line = "nt m=256 n=256 k=4096 a=fp32 rel=1e-3";
  const contract::ErrorBound plain = bound_of(plan_of("cpu", line));
  const Report report = plan_of("cpu", line + " skip=0.5");
  const contract::ErrorBound& bound = bound_of(report);
  EXPECT_GT(bound.skip_relative, 0.00049);
  EXPECT_LE(bound.relative, plain.relative + 0.0005);
  EXPECT_THAT(report.choice->notes, Contains(HasSubstr("leaves out blocks")));
  EXPECT_THAT(report_text(report), HasSubstr("blocks of K that may be skipped"));
  const Report absolute = plan_of("cpu", "nt m=256 n=256 k=4096 a=fp32 abs=1e-3 skip=0.5");
  EXPECT_GT(bound_of(absolute).skip_absolute, 0.00049);
}

TEST(TileSkipping, NeverTakesAPathOutOfTheContract) {
  const std::string line = "nt m=256 n=256 k=4096 a=bf16 rel=0.0041";
  const Report report = plan_of("cpu", line + " skip=1");
  EXPECT_EQ(outcome_of(report), outcome_of(plan_of("cpu", line)));
  EXPECT_LE(bound_of(report).relative, 0.0041);
}

TEST(TileSkipping, IsOffElsewhereAndSaysWhy) {
  struct Case {
    const char* device;
    const char* line;
    const char* note;
  };
  const Case cases[] = {
      {"cpu", "nt m=256 n=256 k=4096 a=fp32 skip=0.5", "no error limit"},
      {"cpu", "nt m=256 n=256 k=4096 a=fp32 rel=1e-3 skip=0.5 repro=batch", "all of its rows"},
      {"cpu", "nt m=16 n=256 k=4096 a=fp32 rel=1e-3 skip=0.5", "pays from M = 256"},
      {"cpu", "nt m=256 n=256 k=4096 a=fp32 abs=1 act=swiglu skip=0.5", "relative limit"},
      {"h200", "nt m=256 n=256 k=4096 a=fp32 rel=1e-3 skip=0.5", "does not skip yet"},
  };
  for (const Case& c : cases) {
    const Report report = plan_of(c.device, c.line);
    EXPECT_EQ(bound_of(report).skip_relative, 0) << c.line;
    EXPECT_EQ(bound_of(report).skip_absolute, 0) << c.line;
    EXPECT_THAT(report.choice->notes, Contains(HasSubstr(c.note))) << c.line;
  }
  const Report unasked = plan_of("cpu", "nt m=256 n=256 k=4096 a=fp32 rel=1e-3");
  EXPECT_THAT(unasked.choice->notes, Not(Contains(HasSubstr("skip"))));
}

TEST(TileSkipping, ServesPackedWeightsForEveryM) {
  const Report report =
      plan_of("cpu", "nt m=1 n=4096 k=4096 a=fp16 b=int4_awq c=fp32 rel=0.01 skip=0.5");
  EXPECT_GT(bound_of(report).skip_relative, 0.004);
}

}  // namespace
}  // namespace deepgemm::schedule
