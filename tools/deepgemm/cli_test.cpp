// Verbs that plan, list and examine: what they print and how they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "deepgemm/cli_testing.hpp"

namespace deepgemm::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

json parsed(const Outcome& outcome) { return json::parse(outcome.out, nullptr, false); }

TEST(Program, TellsItsVersion) {
  const Outcome outcome = run_program("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, testing::MatchesRegex("deepgemm [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Program, HelpNamesVerbsAndExitCodes) {
  const Outcome outcome = run_program("--help");
  EXPECT_EQ(outcome.code, 0);
  for (const char* word : {"doctor", "list", "plan", "run", "verify", "bench", "cache", "demo",
                           "Exit codes: 0 done, 1 a check failed, 2 wrong usage"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
  EXPECT_THAT(run_program("plan --help").out, HasSubstr("--group"));
}

TEST(Program, RefusesWrongUsageWithCodeTwoAndSaysWhat) {
  EXPECT_EQ(run_program("").code, 2);
  for (const char* arguments :
       {"frobnicate", "plan --frobnicate", "plan", "list frobnicate", "plan --op xx --m 1",
        "plan nt m=1 n=2", "plan nt m=-1 n=2 k=3", "plan nt m=1 n=2 k=3 frobnicate=1",
        "plan m=1 n=2 k=3", "plan nt m=1 n=2 k=3 --m 4", "plan nt m=1 n=2 k=3 nt m=1 n=2 k=3",
        "plan --op nn nt m=1 n=2 k=3", "verify --inputs frobnicate nt m=1 n=2 k=3",
        "bench --seconds -1 nt m=1 n=2 k=3", "plan --device frobnicate nt m=1 n=2 k=3"}) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("deepgemm: ")) << arguments;
    EXPECT_THAT(outcome.out, IsEmpty()) << arguments;
  }
  EXPECT_THAT(run_program("plan nt m=1 n=2 k=3 grop=4").err, HasSubstr("nearest is 'group'"));
}

TEST(Program, EndsQuietlyWhenTheReaderGoesAway) {
  const Outcome outcome = run_program("list --json", "", "| head -c 10");
  EXPECT_TRUE(outcome.code == 0 || outcome.code == 128 + 13) << outcome.code;
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST(Program, ReportsAFullDisk) {
  const Outcome outcome = run_program("list >/dev/full");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("standard output"));
}

TEST(Plan, ShowsChoiceAndRefusals) {
  const Outcome outcome = run_program("plan nt m=8 n=64 k=64 a=fp32 rel=1e-6");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("chosen"));
  EXPECT_THAT(outcome.out, HasSubstr("refused"));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST(Plan, ReadsTheSameFromLineAndOptionsAndByEitherName) {
  const Outcome line = run_program("plan 'nt m=8 n=64 k=64 a=fp16 b=int4_awq group=32 safe'");
  const Outcome words = run_program("plan nt m=8 n=64 k=64 a=fp16 b=int4_awq group=32 safe");
  const Outcome options =
      run_program("explain --m 8 --n 64 --k 64 --a fp16 --b int4_awq --group 32 --safe");
  EXPECT_EQ(line.code, 0) << line.err;
  EXPECT_EQ(line.out, words.out);
  EXPECT_EQ(line.out, options.out);
}

TEST(Plan, GivesJson) {
  const json report = parsed(run_program("plan --json nt m=8 n=64 k=64 a=fp16"));
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["line"], "nt m=8 n=64 k=64 a=fp16");
  EXPECT_TRUE(report["choice"].is_object());
  EXPECT_FALSE(report["candidates"].empty());
}

TEST(Plan, PlansForADeviceThatIsNotHere) {
  const Outcome outcome = run_program("plan nt m=64 n=4096 k=4096 a=bf16 --device h200");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("h200"));
}

TEST(Plan, EndsWithThreeAndStillReportsWhenNothingIsAdmissible) {
  const Outcome outcome = run_program("plan nt m=8 n=64 k=64 a=fp16 rel=1e-9");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("refused"));
  EXPECT_THAT(outcome.err, HasSubstr("deepgemm: "));
  const json report = parsed(run_program("plan --json nt m=8 n=64 k=64 a=fp16 rel=1e-9"));
  EXPECT_TRUE(report["choice"].is_null());
  EXPECT_TRUE(report["failure"].is_object());
  EXPECT_EQ(run_program("plan nt m=64 n=4096 k=4096 a=fp32 latency_us=0.001").code, 3);
}

TEST(List, GivesEverySubjectAsTextAndJson) {
  for (const char* subject : {"families", "paths", "devices", "formats", "roles"}) {
    const Outcome text = run_program(std::string("list ") + subject);
    EXPECT_EQ(text.code, 0);
    EXPECT_THAT(text.out, Not(IsEmpty()));
    const json list = parsed(run_program(std::string("list --json ") + subject));
    EXPECT_FALSE(list[subject].empty()) << subject;
    EXPECT_EQ(list.size(), 1U);
  }
  EXPECT_EQ(parsed(run_program("list --json")).size(), 5U);
  EXPECT_THAT(run_program("list devices").out, HasSubstr("h200"));
}

TEST(Doctor, IsHealthyWhereTheCpuComputesRight) {
  const Outcome outcome = run_program("doctor");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("healthy: products come out right"));
  EXPECT_THAT(outcome.out, HasSubstr("driver  "));
}

TEST(Doctor, ShowsWhatTheEnvironmentDecides) {
  const json report = parsed(
      run_program("doctor --json",
                  "DEEPGEMM_NUM_THREADS=1 DEEPGEMM_MAX_CPU_ISA=generic DEEPGEMM_NUM_THREAD=3"));
  EXPECT_EQ(report["healthy"], true);
  EXPECT_EQ(report["cpu"]["threads"]["count"], 1);
  EXPECT_EQ(report["cpu"]["isa"]["used"], "generic");
  EXPECT_EQ(report["environment"]["DEEPGEMM_NUM_THREADS"], "1");
  EXPECT_THAT(report["advice"].dump(), HasSubstr("DEEPGEMM_NUM_THREAD is set"));
}

}  // namespace
}  // namespace deepgemm::cli
