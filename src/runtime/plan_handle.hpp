// The private half of gemm_plan_t, and which of them are live.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "runtime/plan_slot.hpp"

namespace deepgemm::runtime {

// What verification found for one handle.
struct Measured {
  double relative = 0;
  double absolute = 0;
};

}  // namespace deepgemm::runtime

struct deepgemm_plan {
  explicit deepgemm_plan(std::shared_ptr<const deepgemm::runtime::PlanData> first)
      : slot(std::make_shared<deepgemm::runtime::PlanSlot>(std::move(first))) {}
  const deepgemm::runtime::PlanData& data() const { return slot->current(); }

  // Shared with whoever looks at the plan again.
  const std::shared_ptr<deepgemm::runtime::PlanSlot> slot;
  mutable std::mutex mutex;  // guards what follows
  std::optional<deepgemm::runtime::Measured> measured;
};

namespace deepgemm::runtime {

base::Result<deepgemm_plan*> create_plan(const gemm_intent_t& intent, int64_t m, int64_t n,
                                         int64_t k);
// INVALID_ARGUMENT for null, an empty plan, and a handle that is not live.
base::Result<deepgemm_plan*> find_plan(const gemm_plan_t* plan);
base::Result<void> destroy_plan(const gemm_plan_t& plan);

}  // namespace deepgemm::runtime
