// Launching a plan: every operand is checked, then handed to the backend.
#pragma once

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "runtime/plan.hpp"
#include "runtime/plan_handle.hpp"

namespace deepgemm::runtime {

// INVALID_ARGUMENT names the operand and the rule; UNSUPPORTED for a plan that is not launchable
// here; of a GPU's plan also what cuda::Executable::launch says. On the CPU it is done on return,
// and `stream` is not looked at; on a GPU it is enqueued there. Never allocates. Any number of
// threads may launch one plan; on the CPU they take turns unless they bring workspaces.
base::Result<void> launch(const PlanData& plan, const gemm_launch_args_t& args,
                          deepgemm_stream_t stream);

// The same of the plan that the handle holds now; counts the launch.
base::Result<void> launch(deepgemm_plan& plan, const gemm_launch_args_t& args,
                          deepgemm_stream_t stream);

// The checks of launch alone; what the backend is given.
base::Result<Operands> check_operands(const PlanData& plan, const gemm_launch_args_t& args);

// The problem's operands with `m` rows of op(A) in place of the planned ones; strides stay.
layout::MatrixLayout a_layout(const intent::Problem& problem, int64_t m);
layout::MatrixLayout c_layout(const intent::Problem& problem, int64_t m);
layout::MatrixLayout residual_layout(const intent::Problem& problem, int64_t m);

// One matrix B serves the whole batch, so that packed weights can be it.
bool shares_b(const intent::Problem& problem);

// Where the scales of a dense operand lie, as its dequant_strategy says; all zero when its format
// has none. A channel is a row of op(A) or a column of op(B).
struct ScaleGrid {
  int64_t rows = 0, cols = 0;  // row-major; cols run along K
  int64_t channels_per_scale = 1, k_per_scale = 1;

  int64_t count() const { return rows * cols; }
  int64_t index(int64_t channel, int64_t k) const {
    return channel / channels_per_scale * cols + k / k_per_scale;
  }
};
ScaleGrid scale_grid_a(const intent::Problem& problem, int64_t m);
ScaleGrid scale_grid_b(const intent::Problem& problem);

}  // namespace deepgemm::runtime
