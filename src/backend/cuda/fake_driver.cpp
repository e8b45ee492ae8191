// The machinery of the fake driver; fake_driver_calls.cpp has the calls.
#include "backend/cuda/fake_driver.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace deepgemm::cuda {

template <size_t kSize>
struct FakeName {
  constexpr FakeName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }  // NOLINT
  char text[kSize];
};

template <class Value>
uint64_t as_number(Value value) {
  if constexpr (std::is_pointer_v<Value>) {
    return reinterpret_cast<uint64_t>(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

// The function that stands in the table for a method.
template <auto kMethod, auto kName>
struct FakeEntry;
template <class... Arguments, CuResult (FakeDriver::*kMethod)(Arguments...), auto kName>
struct FakeEntry<kMethod, kName> {
  static CuResult call(Arguments... arguments) {
    FakeDriver* fake = FakeDriver::active_;
    if (fake == nullptr) return CuResult::kDeinitialized;
    const std::lock_guard lock(fake->mutex_);
    const CuResult early = fake->before(kName.text, {as_number(arguments)...});
    return early != CuResult::kSuccess ? early : (fake->*kMethod)(arguments...);
  }
};

FakeDriver* FakeDriver::active_ = nullptr;

namespace {

const std::map<int, int> kH200 = {{kDeviceClockKhz, 1980000},
                                  {kDeviceSms, 132},
                                  {kDeviceIntegrated, 0},
                                  {kDeviceComputeMode, 0},
                                  {kDeviceEcc, 1},
                                  {kDeviceMemoryClockKhz, 3201000},
                                  {kDeviceBusBits, 6144},
                                  {kDeviceL2Bytes, 62914560},
                                  {kDeviceThreadsPerSm, 2048},
                                  {kDeviceMajor, 9},
                                  {kDeviceMinor, 0},
                                  {kDeviceSharedPerSm, 233472},
                                  {kDeviceRegistersPerSm, 65536},
                                  {kDevicePageableAccess, 0},
                                  {kDeviceSharedPerBlock, 232448},
                                  {kDevicePersistingL2, 39321600},
                                  {kDeviceAccessWindow, 134217728},
                                  {kDeviceMemoryPools, 1},
                                  {kDeviceClusterLaunch, 1}};

// Calls without are told by the beginning of their names.
bool needs_context(const std::string& name) {
  for (const char* free :
       {"cuInit", "cuDriver", "cuGetError", "cuDevice", "cuCtxPush", "cuCtxPop", "cuCtxGetCurrent",
        "cuCtxGetId", "cuPointer", "cuThread", "cuGraph", "cuUserObject", "cuMemFreeHost"}) {
    if (name.starts_with(free)) return false;
  }
  return true;
}

}  // namespace

const CuLaunchAttribute* FakeLaunch::attribute(int id) const {
  for (const CuLaunchAttribute& each : attributes) {
    if (each.id == id) return &each;
  }
  return nullptr;
}

FakeDriver::FakeDriver(int count) : devices(static_cast<size_t>(count)) {
  if (active_ != nullptr) throw std::logic_error("there is a fake driver already");
  active_ = this;
  for (FakeDevice& device : devices) device.attributes = kH200;
#define DEEPGEMM_CUDA_CALL(member, symbol, parameters) \
  symbols_[#symbol] =                                  \
      reinterpret_cast<void*>(&FakeEntry<&FakeDriver::member, FakeName(#symbol)>::call);
#include "backend/cuda/driver_api.inc"
#undef DEEPGEMM_CUDA_CALL
}

FakeDriver::~FakeDriver() {
  for (const auto& [pointer, allocation] : allocations) {
    if (allocation.owned) std::free(reinterpret_cast<void*>(pointer));
  }
  active_ = nullptr;
}

const Driver& FakeDriver::driver() {
  if (driver_.init == nullptr) {
    auto loaded = load_driver([this](const char* name) { return symbol(name); }, "fake", {});
    if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
    driver_ = std::move(*loaded);
  }
  return driver_;
}

void* FakeDriver::symbol(const std::string& name) const {
  const auto found = symbols_.find(name);
  return found == symbols_.end() ? nullptr : found->second;
}

void FakeDriver::fail(const std::string& name, CuResult result, int skip, int times) {
  if (symbols_.count(name) == 0) throw std::logic_error("no call " + name);
  const std::lock_guard lock(mutex_);
  failures_[name] = {result, skip, times};
}

void FakeDriver::fault(int ordinal, CuResult result) {
  const std::lock_guard lock(mutex_);
  devices.at(static_cast<size_t>(ordinal)).fault = result;
}

void FakeDriver::reset_device(int ordinal) {
  const std::lock_guard lock(mutex_);
  FakeDevice& device = devices.at(static_cast<size_t>(ordinal));
  const uint64_t gone = device.context;
  device.context = 0;
  device.fault = CuResult::kSuccess;
  device.used_bytes = 0;
  std::erase_if(modules, [&](const auto& each) { return each.second.context == gone; });
  std::erase_if(streams, [&](const auto& each) { return each.second.ordinal == ordinal; });
}

CuStream FakeDriver::make_stream(int ordinal, int capture) {
  const std::lock_guard lock(mutex_);
  const auto stream = make_handle<CuStream>();
  streams[stream] = {ordinal, capture, nullptr};
  if (capture == kCaptureActive) {
    streams[stream].graph = make_handle<CuGraph>();
    graphs[streams[stream].graph] = {};
  }
  return stream;
}

void FakeDriver::add_allocation(const void* pointer, const FakeAllocation& allocation) {
  const std::lock_guard lock(mutex_);
  allocations[reinterpret_cast<CuPointer>(pointer)] = allocation;
}

std::vector<FakeCall> FakeDriver::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

int FakeDriver::count(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(calls_.begin(), calls_.end(),
                                        [&](const FakeCall& call) { return call.name == name; }));
}

void FakeDriver::forget_calls() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
}

CuResult FakeDriver::injected(const std::string& name) {
  const auto found = failures_.find(name);
  if (found == failures_.end()) return CuResult::kSuccess;
  Failure& failure = found->second;
  if (failure.skip > 0) {
    --failure.skip;
    return CuResult::kSuccess;
  }
  if (failure.times == 0) return CuResult::kSuccess;
  if (failure.times > 0) --failure.times;
  return failure.result;
}

CuResult FakeDriver::before(const char* name, std::vector<uint64_t> arguments) {
  calls_.push_back({name, std::move(arguments)});
  if (on_call) on_call(name);
  if (const CuResult result = injected(name); result != CuResult::kSuccess) return result;
  if (!needs_context(name)) return CuResult::kSuccess;
  return current() < 0 ? CuResult::kInvalidContext : here().fault;
}

}  // namespace deepgemm::cuda
