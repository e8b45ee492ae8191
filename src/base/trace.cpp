#include "base/trace.hpp"

#include "base/chrome_trace.hpp"
#include "base/files.hpp"

namespace deepgemm::base {
namespace {

// A template, so that the untaken branch does not come into being.
template <bool kEnabled>
Result<void> write_if_enabled(const std::string& path) {
  if constexpr (kEnabled) {
    return write_file_atomic(path, chrome_trace(trace_buffer().snapshot()));
  } else {
    return make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                      "This build records no trace for '{}'; configure it with "
                      "-DDEEPGEMM_ENABLE_DEBUG_TRACING=ON.",
                      path);
  }
}

}  // namespace

Result<void> write_trace(const std::string& path) {
  return write_if_enabled<build_config::kEnableDebugTracing>(path);
}

}  // namespace deepgemm::base
