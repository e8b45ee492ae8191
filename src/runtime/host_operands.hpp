// Operands of a launch where the host can read them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "runtime/memory_range.hpp"
#include "runtime/plan.hpp"

namespace deepgemm::runtime {

// The operands themselves where the device shares the host's memory, else copies with the same
// strides. Plan and operands outlive it; not thread-safe.
class HostOperands {
 public:
  // OUT_OF_MEMORY, and what Device::copy answers.
  static base::Result<HostOperands> of(const PlanData& plan, const Operands& operands);

  const Operands& operands() const { return operands_; }
  // Copies C again.
  base::Result<void> refresh_c();

 private:
  HostOperands(const PlanData& plan, const Operands& operands)
      : plan_(&plan), given_(operands), operands_(operands) {}
  base::Result<void*> copy(const void* address, const MemoryRange& range);
  base::Result<void> copy_matrices();
  base::Result<void> copy_vectors();

  const PlanData* plan_;
  Operands given_;
  Operands operands_;
  MemoryRange c_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace deepgemm::runtime
