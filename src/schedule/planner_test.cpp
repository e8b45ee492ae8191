#include "schedule/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/capabilities.hpp"
#include "schedule/test_problems.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;
using testing::HasSubstr;

// ---- Paths follow the contract
// ---------------------------------------------------------------------

TEST(Planner, ChoosesThePathThatTheContractAllows) {
  struct Case {
    const char* device;
    const char* line;
    const char* outcome;
  };
  const Case cases[] = {
      {"cpu", "nt m=1 n=4096 k=4096 a=fp32", "fp32 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=fp16", "fp16 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=bf16", "bf16 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=fp16 b=bf16", "fp32 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=fp8_e4m3", "fp8 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=int8", "int8 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=bf16 b=int8", "w8a16 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=fp16 b=int4_awq", "w4a16 on cpu_blocked"},
      {"cpu", "nt m=1 n=4096 k=4096 a=int8 b=int4", "w4a8 on cpu_blocked"},
      {"cpu", "nt m=64 n=4096 k=4096 a=fp64", "fp64 on cpu_blocked"},
      {"cpu", "nt m=64 n=4096 k=4096 a=fp32 rel=1e-7", "fp32_acc64 on cpu_blocked"},
      {"cpu", "nt m=64 n=4096 k=4096 a=fp32 rel=1e-3", "fp32 on cpu_blocked"},
      {"h200", "nt m=1024 n=4096 k=4096 a=fp32 rel=1e-3", "tf32 on sm90"},
      {"h200", "nt m=1024 n=4096 k=4096 a=tf32", "tf32 on sm90"},
      {"h200", "nt m=1024 n=4096 k=4096 a=fp32", "fp32_acc64 on sm80"},
      {"l40s", "nt m=1024 n=4096 k=4096 a=fp32", "fp32 on simt"},
      {"h200", "nt m=1024 n=4096 k=4096 a=fp32 rel=1e-7", "fp32_acc64 on sm80"},
      {"h200", "nt m=1 n=4096 k=4096 a=bf16", "bf16 on sm80"},
      {"h200", "nt m=4096 n=4096 k=4096 a=bf16", "bf16 on sm90"},
      {"h200", "nt m=4096 n=4096 k=4096 a=fp8_e4m3", "fp8 on sm90"},
      {"h200", "nt m=4096 n=4096 k=4096 a=int8", "int8 on sm90"},
      {"h200", "nt m=1 n=4096 k=4096 a=fp16 b=int4_awq", "w4a16 on w4"},
      {"a100", "nt m=4096 n=4096 k=4096 a=bf16", "bf16 on sm80"},
      {"v100", "nt m=4096 n=4096 k=4096 a=fp16", "fp16 on sm70"},
      {"v100", "nt m=4096 n=4096 k=4096 a=bf16", "bf16 on simt"},
      {"b200", "nt m=4096 n=4096 k=4096 a=bf16", "bf16 on sm80"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(outcome_of(plan_of(c.device, c.line)), c.outcome) << c.device << " " << c.line;
  }
}

TEST(Planner, NamesTheNearestCandidateWhenNoArithmeticKeepsTheContract) {
  const Report report = plan_of("cpu", "nt m=64 n=64 k=4096 a=fp16 rel=1e-6");
  EXPECT_EQ(outcome_of(report), "contract unmet");
  EXPECT_THAT(report.failure->message, HasSubstr("Nearest is"));
  EXPECT_THAT(report.failure->message, HasSubstr("output_precision to FP32"));
  EXPECT_EQ(outcome_of(plan_of("cpu", "nt m=64 n=64 k=4096 a=fp16 c=fp32 rel=1e-6")),
            "fp32_acc64 on cpu_blocked");
}

TEST(Planner, CarriesTheCertificateOfTheChoice) {
  const Report report = plan_of("cpu", "nt m=8 n=64 k=4096 a=fp32 rel=0.001");
  ASSERT_TRUE(report.choice.has_value());
  EXPECT_EQ(report.choice->certificate.relative_limit, 0.001);
  EXPECT_GT(report.choice->certificate.bound.relative, 0);
  EXPECT_LE(report.choice->certificate.bound.relative, 0.001);
}

// ---- Every chip has a plan (D10), and says why others do not apply
// -----------------------------------------

TEST(Planner, PlansEveryDataTypeForEveryChip) {
  for (const DeviceProfile& profile : all_profiles()) {
    for (const Capability& row : capabilities(profile, {})) {
      EXPECT_FALSE(row.decode.empty()) << profile.name << ": " << row.refusal;
      EXPECT_FALSE(row.prefill.empty()) << profile.name << ": " << row.refusal;
    }
  }
}

TEST(Planner, PlansForCapabilitiesWithoutAProfile) {
  DeviceProfile profile = profile_of("rtx5090");
  for (const int sm : {70, 75, 80, 86, 89, 90, 100, 103, 120, 121}) {
    profile.sm = sm;
    const Report report = plan(problem_of("nt m=64 n=4096 k=4096 a=fp16"), profile, {}, {});
    ASSERT_TRUE(report.choice.has_value()) << sm;
    EXPECT_LE(report.choice->family->sm_min, sm);
    EXPECT_GE(report.choice->family->sm_max, sm);
  }
}

TEST(Planner, TheCapabilityTableAgreesWithPlans) {
  const auto table = capabilities(profile_of("h200"), {});
  EXPECT_THAT(capability_text(table), HasSubstr("fp16"));
  for (const Capability& row : table) {
    if (row.a != PRECISION_BF16 || row.b != PRECISION_BF16) continue;
    EXPECT_EQ(row.prefill, outcome_of(plan_of("h200", "nt m=4096 n=4096 k=4096 a=bf16")));
  }
}

TEST(Planner, GivesEveryRefusalItsFirstFailedCheck) {
  const Report h200 = plan_of("h200", "nt m=1024 n=4096 k=4096 a=fp16");
  EXPECT_TRUE(has_refusal(h200, "cpu_blocked", "backend"));
  EXPECT_TRUE(has_refusal(h200, "sm70", "architecture"));
  EXPECT_TRUE(has_refusal(h200, "skinny", "max_m"));
  EXPECT_TRUE(has_refusal(h200, "w4", "formats"));
  EXPECT_TRUE(has_refusal(h200, "simt", "path"));
  EXPECT_TRUE(has_refusal(h200, "sm80", "contract"));
  EXPECT_TRUE(has_refusal(plan_of("v100", "nt m=8 n=64 k=64 a=bf16"), "sm70", "path"));
  EXPECT_TRUE(has_refusal(plan_of("a100", "nt m=64 n=64 k=64 a=fp8_e4m3"), "sm80", "unit"));
  EXPECT_TRUE(has_refusal(plan_of("h200", "nt m=64 n=64 k=64 a=fp8_e4m3"), "sm80", "unit"));
  EXPECT_TRUE(has_refusal(plan_of("l4", "nt m=1 n=4096 k=4096 a=fp16"), "sm80", "shared_memory"));
}

TEST(Planner, NeverUsesHopperInstructionsWhenSwitchedOff) {
  const Report report = plan_of("h200", "nt m=4096 n=4096 k=4096 a=bf16", {.hopper_opt = false});
  EXPECT_EQ(outcome_of(report), "bf16 on sm80");
  EXPECT_TRUE(has_refusal(report, "sm90", "hopper_opt"));
}

TEST(Planner, FallsBackLoudlyForStridesThatFastFamiliesCannotRead) {
  const Report ragged = plan_of("v100", "nt m=100 n=101 k=103 a=fp16");
  EXPECT_EQ(outcome_of(ragged), "fp16 on simt");
  EXPECT_TRUE(has_refusal(ragged, "sm70", "alignment"));
  EXPECT_TRUE(has_note(ragged, "last resort"));
  EXPECT_EQ(outcome_of(plan_of("v100", "nt m=64 n=64 k=64 a=fp16 la=blocked16")), "fp16 on simt");
}

TEST(Planner, KeepsTensorCoresForStridesThatTheyCanRead) {
  const Report ragged = plan_of("h200", "nt m=100 n=101 k=103 a=fp16");
  EXPECT_EQ(outcome_of(ragged), "fp16 on sm80");
  EXPECT_TRUE(has_refusal(ragged, "sm90", "alignment"));
  EXPECT_EQ(outcome_of(plan_of("h200", "nt m=64 n=64 k=64 a=fp16 la=blocked16")), "fp16 on sm80");
}

TEST(Planner, TakesOnlyWhatTheBackendHasKernelsFor) {
  PlannerOptions options;
  options.kernel_check = [](const intent::Problem&, const Candidate& candidate) {
    return std::string_view(candidate.family->name) == "simt"
               ? std::nullopt
               : std::optional<std::string>("no such kernel");
  };
  const Report report = plan_of("h200", "nt m=512 n=512 k=512 a=fp16", options);
  EXPECT_EQ(outcome_of(report), "fp16 on simt");
  EXPECT_TRUE(has_refusal(report, "sm90", "kernel"));
  EXPECT_TRUE(has_refusal(report, "sm80", "kernel"));
}

TEST(Planner, PlansEmptyProblems) {
  for (const char* line :
       {"nt m=0 n=64 k=64", "nt m=64 n=0 k=64", "nt m=64 n=64 k=0", "nn m=0 n=0 k=0"}) {
    for (const char* device : {"cpu", "h200", "v100"}) {
      EXPECT_TRUE(plan_of(device, line).choice.has_value()) << device << " " << line;
    }
  }
}

// ---- Budgets
// ---------------------------------------------------------------------------------------

TEST(Planner, AnswersAnInfeasibleLatencyWithTheBestFigureWhichThenPasses) {
  const std::string line = "nt m=1 n=4096 k=4096 a=fp16 latency_us=";
  const Report refused = plan_of("h200", line + "1");
  EXPECT_EQ(outcome_of(refused), "budget infeasible");
  const std::string& message = refused.failure->message;
  const size_t at = message.find("raise it to ");
  ASSERT_NE(at, std::string::npos) << message;
  const double suggested = std::stod(message.substr(at + 12));
  EXPECT_TRUE(plan_of("h200", line + std::to_string(suggested)).choice.has_value()) << message;
}

TEST(Planner, AnswersAnInfeasibleEnergyLikewise) {
  const Report refused = plan_of("h200", "nt m=1 n=4096 k=4096 a=fp16 energy_mj=0.001");
  EXPECT_EQ(outcome_of(refused), "budget infeasible");
  EXPECT_THAT(refused.failure->message, HasSubstr("energy_cap_mj"));
}

TEST(Planner, SaysThatEnergyIsNotEnforcedWherePowerIsUnknown) {
  const Report report = plan_of("cpu", "nt m=1 n=64 k=64 energy_mj=0.001");
  ASSERT_TRUE(report.choice.has_value());
  EXPECT_EQ(report.choice->cost.energy_mj, 0);
  EXPECT_TRUE(has_note(report, "not enforced"));
}

TEST(Planner, RefusesOperandsLargerThanTheMemory) {
  const Report report = plan_of("t4", "nt m=65536 n=65536 k=65536 a=fp16");
  EXPECT_EQ(outcome_of(report), "out of memory");
  DeviceState full;
  full.free_memory_bytes = 1e6;
  EXPECT_EQ(outcome_of(plan_of("h200", "nt m=1024 n=1024 k=1024", {}, full)), "out of memory");
}

TEST(Planner, PredictsMoreTimeOnABusyDevice) {
  const char* line = "nt m=4096 n=4096 k=4096 a=bf16";
  const double idle = plan_of("h200", line).choice->cost.us;
  const double busy = plan_of("h200", line, {}, {0.5, 0, 0}).choice->cost.us;
  EXPECT_GT(busy, 1.5 * idle);
  const char* decode = "nt m=1 n=8192 k=8192 a=bf16";
  EXPECT_GT(plan_of("h200", decode, {}, {0, 0.5, 0}).choice->cost.us,
            1.5 * plan_of("h200", decode).choice->cost.us);
}

// ---- Tiling policies
// -----------------------------------------------------------------------------------

TEST(Planner, ObeysATilingPolicyOnACpuAndNotesWhatDoesNotApply) {
  const Report report = plan_of(
      "cpu", "nt m=100 n=300 k=500 tile=64x128x32 warp=16x16x16 sm=dynamic prefetch=aggressive");
  ASSERT_TRUE(report.choice.has_value());
  EXPECT_EQ(report.choice->config.block_m, 64);
  EXPECT_EQ(report.choice->config.block_n, 128);
  EXPECT_EQ(report.choice->config.block_k, 32);
  EXPECT_TRUE(has_note(report, "no warps"));
  EXPECT_TRUE(has_note(report, "l2_prefetch"));
  EXPECT_TRUE(has_note(report, "sm_partition dynamic"));
}

TEST(Planner, RefusesATilingPolicyThatCannotBeBuilt) {
  const Report report = plan_of("cpu", "nt m=100 n=300 k=500 tile=1024x0x0");
  EXPECT_EQ(outcome_of(report), "unsupported");
  EXPECT_THAT(report.failure->message, HasSubstr("nearest legal value is 512"));
}

TEST(Planner, GrantsThreadsAsThePartitionSays) {
  EXPECT_EQ(plan_of("cpu", "nt m=64 n=64 k=64").choice->threads, 2);
  EXPECT_EQ(plan_of("cpu", "nt m=64 n=64 k=64 sm=1").choice->threads, 1);
  EXPECT_EQ(outcome_of(plan_of("cpu", "nt m=64 n=64 k=64 sm=3")), "unsupported");
}

// ---- Layouts, wishes, notes
// ----------------------------------------------------------------------------

TEST(Planner, TellsTheLayoutsItSettled) {
  const Report report = plan_of("cpu", "nt m=4 n=8 k=16 la=col lb=row:*,16,1 batch=3");
  ASSERT_TRUE(report.choice.has_value());
  EXPECT_EQ(report.choice->layout_a.physical_layout, LAYOUT_COL_MAJOR);
  EXPECT_EQ(report.choice->layout_b.strides[0], GEMM_STRIDE_BROADCAST);
  EXPECT_EQ(report.choice->layout_c.physical_layout, LAYOUT_ROW_MAJOR);
  struct Entry {
    const intent::Operand& operand;
    const gemm_layout_t& chosen;
    bool is_output;
  };
  const intent::Problem& problem = report.problem;
  for (const Entry& entry : {Entry{problem.a, report.choice->layout_a, false},
                             Entry{problem.b, report.choice->layout_b, false},
                             Entry{problem.c, report.choice->layout_c, true}}) {
    const layout::MatrixLayout& stored = entry.operand.layout;
    const auto again =
        layout::resolve(entry.chosen, stored.batch, stored.rows, stored.cols, "X", entry.is_output);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, stored);
  }
}

TEST(Planner, ShowsWhatBecomesOfResidencyWishes) {
  const char* line = "nt m=1 n=128 k=4096 a=bf16 lb=any/l2";
  EXPECT_TRUE(has_note(plan_of("h200", line), "can be granted"));
  EXPECT_TRUE(has_note(plan_of("cpu", line), "cannot grant"));
  EXPECT_TRUE(has_note(plan_of("v100", line), "cannot grant"));
  EXPECT_TRUE(has_note(plan_of("h200", "nt m=1 n=128 k=4096 a=bf16 lb=any/once"), "evict-first"));
}

TEST(Planner, ShowsThePriceOfPackingAndTheCrossoverOfInt4) {
  const Report decode = plan_of("h200", "nt m=1 n=28672 k=4096 a=fp16 b=int4_awq");
  EXPECT_TRUE(decode.choice->packed_b);
  EXPECT_GT(decode.choice->cost.repack_us, 0);
  EXPECT_TRUE(has_note(decode, "packing B"));
  EXPECT_TRUE(has_note(decode, "slower than fp16 weights from M = "));
  EXPECT_FALSE(has_note(decode, "as here"));
  EXPECT_TRUE(has_note(plan_of("h200", "nt m=8192 n=28672 k=4096 a=fp16 b=int4_awq"), "as here"));
}

// ---- Hooks
// ---------------------------------------------------------------------------------------------

TEST(Planner, AsksTheScorerInsteadOfTheModel) {
  deepgemm_hooks_t hooks = {};
  hooks.score_candidate = [](void*, const deepgemm_candidate_t* c) {
    return std::string(c->family) == "simt" && std::string(c->path) == "fp64" ? 1.0 : 2.0;
  };
  EXPECT_EQ(outcome_of(plan_of("h200", "nt m=64 n=64 k=64 a=fp16", {.hooks = &hooks})),
            "fp64 on simt");
}

TEST(Planner, LetsTheCallerRefuseCandidates) {
  deepgemm_hooks_t hooks = {};
  int asked = 0;
  hooks.user = &asked;
  hooks.admit_candidate = [](void* user, const deepgemm_candidate_t* c) {
    ++*static_cast<int*>(user);
    return std::string(c->path) == "fp32";
  };
  const Report report = plan_of("cpu", "nt m=64 n=64 k=64 a=fp16", {.hooks = &hooks});
  EXPECT_EQ(outcome_of(report), "fp32 on cpu_blocked");
  EXPECT_TRUE(has_refusal(report, "cpu_blocked", "caller"));
  EXPECT_GT(asked, 1);
  hooks.admit_candidate = [](void*, const deepgemm_candidate_t*) { return false; };
  EXPECT_EQ(outcome_of(plan_of("cpu", "nt m=64 n=64 k=64", {.hooks = &hooks})), "unsupported");
}

TEST(Planner, LetsTheCallerChooseLayoutsDeclaredAny) {
  deepgemm_hooks_t hooks = {};
  hooks.choose_layout = [](void*, deepgemm_operand_t operand, int64_t rows, int64_t,
                           gemm_layout_t* layout) {
    if (operand != GEMM_OPERAND_B) return;
    layout->physical_layout = LAYOUT_COL_MAJOR;
    layout->strides[0] = layout->strides[1] = 0;
    layout->strides[2] = rows + 3;
  };
  const Report report = plan_of("cpu", "nt m=4 n=8 k=16 la=col", {.hooks = &hooks});
  ASSERT_TRUE(report.choice.has_value());
  EXPECT_EQ(report.choice->layout_b.physical_layout, LAYOUT_COL_MAJOR);
  EXPECT_EQ(report.problem.b.layout.col_stride, 11);
  const Report declared = plan_of("cpu", "nt m=4 n=8 k=16 lb=row", {.hooks = &hooks});
  EXPECT_EQ(declared.choice->layout_b.physical_layout, LAYOUT_ROW_MAJOR);
}

TEST(Planner, RefusesAnIllegalLayoutFromTheCaller) {
  deepgemm_hooks_t hooks = {};
  hooks.choose_layout = [](void*, deepgemm_operand_t operand, int64_t, int64_t,
                           gemm_layout_t* layout) {
    if (operand == GEMM_OPERAND_C) layout->strides[1] = GEMM_STRIDE_BROADCAST;
  };
  const Report report = plan_of("cpu", "nt m=4 n=8 k=16", {.hooks = &hooks});
  ASSERT_TRUE(report.failure.has_value());
  EXPECT_THAT(report.failure->message, HasSubstr("choose_layout"));
}

TEST(TileUnits, AreRefusedWhereTheDeclaredWeightsDoNotSuitThem) {
  struct {
    const char* line;
    bool suits;
  } const cases[] = {
      {"nt m=8 n=256 k=1024 a=bf16 b=int4_awq group=128", true},
      {"nt m=8 n=256 k=1024 a=bf16 b=int4_awq group=32", true},
      {"nt m=8 n=256 k=1024 a=bf16 b=int4_awq group=16", false},
      {"nt m=8 n=256 k=16 a=bf16 b=int4_awq group=16", true},  // one group
      {"nt m=8 n=256 k=1024 a=bf16 b=int4_awq group=128 act=swiglu", true},
      {"nt m=8 n=250 k=1024 a=bf16 b=int4_awq group=128 act=swiglu", false},
      {"nt m=8 n=256 k=126976 a=int8 c=fp32", true},
      {"nt m=8 n=256 k=126977 a=int8 c=fp32", false},
  };
  for (const auto& [line, suits] : cases) {
    const Report report = plan_of("cpu_amx", line);
    const bool runs = std::ranges::any_of(report.candidates, [](const Candidate& candidate) {
      return std::string(candidate.family->name) == "cpu_amx" && !candidate.refusal;
    });
    EXPECT_EQ(runs, suits) << line;
    EXPECT_TRUE(report.choice) << line;  // vector units at least
  }
}

}  // namespace
}  // namespace deepgemm::schedule
