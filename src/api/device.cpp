// "Device" of deepgemm.h.
#include "api/guard.hpp"
#include "deepgemm/deepgemm.h"
#include "runtime/context.hpp"

using deepgemm::api::guard;
using Result = deepgemm::base::Result<void>;
namespace runtime = deepgemm::runtime;

deepgemm_status_t deepgemm_set_device(const char* device) {
  return guard([&] { return runtime::set_current_device(device); });
}

deepgemm_status_t deepgemm_set_stream(deepgemm_stream_t stream) {
  return guard([&]() -> Result {
    runtime::set_default_stream(stream);
    return {};
  });
}

deepgemm_status_t deepgemm_set_nvcc_path(const char* path) {
  return guard([&] { return runtime::set_nvcc_path(path); });
}

deepgemm_status_t deepgemm_enable_hopper_opt(bool enabled) {
  return guard([&]() -> Result {
    runtime::set_hopper_opt(enabled);
    return {};
  });
}
