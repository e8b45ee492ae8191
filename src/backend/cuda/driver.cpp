#include "backend/cuda/driver.hpp"

#include <atomic>
#include <string_view>

#include "backend/cuda/shared_library.hpp"
#include "base/env.hpp"

namespace deepgemm::cuda {
namespace {

// The second is where the driver of Windows shows its library to Linux.
constexpr const char* kLibraries[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Name of the first call that is missing; null when all are there.
const char* resolve(const FindSymbol& find, Driver& driver) {
#define DEEPGEMM_CUDA_CALL(member, symbol, parameters)                      \
  driver.member = reinterpret_cast<decltype(driver.member)>(find(#symbol)); \
  if (driver.member == nullptr) return #symbol;
#include "backend/cuda/driver_api.inc"
#undef DEEPGEMM_CUDA_CALL
  return nullptr;
}

base::Error too_old(const std::string& path, const std::string& why) {
  return base::make_error(DEEPGEMM_ERROR_DEVICE,
                          "The GPU driver ({}) is too old: {}. CUDA {} or newer is needed (driver "
                          "525 or newer); update the driver, or use the device 'cpu'.",
                          path, why, version_text(kOldestDriver));
}

base::Error init_error(const Driver& driver, CuResult result,
                       const std::optional<std::string>& visible) {
  if (result == CuResult::kNoDevice && visible) {
    return base::make_error(DEEPGEMM_ERROR_DEVICE,
                            "No GPU is visible: CUDA_VISIBLE_DEVICES is '{}'. Set it to the "
                            "numbers or UUIDs that nvidia-smi -L shows, or unset it.",
                            *visible);
  }
  return driver_error(driver, result, "Initialising CUDA");
}

struct ProcessDriver {
  std::optional<Driver> driver;
  base::Error error;

  ProcessDriver() {
    const auto library = SharedLibrary::open(kLibraries);
    if (!library.ok()) {
      error = base::make_error(DEEPGEMM_ERROR_DEVICE,
                               "There is no GPU driver: libcuda.so.1 does not open ({}). Install "
                               "the NVIDIA driver, or start the container with its GPUs (such as "
                               "docker run --gpus all), or use the device 'cpu'.",
                               library.error().message);
      return;
    }
    auto loaded = load_driver([&](const char* name) { return library->symbol(name); },
                              library->path(), base::env("CUDA_VISIBLE_DEVICES"));
    if (loaded.ok()) {
      driver = std::move(*loaded);
    } else {
      error = loaded.error();
    }
  }
};

struct ResultRow {
  CuResult result;
  ResultKind kind;
  const char* name;
  const char* meaning;
};

constexpr ResultRow kResults[] = {
#define DEEPGEMM_CUDA_RESULT(name, official, number, kind, meaning) \
  {CuResult::name, ResultKind::kind, #official, meaning},
#include "backend/cuda/driver_results.inc"
#undef DEEPGEMM_CUDA_RESULT
};

const ResultRow* find_row(CuResult result) {
  for (const ResultRow& row : kResults) {
    if (row.result == result) return &row;
  }
  return nullptr;
}

deepgemm_status_t status_of(ResultKind kind) {
  switch (kind) {
    case ResultKind::kSticky:
    case ResultKind::kSetup:
    case ResultKind::kOther:
      return DEEPGEMM_ERROR_DEVICE;
    case ResultKind::kMemory:
      return DEEPGEMM_ERROR_OUT_OF_MEMORY;
    case ResultKind::kImage:
      return DEEPGEMM_ERROR_COMPILE_FAILED;
    case ResultKind::kUnsupported:
      return DEEPGEMM_ERROR_UNSUPPORTED;
    case ResultKind::kCapture:
      return DEEPGEMM_ERROR_INVALID_ARGUMENT;
    case ResultKind::kProgram:
      break;
  }
  return DEEPGEMM_ERROR_INTERNAL;
}

}  // namespace

base::Result<Driver> load_driver(const FindSymbol& find, const std::string& path,
                                 const std::optional<std::string>& visible_devices) {
  Driver driver;
  driver.path = path;
  if (const char* missing = resolve(find, driver)) {
    return too_old(path, fmt::format("it has no {}", missing));
  }
  // The version can be asked for before cuInit, and explains failures of cuInit.
  if (driver.driver_version(&driver.version) == CuResult::kSuccess &&
      driver.version < kOldestDriver) {
    return too_old(path, fmt::format("it is for CUDA {}", version_text(driver.version)));
  }
  const CuResult result = driver.init(0);
  if (result != CuResult::kSuccess) return init_error(driver, result, visible_devices);
  return driver;
}

base::Result<const Driver*> process_driver() {
  static const ForkWatch first_use;
  static std::atomic<bool> opened{false};
  // The thread that was opening it is not in the child: waiting for it would never end.
  if (first_use.forked() && !opened) return first_use.check().error();
  // Never destroyed: static objects may use it while the process ends.
  static const ProcessDriver& process = *new ProcessDriver;
  opened = true;
  if (!process.driver) return process.error;
  return &*process.driver;
}

ResultKind result_kind(CuResult result) {
  const ResultRow* row = find_row(result);
  return row == nullptr ? ResultKind::kOther : row->kind;
}

std::string describe(const Driver& driver, CuResult result) {
  const int number = static_cast<int>(result);
  if (const ResultRow* row = find_row(result)) {
    return fmt::format("{} ({}): {}", row->name, number, row->meaning);
  }
  const char* name = nullptr;
  if (driver.error_name(result, &name) != CuResult::kSuccess || name == nullptr) {
    return fmt::format("CUDA error {}", number);
  }
  return fmt::format("{} ({})", name, number);
}

base::Error driver_error(const Driver& driver, CuResult result, const std::string& action,
                         FaultTime time) {
  const ResultKind kind = result_kind(result);
  const std::string what = describe(driver, result);
  if (kind != ResultKind::kSticky) {
    return base::make_error(status_of(kind), "{} failed: {}.", action, what);
  }
  const std::string_view blame =
      time == FaultTime::kBefore
          ? "The device had already failed before this call; the fault is of earlier work."
          : "The fault is of this call or of earlier work.";
  return base::make_error(
      DEEPGEMM_ERROR_DEVICE,
      "{} failed: {}. {} CUDA cannot be used any more in this process: start it again, with "
      "CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer to find the launch that is to blame.",
      action, what, blame);
}

}  // namespace deepgemm::cuda
