// "Tracing" of deepgemm.h.
#include "api/guard.hpp"
#include "base/trace.hpp"
#include "deepgemm/deepgemm.h"

using deepgemm::api::guard;
using deepgemm::api::require;
using Result = deepgemm::base::Result<void>;

deepgemm_status_t deepgemm_write_trace(const char* path) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(path, "path"));
    return deepgemm::base::write_trace(path);
  });
}
