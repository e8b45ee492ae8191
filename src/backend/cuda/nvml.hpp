// NVML, opened at run time: clocks, power, temperature, load of a GPU. Nothing here is ever an
// error: what cannot be read is unknown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace deepgemm::cuda {

using NvmlDevice = struct DeviceOfNvml*;
struct NvmlUtilization {
  unsigned gpu, memory;
};
struct NvmlMemory {
  unsigned long long total, free, used;
};

// Calls that a library does not have are null, and what they would tell is unknown. A plain value,
// so that tests can give one of their own.
struct Nvml {
  const char* (*error_text)(int result) = nullptr;
#define DEEPGEMM_NVML_CALL(member, symbol, parameters) int(*member) parameters = nullptr;
#include "backend/cuda/nvml_api.inc"
#undef DEEPGEMM_NVML_CALL
};

Nvml load_nvml(const std::function<void*(const char* name)>& find);

// libnvidia-ml of this process, opened at the first call and kept; null when there is none. Any
// thread.
const Nvml* process_nvml();

enum class Metric : uint8_t {
#define DEEPGEMM_NVML_METRIC(name, text, unit) name,
#include "backend/cuda/nvml_metrics.inc"
#undef DEEPGEMM_NVML_METRIC
};
inline constexpr size_t kMetrics = static_cast<size_t>(Metric::kThrottle) + 1;
// "sm_clock", "MHz".
const char* metric_name(Metric metric);
const char* metric_unit(Metric metric);

// Asks for one value now, in the metric's unit; nothing when it is unknown. Takes from microseconds
// to milliseconds. Load is the driver's own average over 1/6 to 1 second.
std::optional<double> read_metric(const Nvml& nvml, NvmlDevice device, Metric metric);

// The reasons in the bits of Metric::kThrottle: "power cap", "thermal", ...; empty: none, or idle.
std::vector<std::string> throttle_reasons(double bits);

}  // namespace deepgemm::cuda
