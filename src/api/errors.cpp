// "Version and errors" of deepgemm.h.
#include "api/guard.hpp"
#include "base/log.hpp"
#include "deepgemm/deepgemm.h"

int deepgemm_version(void) { return DEEPGEMM_VERSION; }

const char* deepgemm_status_string(deepgemm_status_t status) {
#define DEEPGEMM_STATUS_NAME(code) \
  case code:                       \
    return #code;
  switch (deepgemm::base::raw_value(status)) {
    DEEPGEMM_STATUS_NAME(DEEPGEMM_SUCCESS)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_INVALID_ARGUMENT)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_UNSUPPORTED)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_CONTRACT_UNMET)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_BUDGET_INFEASIBLE)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_OUT_OF_MEMORY)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_NOT_PREPARED)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_COMPILER_MISSING)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_COMPILE_FAILED)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_DEVICE)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_IO)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_FORMAT)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_BUFFER_TOO_SMALL)
    DEEPGEMM_STATUS_NAME(DEEPGEMM_ERROR_INTERNAL)
  }
#undef DEEPGEMM_STATUS_NAME
  return "unknown status";
}

const char* deepgemm_last_error(void) { return deepgemm::api::last_error(); }

deepgemm_status_t deepgemm_set_log_callback(deepgemm_log_callback_t callback, void* user) {
  return deepgemm::api::guard([&]() -> deepgemm::base::Result<void> {
    deepgemm::base::set_log_callback(callback, user);
    return {};
  });
}
