#include "backend/cuda/nvml.hpp"

#include "backend/cuda/shared_library.hpp"

namespace deepgemm::cuda {
namespace {

constexpr const char* kLibraries[] = {"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"};

constexpr int kClockSm = 1;      // NVML_CLOCK_SM
constexpr int kClockMemory = 2;  // NVML_CLOCK_MEM
constexpr int kSensorGpu = 0;    // NVML_TEMPERATURE_GPU

// Calls `call` when the library has it, and scales what it stored.
template <class Value, class... Parameters, class... Arguments>
std::optional<double> ask(int (*call)(Parameters...), double scale, Value& value,
                          Arguments... arguments) {
  if (call == nullptr || call(arguments..., &value) != 0) return std::nullopt;
  return static_cast<double>(value) * scale;
}

template <class Record, class Value>
std::optional<double> ask_part(int (*call)(NvmlDevice, Record*), double scale, NvmlDevice device,
                               Value Record::*part) {
  Record record = {};
  if (call == nullptr || call(device, &record) != 0) return std::nullopt;
  return static_cast<double>(record.*part) * scale;
}

struct MetricText {
  const char* name;
  const char* unit;
};
constexpr MetricText kTexts[] = {
#define DEEPGEMM_NVML_METRIC(name, text, unit) {text, unit},
#include "backend/cuda/nvml_metrics.inc"
#undef DEEPGEMM_NVML_METRIC
};
static_assert(std::size(kTexts) == kMetrics);

}  // namespace

Nvml load_nvml(const std::function<void*(const char* name)>& find) {
  Nvml nvml;
  nvml.error_text = reinterpret_cast<decltype(nvml.error_text)>(find("nvmlErrorString"));
#define DEEPGEMM_NVML_CALL(member, symbol, parameters) \
  nvml.member = reinterpret_cast<decltype(nvml.member)>(find(#symbol));
#include "backend/cuda/nvml_api.inc"
#undef DEEPGEMM_NVML_CALL
  return nvml;
}

const Nvml* process_nvml() {
  static const Nvml* const nvml = []() -> const Nvml* {
    const auto library = SharedLibrary::open(kLibraries);
    if (!library.ok()) return nullptr;
    return new Nvml(load_nvml([&](const char* name) { return library->symbol(name); }));  // kept
  }();
  return nvml;
}

const char* metric_name(Metric metric) { return kTexts[static_cast<size_t>(metric)].name; }

const char* metric_unit(Metric metric) { return kTexts[static_cast<size_t>(metric)].unit; }

std::optional<double> read_metric(const Nvml& nvml, NvmlDevice device, Metric metric) {
  unsigned value = 0;
  unsigned long long wide = 0;
  switch (metric) {
    case Metric::kSmClock:
      return ask(nvml.clock, 1, value, device, kClockSm);
    case Metric::kMaxSmClock:
      return ask(nvml.max_clock, 1, value, device, kClockSm);
    case Metric::kMemoryClock:
      return ask(nvml.clock, 1, value, device, kClockMemory);
    case Metric::kPower:
      return ask(nvml.power, 1e-3, value, device);
    case Metric::kPowerLimit:
      return ask(nvml.power_limit, 1e-3, value, device);
    case Metric::kEnergy:
      return ask(nvml.energy, 1e-3, wide, device);
    case Metric::kTemperature:
      return ask(nvml.temperature, 1, value, device, kSensorGpu);
    case Metric::kSmLoad:
      return ask_part(nvml.utilization, 1e-2, device, &NvmlUtilization::gpu);
    case Metric::kMemoryLoad:
      return ask_part(nvml.utilization, 1e-2, device, &NvmlUtilization::memory);
    case Metric::kFreeMemory:
      return ask_part(nvml.memory, 1, device, &NvmlMemory::free);
    case Metric::kThrottle:
      return ask(nvml.throttle, 1, wide, device);
  }
  return std::nullopt;
}

std::vector<std::string> throttle_reasons(double bits) {
  // nvmlClocksThrottleReasons; bit 0 says that the GPU is idle, which is no reason to complain.
  static constexpr std::pair<int, const char*> kReasons[] = {
      {1, "application clocks"}, {2, "power cap"},        {3, "hardware slowdown"},
      {4, "sync boost"},         {5, "software thermal"}, {6, "hardware thermal"},
      {7, "power brake"},        {8, "display clocks"}};
  std::vector<std::string> reasons;
  const auto set = static_cast<uint64_t>(bits);
  for (const auto& [bit, text] : kReasons) {
    if ((set >> bit & 1) != 0) reasons.emplace_back(text);
  }
  return reasons;
}

}  // namespace deepgemm::cuda
