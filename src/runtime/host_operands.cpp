#include "runtime/host_operands.hpp"

#include <new>

#include "base/formats.hpp"
#include "runtime/launch.hpp"

namespace deepgemm::runtime {

base::Result<HostOperands> HostOperands::of(const PlanData& plan, const Operands& operands) {
  HostOperands host(plan, operands);
  if (plan.device->shares_host_memory()) return host;
  DEEPGEMM_TRY(host.copy_matrices());
  DEEPGEMM_TRY(host.copy_vectors());
  return host;
}

// Where `address` is in a copy of the range; null for null.
base::Result<void*> HostOperands::copy(const void* address, const MemoryRange& range) {
  if (address == nullptr || range.empty()) return static_cast<void*>(nullptr);
  const size_t bytes = range.last - range.first;
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (memory == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_OUT_OF_MEMORY,
                            "verification needs {} bytes of host memory for a copy; free memory",
                            bytes);
  }
  DEEPGEMM_TRY(
      plan_->device->copy(memory.get(), reinterpret_cast<const void*>(range.first), bytes));
  copies_.push_back(std::move(memory));
  // Strides may be negative: the operand's address need not be the first of its range.
  const auto first = reinterpret_cast<uintptr_t>(copies_.back().get());
  return reinterpret_cast<void*>(first + (reinterpret_cast<uintptr_t>(address) - range.first));
}

base::Result<void> HostOperands::copy_matrices() {
  const intent::Problem& problem = plan_->problem();
  const int64_t m = given_.m;
  DEEPGEMM_TRY_ASSIGN(range_a, matrix_range(given_.a, a_layout(problem, m), problem.a.precision));
  DEEPGEMM_TRY_ASSIGN(a, copy(given_.a, range_a));
  operands_.a = a;
  if (given_.packed_b == nullptr) {
    DEEPGEMM_TRY_ASSIGN(range_b, matrix_range(given_.b, problem.b.layout, problem.b.precision));
    DEEPGEMM_TRY_ASSIGN(b, copy(given_.b, range_b));
    operands_.b = b;
  }
  DEEPGEMM_TRY_ASSIGN(range_c, matrix_range(given_.c, c_layout(problem, m), problem.c.precision));
  c_ = range_c;
  DEEPGEMM_TRY_ASSIGN(c, copy(given_.c, c_));
  operands_.c = c;
  if (!problem.epilogue.residual) return {};
  DEEPGEMM_TRY_ASSIGN(range, matrix_range(given_.residual, residual_layout(problem, m),
                                          problem.epilogue.residual_precision));
  DEEPGEMM_TRY_ASSIGN(residual, copy(given_.residual, range));
  operands_.residual = residual;
  return {};
}

base::Result<void> HostOperands::copy_vectors() {
  const intent::Problem& problem = plan_->problem();
  const auto floats = [](const float* scales, int64_t count) {
    return contiguous_range(scales, base::storage_bytes(PRECISION_FP32, count));
  };
  DEEPGEMM_TRY_ASSIGN(
      bias, copy(given_.bias,
                 contiguous_range(given_.bias, base::storage_bytes(problem.epilogue.bias_precision,
                                                                   problem.n))));
  operands_.bias = bias;
  DEEPGEMM_TRY_ASSIGN(
      scale_a,
      copy(given_.scale_a, floats(given_.scale_a, scale_grid_a(problem, given_.m).count())));
  operands_.scale_a = static_cast<const float*>(scale_a);
  DEEPGEMM_TRY_ASSIGN(scale_b,
                      copy(given_.scale_b, floats(given_.scale_b, scale_grid_b(problem).count())));
  operands_.scale_b = static_cast<const float*>(scale_b);
  return {};
}

base::Result<void> HostOperands::refresh_c() {
  if (plan_->device->shares_host_memory() || c_.empty()) return {};
  const auto address = reinterpret_cast<uintptr_t>(operands_.c);
  const uintptr_t first = address - (reinterpret_cast<uintptr_t>(given_.c) - c_.first);
  return plan_->device->copy(reinterpret_cast<void*>(first),
                             reinterpret_cast<const void*>(c_.first), c_.last - c_.first);
}

}  // namespace deepgemm::runtime
