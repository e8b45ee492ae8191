// Plans looked at again while they are used: other programs may leave so little of a device that
// another kernel would be faster.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "backend/cuda/fork_watch.hpp"
#include "base/result.hpp"
#include "deepgemm/types.h"
#include "runtime/plan_slot.hpp"

namespace deepgemm::runtime {

// May another kernel ever take the plan's place? Not where the caller wants the same bits from run
// to run, decided with hooks, or fixed the tile; nor on a device that does not tell its load.
bool may_change(const PlanData& plan);

// The plan to use in the state of the device that `load` tells; null: the present one. It keeps
// what the first one promised (bound, layouts, packing, workspace), and another kernel must be
// predicted to be a tenth faster. Compiles and loads it, unless the slot has it. Errors of
// Device::make_executable.
base::Result<std::shared_ptr<const PlanData>> plan_for_load(const PlanSlot& slot,
                                                            const schedule::DeviceState& load);

// One thread that looks at plans, started by the first request. Any thread.
class Reevaluator {
 public:
  Reevaluator();
  // Not in a forked child.
  ~Reevaluator();
  Reevaluator(const Reevaluator&) = delete;
  Reevaluator& operator=(const Reevaluator&) = delete;

  // Returns at once. A plan that is destroyed before its turn is left alone; one that is destroyed
  // while it is looked at stays until that is done.
  void request(std::weak_ptr<PlanSlot> slot);
  // After everything that was asked for so far.
  void wait();
  // Ends the thread after the plan that it is at.
  void stop();

 private:
  void run();

  const cuda::ForkWatch process_;
  std::mutex mutex_;
  std::condition_variable asked_;  // or stopped
  std::condition_variable idle_;
  std::deque<std::weak_ptr<PlanSlot>> queue_;
  bool busy_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

// Of this process; ended when the process ends, and never destroyed.
Reevaluator& process_reevaluator();

// After a launch of the current plan on this stream: every 100th asks for a look, but not while the
// stream is captured.
void note_launch(const std::shared_ptr<PlanSlot>& slot, deepgemm_stream_t stream);

}  // namespace deepgemm::runtime
