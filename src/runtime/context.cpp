#include "runtime/context.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>

#include "backend/cpu/device.hpp"
#include "base/env.hpp"
#include "build_config.hpp"
#include "jit/service.hpp"
#include "runtime/immortal.hpp"

namespace deepgemm::runtime {
namespace {

constexpr const char* kCpu = "cpu";

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

const std::map<std::string, Device>& known_devices() {
  using Devices = std::map<std::string, Device>;
  static Immortal<Devices> devices([] {
    Devices known;
    for (const schedule::DeviceProfile& profile : schedule::all_profiles()) {
      known.emplace(profile.name, Device{profile, false});
    }
    known.insert_or_assign(kCpu, Device{cpu::host_profile(), true});
    return known;
  }());
  return devices.get();
}

bool is_executable_file(const char* path) {
  struct stat info = {};
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

}  // namespace

base::Result<const Device*> find_device(const std::string& name) {
  const auto& devices = known_devices();
  if (const auto found = devices.find(name); found != devices.end()) return &found->second;
  for (const auto& [prefix, backend] : {std::pair{"cuda:", "CUDA"}, {"sim:", "simulator"}}) {
    if (name.rfind(prefix, 0) != 0) continue;
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "device: '{}': the {} backend is not part of this build; plan for a "
                            "profile such as h200, or use cpu",
                            name, backend);
  }
  std::string names;
  for (const auto& [known, device] : devices) names += names.empty() ? known : ", " + known;
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, "device: '{}' is unknown; known are {}",
                          name, names);
}

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
  return base::env("DEEPGEMM_DEVICE").value_or(kCpu);
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
