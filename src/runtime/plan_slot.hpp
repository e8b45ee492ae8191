// What a plan handle holds: the plan that launches use, which may be replaced while they go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/plan.hpp"

namespace deepgemm::runtime {

// Every plan that was ever current stays until the slot goes: launches need no count of uses, and
// turning back to one costs nothing. There are few, for only different kernels replace each other.
// Any thread.
class PlanSlot {
 public:
  static constexpr uint32_t kInterval = 100;  // launches between looks at the device's load

  explicit PlanSlot(std::shared_ptr<const PlanData> first) { put(std::move(first)); }
  PlanSlot(const PlanSlot&) = delete;
  PlanSlot& operator=(const PlanSlot&) = delete;

  // What launches use now.
  const PlanData& current() const { return *current_.load(std::memory_order_acquire); }
  // What the caller was promised: bound, layouts, workspace.
  const PlanData& first() const;
  // The plan with this kernel, if it was current before; else null.
  std::shared_ptr<const PlanData> find(const schedule::Choice& choice) const;

  // Makes it current.
  void put(std::shared_ptr<const PlanData> plan);

  // Counts a launch; true at every kInterval-th, unless a look is still asked for.
  bool count_launch();
  // The look has been taken.
  void looked() { asked_.store(false, std::memory_order_release); }

 private:
  mutable std::mutex mutex_;  // of kept_
  std::vector<std::shared_ptr<const PlanData>> kept_;
  std::atomic<const PlanData*> current_{nullptr};
  std::atomic<uint32_t> launches_{0};
  std::atomic<bool> asked_{false};
};

}  // namespace deepgemm::runtime
