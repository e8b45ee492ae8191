#include "runtime/reevaluation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "intent/problem.hpp"
#include "runtime/plan_handle.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::runtime {
namespace {

using testing::HasSubstr;

struct FakeExecutable final : Executable {
  FakeExecutable(size_t bytes, bool recorded) : workspace(bytes), captured(recorded) {}
  size_t workspace_bytes() const override { return workspace; }
  size_t workspace_alignment() const override { return 256; }
  std::string note() const override { return ""; }
  base::Result<void> launch(const Operands&, void*, deepgemm_stream_t) const override { return {}; }
  base::Result<void> synchronize(deepgemm_stream_t) const override { return {}; }
  bool is_captured(deepgemm_stream_t) const override { return captured; }

  size_t workspace;
  bool captured;
};

// An H200 whose load the test sets; kernels of sm90 do not exist, as on the real one.
class FakeGpu final : public Device {
 public:
  FakeGpu() : Device(*schedule::find_profile("h200")) {}
  bool launchable() const override { return true; }
  bool tells_load() const override { return true; }
  std::optional<schedule::DeviceState> state() const override {
    ++looks;
    return load;
  }
  base::Result<std::shared_ptr<const Executable>> make_executable(
      const intent::Problem&, const schedule::Choice&, const schedule::Choice*) const override {
    ++made;
    if (fails) return base::make_error(DEEPGEMM_ERROR_OUT_OF_MEMORY, "no memory");
    return std::shared_ptr<const Executable>(std::make_shared<FakeExecutable>(workspace, captured));
  }

  std::optional<schedule::DeviceState> load = schedule::DeviceState{};
  mutable std::atomic<int> looks{0}, made{0};
  bool fails = false, captured = false;
  size_t workspace = 0;
};

// M = 200 of these sizes: fewer SMs want larger tiles.
constexpr const char* kLine = "nt m=200 n=4096 k=4096 a=bf16 rel=1e-2";
const schedule::DeviceState kBusy{.load = 0.8, .bandwidth_load = 0, .free_memory_bytes = 0};

class ReevaluationTest : public testing::Test {
 protected:
  std::shared_ptr<PlanSlot> slot_for(const std::string& line) {
    const auto spec = intent::parse_line(line);
    EXPECT_TRUE(spec.ok()) << line;
    auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
    EXPECT_TRUE(problem.ok()) << line;
    auto plan = std::make_shared<PlanData>();
    schedule::PlannerOptions options;
    options.kernel_check = gpu_.kernel_check(false);
    plan->report = schedule::plan(*problem, gpu_.profile(), {}, options);
    EXPECT_TRUE(plan->report.choice.has_value());
    plan->device = &gpu_;
    plan->executable = *gpu_.make_executable(plan->problem(), plan->choice(), nullptr);
    gpu_.made = 0;
    return std::make_shared<PlanSlot>(std::move(plan));
  }

  static void launch(const std::shared_ptr<PlanSlot>& slot, int times) {
    for (int i = 0; i < times; ++i) note_launch(slot, nullptr);
    process_reevaluator().wait();
  }

  FakeGpu gpu_;
};

TEST_F(ReevaluationTest, AnotherKernelTakesOverUnderLoadAndGoesBackAfterIt) {
  const auto slot = slot_for(kLine);
  const PlanData& first = slot->current();
  gpu_.load = kBusy;
  launch(slot, 99);
  EXPECT_EQ(&slot->current(), &first) << "99 launches";
  EXPECT_EQ(gpu_.looks, 0);
  launch(slot, 1);
  const PlanData& second = slot->current();
  ASSERT_NE(&second, &first);
  EXPECT_FALSE(schedule::same_kernel(second.choice(), first.choice()));
  EXPECT_LE(second.choice().certificate.bound.relative, first.choice().certificate.bound.relative);
  EXPECT_THAT(second.choice().notes.back(), HasSubstr("at a load of 0.80"));
  gpu_.load = schedule::DeviceState{};
  launch(slot, 100);
  EXPECT_EQ(&slot->current(), &first);
  gpu_.load = kBusy;
  launch(slot, 100);
  EXPECT_EQ(&slot->current(), &second);
  EXPECT_EQ(gpu_.made, 1) << "kernels that were made are kept";
}

TEST_F(ReevaluationTest, ALittleLoadChangesNothing) {
  const auto slot = slot_for(kLine);
  const PlanData& first = slot->current();
  gpu_.load->load = 0.02;
  for (int i = 0; i < 5; ++i) launch(slot, 100);
  EXPECT_EQ(gpu_.looks, 5);
  EXPECT_EQ(&slot->current(), &first);
}

TEST_F(ReevaluationTest, WhatCannotBeMadeOrNeedsMoreMemoryLeavesThePlanAsItIs) {
  const auto slot = slot_for(kLine);
  const PlanData& first = slot->current();
  gpu_.load = kBusy;
  gpu_.fails = true;
  launch(slot, 100);
  EXPECT_EQ(&slot->current(), &first);
  gpu_.fails = false;
  gpu_.workspace = 1;  // callers brought as much as the first plan asked for: none
  launch(slot, 100);
  EXPECT_EQ(&slot->current(), &first);
  EXPECT_EQ(gpu_.made, 2);
  gpu_.load = std::nullopt;  // unknown
  launch(slot, 100);
  EXPECT_EQ(&slot->current(), &first);
}

TEST_F(ReevaluationTest, NeverWhereTheCallerWantsTheSameBitsOrFixedTheTile) {
  gpu_.load = kBusy;
  for (const char* extra : {" repro=run", " repro=batch", " tile=64x64x64"}) {
    const auto slot = slot_for(std::string(kLine) + extra);
    EXPECT_FALSE(may_change(slot->current())) << extra;
    launch(slot, 200);
  }
  EXPECT_EQ(gpu_.looks, 0);
}

TEST_F(ReevaluationTest, NotWhileTheStreamIsCaptured) {
  gpu_.captured = true;
  const auto slot = slot_for(kLine);
  gpu_.load = kBusy;
  launch(slot, 300);
  EXPECT_EQ(gpu_.looks, 0);
}

TEST_F(ReevaluationTest, ADestroyedPlanIsLeftAlone) {
  gpu_.load = kBusy;
  for (int i = 0; i < 50; ++i) {
    auto slot = slot_for(kLine);
    for (int launches = 0; launches < 100; ++launches) note_launch(slot, nullptr);
    slot.reset();
  }
  process_reevaluator().wait();
  EXPECT_LE(gpu_.looks, 50);
}

TEST_F(ReevaluationTest, AStoppedOneTakesNoRequests) {
  Reevaluator reevaluator;
  const auto slot = slot_for(kLine);
  reevaluator.stop();
  reevaluator.request(slot);
  reevaluator.wait();
  EXPECT_EQ(gpu_.looks, 0);
}

TEST_F(ReevaluationTest, LaunchesOfManyThreadsAskOnceAtATime) {
  gpu_.load = kBusy;
  const auto slot = slot_for(kLine);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int launches = 0; launches < 1000; ++launches) {
        note_launch(slot, nullptr);
        ASSERT_NE(slot->current().executable, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  process_reevaluator().wait();
  EXPECT_GE(gpu_.looks, 1);
  EXPECT_LE(gpu_.looks, 80);
  EXPECT_EQ(gpu_.made, 1);
}

}  // namespace
}  // namespace deepgemm::runtime
