// Verification of a plan: one launch against the FP64 reference.
#pragma once

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "runtime/plan_handle.hpp"

namespace deepgemm::runtime {

// Launches `plan` with `args` and compares every element of C with the reference that is computed
// from the stored operands. Limits: those of the contract, or where it gives none the certificate's
// bound. Rows of a batch are numbered on: row i of matrix b is b * M + i. Stores what was measured
// in the plan's handle. On a GPU it waits for the stream, and compares copies. Errors: as launch.
base::Result<deepgemm_verification_t> verify_plan(deepgemm_plan& plan,
                                                  const gemm_launch_args_t& args,
                                                  deepgemm_stream_t stream);

}  // namespace deepgemm::runtime
