// Packed weights: the handle, packing and unpacking.
#pragma once

#include <memory>

#include "backend/cpu/pack.hpp"
#include "base/result.hpp"
#include "deepgemm/types.h"
#include "runtime/plan.hpp"

// Immutable after packing; read by any number of launches.
struct deepgemm_packed_weights_t {
  std::shared_ptr<const deepgemm::cpu::PackedPanels> panels;
  deepgemm_packed_info_t info = {};
};

namespace deepgemm::runtime {

// Packs tensors as `plan` reads them. INVALID_ARGUMENT for sizes that are not the plan's, a missing
// tensor or weights that are not finite; FORMAT for tensors that contradict their format;
// UNSUPPORTED when the plan's weights have another precision, or the plan is not launchable here.
base::Result<deepgemm_packed_weights_t*> pack_weights(const PlanData& plan,
                                                      const deepgemm_weight_tensors_t& tensors);

// The inverse; see deepgemm_unpack_weights.
base::Result<void> unpack_weights(const deepgemm_packed_weights_t& packed,
                                  const deepgemm_weight_tensors_t& tensors);

// The live handle that `pointer` is, else null; never reads through an unknown pointer.
const deepgemm_packed_weights_t* find_packed(const void* pointer);
// The same for an argument that must be a handle: INVALID_ARGUMENT when it is none.
base::Result<const deepgemm_packed_weights_t*> require_packed(const void* pointer);
base::Result<void> destroy_packed(deepgemm_packed_weights_t* packed);

}  // namespace deepgemm::runtime
