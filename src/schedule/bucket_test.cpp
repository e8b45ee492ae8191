// Choices over all M: closed sets of kernels (J1, J10), batch invariance, purity.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "schedule/test_problems.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

std::string kernel_of(const Choice& choice) {
  return std::string(contract::path_info(choice.path).name) + " " + choice.family->name + " " +
         config_name(choice.config);
}

std::string shape(int64_t m, const std::string& rest) {
  return "nt m=" + std::to_string(m) + " " + rest;
}

TEST(Bucket, IsTheNextPowerOfTwo) {
  EXPECT_EQ(m_bucket(0), 1);
  EXPECT_EQ(m_bucket(1), 1);
  EXPECT_EQ(m_bucket(2), 2);
  EXPECT_EQ(m_bucket(3), 4);
  EXPECT_EQ(m_bucket(4096), 4096);
  EXPECT_EQ(m_bucket(4097), 8192);
  EXPECT_EQ(m_bucket(int64_t{1} << 62), int64_t{1} << 62);
}

// The largest M of each bucket is what deepgemm_prepare plans; whatever any M chooses must be among
// it.
TEST(Bucket, PreparedKernelsCoverEveryM) {
  constexpr int64_t kLargestM = 16384;
  constexpr size_t kKernelLimit = 24;
  for (const char* device : {"h200", "cpu"}) {
    const DeviceProfile profile = profile_of(device);
    for (const char* rest : {"n=4096 k=4096 a=bf16", "n=4096 k=4096 a=fp16 b=int4_awq"}) {
      std::set<std::string> prepared;
      for (int64_t m = 1; m <= kLargestM; m *= 2) {
        prepared.insert(kernel_of(*plan(problem_of(shape(m, rest)), profile, {}, {}).choice));
      }
      EXPECT_LE(prepared.size(), kKernelLimit);
      intent::Problem problem = problem_of(shape(1, rest));
      for (int64_t m = 1; m <= kLargestM; m += m < 300 ? 1 : 211) {
        problem = problem_of(shape(m, rest));
        EXPECT_TRUE(prepared.count(kernel_of(*plan(problem, profile, {}, {}).choice)) == 1)
            << device << " " << shape(m, rest);
      }
    }
  }
}

TEST(Bucket, ChoiceIsTheSameForAllMOfABucket) {
  for (const char* rest :
       {"n=4096 k=4096 a=bf16", "n=2112 k=7168 a=fp8_e4m3", "n=100 k=52 a=fp32"}) {
    for (const int64_t bucket : {8, 64, 256, 4096}) {
      const std::string whole = kernel_of(*plan_of("h200", shape(bucket, rest)).choice);
      for (const int64_t m : {bucket / 2 + 1, bucket - 1}) {
        EXPECT_EQ(kernel_of(*plan_of("h200", shape(m, rest)).choice), whole) << shape(m, rest);
      }
    }
  }
}

TEST(BatchInvariance, KeepsOneOrderOfSummationForAllM) {
  for (const char* device : {"h200", "a100", "v100", "cpu"}) {
    for (const char* rest :
         {"n=4096 k=4096 a=fp16 repro=batch", "n=4096 k=4096 a=fp16 b=int4 repro=batch",
          "n=512 k=512 a=fp32 rel=0.001 repro=batch"}) {
      std::set<std::tuple<contract::PathId, const Family*, int, int, int>> orders;
      for (const int64_t m : {1, 2, 3, 7, 16, 17, 64, 129, 1024, 16384}) {
        const Report report = plan_of(device, shape(m, rest));
        ASSERT_TRUE(report.choice.has_value()) << device << " " << shape(m, rest);
        const KernelConfig& config = report.choice->config;
        orders.insert({report.choice->path, report.choice->family, config.block_k, config.warp_k,
                       config.split_k});
        EXPECT_EQ(config.split_k, 1);
        EXPECT_EQ(report.choice->family->max_m, 0);
        EXPECT_TRUE(has_note(report, "batch-invariant"));
      }
      EXPECT_EQ(orders.size(), 1U) << device << " " << rest;
    }
  }
}

TEST(BatchInvariance, RefusesFamiliesWhoseUseWouldDependOnM) {
  const Report rows = plan_of("h200", "tn m=64 n=4096 k=4096 a=fp16 repro=batch");
  EXPECT_TRUE(has_refusal(rows, "sm90", "reproducibility"));
  EXPECT_EQ(outcome_of(rows), "fp16 on sm80");
  EXPECT_TRUE(has_refusal(plan_of("h200", "nt m=1 n=4096 k=4096 a=fp16 repro=batch"), "skinny",
                          "reproducibility"));
}

TEST(Plan, IsPure) {
  const char* line = "nt m=17 n=4096 k=4096 a=fp16 b=int4_awq abs=0.002 outlier=fp16";
  EXPECT_EQ(report_json(plan_of("a100", line)), report_json(plan_of("a100", line)));
}

}  // namespace
}  // namespace deepgemm::schedule
