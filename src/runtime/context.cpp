#include "runtime/context.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "base/env.hpp"
#include "build_config.hpp"
#include "jit/service.hpp"
#include "runtime/device.hpp"
#include "runtime/immortal.hpp"

namespace deepgemm::runtime {
namespace {

struct Context {
  std::mutex mutex;
  std::string device;  // as set; empty: automatic
  std::optional<deepgemm_hooks_t> hooks;
  std::atomic<bool> hopper_opt = build_config::kEnableHopperOpt;
};

Context& context() {
  static Immortal<Context> context;
  return context.get();
}

thread_local deepgemm_stream_t thread_stream = nullptr;

bool is_executable_file(const char* path) {
  struct stat info = {};
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

}  // namespace

base::Result<void> set_current_device(const char* name) {
  if (name != nullptr) DEEPGEMM_TRY(find_device(name));
  const std::lock_guard lock(context().mutex);
  context().device = name == nullptr ? "" : name;
  return {};
}

std::string current_device() {
  {
    const std::lock_guard lock(context().mutex);
    if (!context().device.empty()) return context().device;
  }
  const auto named = base::env("DEEPGEMM_DEVICE");
  return named ? *named : automatic_device();
}

void set_hopper_opt(bool enabled) { context().hopper_opt = enabled; }
bool hopper_opt() { return context().hopper_opt; }

base::Result<void> set_nvcc_path(const char* path) {
  if (path != nullptr && !is_executable_file(path)) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "path: '{}' is not an executable file; give the nvcc program itself, or "
        "NULL to search again",
        path);
  }
  std::error_code error;
  const std::filesystem::path full =
      path == nullptr ? std::filesystem::path() : std::filesystem::absolute(path, error);
  if (error) {
    return base::make_error(DEEPGEMM_ERROR_IO, "path: '{}': {}; give the full path", path,
                            error.message());
  }
  jit::process_service().set_nvcc_path(full.string());
  return {};
}

std::string nvcc_path() { return jit::process_service().nvcc_path(); }

void set_hooks(const deepgemm_hooks_t* hooks) {
  const std::lock_guard lock(context().mutex);
  context().hooks = hooks == nullptr ? std::nullopt : std::optional(*hooks);
}

std::optional<deepgemm_hooks_t> hooks() {
  const std::lock_guard lock(context().mutex);
  return context().hooks;
}

void set_default_stream(deepgemm_stream_t stream) { thread_stream = stream; }
deepgemm_stream_t default_stream() { return thread_stream; }

}  // namespace deepgemm::runtime
