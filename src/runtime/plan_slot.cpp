#include "runtime/plan_slot.hpp"

#include <algorithm>
#include <utility>

namespace deepgemm::runtime {

const PlanData& PlanSlot::first() const {
  const std::lock_guard lock(mutex_);
  return *kept_.front();
}

std::shared_ptr<const PlanData> PlanSlot::find(const schedule::Choice& choice) const {
  const std::lock_guard lock(mutex_);
  for (const auto& plan : kept_) {
    if (schedule::same_kernel(plan->choice(), choice)) return plan;
  }
  return nullptr;
}

void PlanSlot::put(std::shared_ptr<const PlanData> plan) {
  const std::lock_guard lock(mutex_);
  const PlanData* const next = plan.get();
  if (std::ranges::find(kept_, plan) == kept_.end()) kept_.push_back(std::move(plan));
  current_.store(next, std::memory_order_release);
}

bool PlanSlot::count_launch() {
  const uint32_t count = launches_.fetch_add(1, std::memory_order_relaxed) + 1;
  return count % kInterval == 0 && !asked_.exchange(true, std::memory_order_acq_rel);
}

}  // namespace deepgemm::runtime
