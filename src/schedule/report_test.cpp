#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schedule/refusal.hpp"
#include "schedule/test_problems.hpp"

namespace deepgemm::schedule {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(ReportText, BeginsWithTheProblemLineAndTellsTheWholeStory) {
  const std::string text = report_text(plan_of("h200", "nt m=1 n=4096 k=4096 a=fp16"));
  EXPECT_THAT(text, StartsWith("nt m=1 n=4096 k=4096 a=fp16\n"));
  for (const char* part :
       {"device", "contract", "chosen", "predicted", "why", "certificate", "layouts", "candidates",
        "refused", "architecture", "not measured yet"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ReportText, ShowsTheReasonWhenThereIsNoPlan) {
  const std::string text = report_text(plan_of("h200", "nt m=1 n=4096 k=4096 a=fp16 latency_us=1"));
  EXPECT_THAT(text, HasSubstr("no plan     budget.max_latency_us is 1"));
  EXPECT_THAT(text, HasSubstr("budget_latency"));
}

TEST(ReportText, ShowsAMeasuredError) {
  Report report = plan_of("cpu", "nt m=1 n=64 k=64");
  report.choice->certificate.measured_relative = 1.25e-7;
  EXPECT_THAT(report_text(report), HasSubstr("measured 1.25e-07"));
}

TEST(ReportJson, HasEveryCandidateOrItsRefusal) {
  const Report report = plan_of("h200", "nt m=1 n=4096 k=4096 a=fp16");
  const auto json = nlohmann::ordered_json::parse(report_json(report));
  EXPECT_EQ(json["schema"], "deepgemm.plan/1");
  EXPECT_EQ(json["line"], "nt m=1 n=4096 k=4096 a=fp16");
  EXPECT_EQ(json["choice"]["family"], "sm80");
  EXPECT_TRUE(json["failure"].is_null());
  ASSERT_EQ(json["candidates"].size(), report.candidates.size());
  for (const auto& candidate : json["candidates"]) {
    EXPECT_NE(candidate["refusal"].is_null(), candidate["cost"].is_null()) << candidate.dump();
  }
}

TEST(ReportJson, KeepsTheOrderOfItsKeys) {
  const std::string text = report_json(plan_of("cpu", "nt m=1 n=64 k=64"));
  size_t last = 0;
  for (const char* key :
       {"\"schema\"", "\"line\"", "\"device\"", "\"choice\"", "\"failure\"", "\"candidates\""}) {
    const size_t at = text.find(key);
    ASSERT_NE(at, std::string::npos) << key;
    EXPECT_GE(at, last) << key;
    last = at;
  }
}

TEST(ReportJson, ShowsFailuresAndInfiniteBoundsAsJson) {
  const Report report = plan_of("cpu", "nt m=64 n=64 k=4096 a=fp16 rel=1e-9");
  const auto json = nlohmann::ordered_json::parse(report_json(report));
  EXPECT_TRUE(json["choice"].is_null());
  EXPECT_EQ(json["failure"]["code"], DEEPGEMM_ERROR_CONTRACT_UNMET);
}

TEST(ReportJson, ReplacesTextThatIsNoUtf8) {
  Report report = plan_of("cpu", "nt m=1 n=64 k=64");
  report.title = "CPU \xff";
  EXPECT_TRUE(nlohmann::ordered_json::accept(report_json(report)));
}

TEST(Refusal, EveryCheckHasANameAndAMeaning) {
  EXPECT_STREQ(check_name(Check::kBackend), "backend");
  EXPECT_STREQ(check_name(Check::kMemory), "memory");
  EXPECT_STRNE(check_meaning(Check::kUnit), "");
}

}  // namespace
}  // namespace deepgemm::schedule
