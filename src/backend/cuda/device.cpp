#include "backend/cuda/device.hpp"

#include <array>
#include <optional>

namespace deepgemm::cuda {
namespace {

struct AttributeRow {
  int attribute;
  int64_t DeviceFacts::*wide;
  int DeviceFacts::*number;
  bool DeviceFacts::*flag;
};
constexpr AttributeRow row(int attribute, int64_t DeviceFacts::*member) {
  return {attribute, member, nullptr, nullptr};
}
constexpr AttributeRow row(int attribute, int DeviceFacts::*member) {
  return {attribute, nullptr, member, nullptr};
}
constexpr AttributeRow row(int attribute, bool DeviceFacts::*member) {
  return {attribute, nullptr, nullptr, member};
}

constexpr AttributeRow kAttributes[] = {
    row(kDeviceSms, &DeviceFacts::sms),
    row(kDeviceThreadsPerSm, &DeviceFacts::threads_per_sm),
    row(kDeviceRegistersPerSm, &DeviceFacts::registers_per_sm),
    row(kDeviceSharedPerBlock, &DeviceFacts::shared_bytes_per_block),
    row(kDeviceSharedPerSm, &DeviceFacts::shared_bytes_per_sm),
    row(kDeviceL2Bytes, &DeviceFacts::l2_bytes),
    row(kDevicePersistingL2, &DeviceFacts::persisting_l2_bytes),
    row(kDeviceAccessWindow, &DeviceFacts::access_window_bytes),
    row(kDeviceClockKhz, &DeviceFacts::clock_khz),
    row(kDeviceMemoryClockKhz, &DeviceFacts::memory_clock_khz),
    row(kDeviceBusBits, &DeviceFacts::memory_bus_bits),
    row(kDeviceIntegrated, &DeviceFacts::integrated),
    row(kDeviceEcc, &DeviceFacts::ecc),
    row(kDevicePageableAccess, &DeviceFacts::pageable_access),
    row(kDeviceMemoryPools, &DeviceFacts::memory_pools),
    row(kDeviceClusterLaunch, &DeviceFacts::clusters),
};

void read_attributes(const Driver& driver, DeviceFacts& facts) {
  for (const AttributeRow& each : kAttributes) {
    int value = 0;
    if (driver.device_attribute(&value, each.attribute, facts.handle) != CuResult::kSuccess) {
      continue;
    }
    if (each.wide != nullptr) facts.*each.wide = value;
    if (each.number != nullptr) facts.*each.number = value;
    if (each.flag != nullptr) facts.*each.flag = value != 0;
  }
}

std::string uuid_text(const CuUuid& uuid, bool is_instance) {
  std::string text = is_instance ? "MIG" : "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

}  // namespace

base::Result<std::unique_ptr<Device>> Device::open(const Driver& driver, int ordinal) {
  std::unique_ptr<Device> device(new Device(driver));
  DEEPGEMM_TRY(device->read_facts(ordinal));
  return device;
}

Device::~Device() {
  if (context() != nullptr && !forked()) driver_.primary_release(facts_.handle);
}

base::Result<void> Device::read_facts(int ordinal) {
  name_ = fmt::format("cuda:{}", ordinal);
  const std::string action = "Asking for the facts of " + name_;
  facts_.ordinal = ordinal;
  DEEPGEMM_CUDA_TRY(driver_, driver_.device_get(&facts_.handle, ordinal), action);
  int major = 0;
  int minor = 0;
  DEEPGEMM_CUDA_TRY(driver_, driver_.device_attribute(&major, kDeviceMajor, facts_.handle), action);
  DEEPGEMM_CUDA_TRY(driver_, driver_.device_attribute(&minor, kDeviceMinor, facts_.handle), action);
  facts_.sm = major * 10 + minor;
  size_t bytes = 0;
  DEEPGEMM_CUDA_TRY(driver_, driver_.device_memory(&bytes, facts_.handle), action);
  facts_.memory_bytes = static_cast<int64_t>(bytes);
  read_attributes(driver_, facts_);
  std::array<char, 256> text = {};
  if (driver_.device_name(text.data(), text.size(), facts_.handle) == CuResult::kSuccess) {
    facts_.title = text.data();
  }
  if (driver_.device_pci(text.data(), text.size(), facts_.handle) == CuResult::kSuccess) {
    facts_.pci = text.data();
  }
  CuUuid uuid = {};
  if (driver_.device_uuid(&uuid, facts_.handle) == CuResult::kSuccess) {
    // The driver adds "MIG 1g.18gb" to the name of an instance, and has no other mark of it.
    facts_.uuid = uuid_text(uuid, facts_.title.find(" MIG ") != std::string::npos);
  }
  return {};
}

bool Device::is_alive(CuContext context) const {
  unsigned long long id = 0;
  return driver_.context_id(context, &id) == CuResult::kSuccess && id == context_id_;
}

// Gets the context anew unless another thread did since `seen` was read.
base::Result<void> Device::retain(CuContext seen) {
  const std::lock_guard lock(mutex_);
  if (context() != seen || (seen != nullptr && is_alive(seen))) return {};
  if (seen != nullptr) driver_.primary_release(facts_.handle);
  context_ = nullptr;
  CuContext fresh = nullptr;
  DEEPGEMM_CUDA_TRY(driver_, driver_.primary_retain(&fresh, facts_.handle),
                    "Starting to use " + name_);
  unsigned long long id = 0;
  if (const CuResult result = driver_.context_id(fresh, &id); result != CuResult::kSuccess) {
    driver_.primary_release(facts_.handle);
    return driver_error(driver_, result, "Starting to use " + name_);
  }
  context_id_ = id;
  ++generation_;
  context_ = fresh;
  return {};
}

base::Result<ContextGuard> ContextGuard::enter(Device& device) {
  DEEPGEMM_TRY(device.check_process());
  CuContext context = device.context();
  if (context == nullptr || !device.is_alive(context)) {
    DEEPGEMM_TRY(device.retain(context));
    context = device.context();
  }
  const Driver& driver = device.driver();
  CuContext current = nullptr;
  if (driver.context_current(&current) == CuResult::kSuccess && current == context) {
    return ContextGuard(nullptr);
  }
  DEEPGEMM_CUDA_TRY(driver, driver.context_push(context), "Switching to " + device.name());
  return ContextGuard(&driver);
}

ContextGuard::~ContextGuard() {
  CuContext popped = nullptr;
  if (driver_ != nullptr) driver_->context_pop(&popped);
}

base::Result<std::unique_ptr<Platform>> Platform::create(const Driver& driver) {
  std::unique_ptr<Platform> platform(new Platform(driver));
  int count = 0;
  DEEPGEMM_CUDA_TRY(driver, driver.device_count(&count), "Counting the GPUs");
  for (int i = 0; i < count; ++i) {
    platform->devices_.push_back(Device::open(driver, i));
  }
  return platform;
}

base::Result<Device*> Platform::device(int ordinal) const {
  if (ordinal < 0 || ordinal >= device_count()) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "There is no device cuda:{}: this process sees {} GPU{}. "
                            "CUDA_VISIBLE_DEVICES decides which.",
                            ordinal, device_count(), device_count() == 1 ? "" : "s");
  }
  const auto& device = devices_[static_cast<size_t>(ordinal)];
  if (!device.ok()) return device.error();
  return device->get();
}

base::Result<PointerFacts> Platform::pointer_facts(const void* pointer) const {
  DEEPGEMM_TRY(driver_.process.check());
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  CuPointer begin = 0;
  size_t bytes = 0;
  std::array<int, 5> attributes = {kPointerMemoryType, kPointerIsManaged, kPointerDeviceOrdinal,
                                   kPointerRangeStart, kPointerRangeSize};
  std::array<void*, 5> values = {&type, &managed, &ordinal, &begin, &bytes};
  const CuResult result =
      driver_.pointer_attributes(static_cast<unsigned>(attributes.size()), attributes.data(),
                                 values.data(), reinterpret_cast<CuPointer>(pointer));
  if (result == CuResult::kInvalidValue || result == CuResult::kInvalidContext) {
    return PointerFacts{};  // not memory that CUDA knows
  }
  DEEPGEMM_CUDA_TRY(driver_, result, fmt::format("Asking where {} lies", pointer));
  PointerFacts facts;
  if (type == 0) return facts;
  facts.kind = managed != 0                ? MemoryKind::kManaged
               : type == kMemoryTypeDevice ? MemoryKind::kDevice
                                           : MemoryKind::kPinned;
  facts.ordinal = ordinal;
  facts.begin = begin;
  facts.bytes = bytes;
  return facts;
}

base::Result<Device*> Platform::device_of(std::span<const Operand> operands) const {
  const Operand* decides = nullptr;   // lies in device memory
  const Operand* pageable = nullptr;  // the first one that lies in ordinary host memory
  int ordinal = -1;
  int fallback = -1;
  for (const Operand& operand : operands) {
    if (operand.pointer == nullptr) continue;
    DEEPGEMM_TRY_ASSIGN(facts, pointer_facts(operand.pointer));
    if (facts.kind == MemoryKind::kPageable) {
      if (pageable == nullptr) pageable = &operand;
    } else if (facts.kind != MemoryKind::kDevice) {
      if (fallback < 0) fallback = facts.ordinal;
    } else if (decides == nullptr) {
      decides = &operand;
      ordinal = facts.ordinal;
    } else if (ordinal != facts.ordinal) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "{} lies on cuda:{} and {} on cuda:{}; all operands of a launch must "
                              "lie on one device. Copy one of them.",
                              decides->name, ordinal, operand.name, facts.ordinal);
    }
  }
  if (ordinal < 0) ordinal = fallback;
  if (pageable != nullptr) {
    const auto reaching = device(ordinal);
    if (!reaching.ok() || !(*reaching)->facts().pageable_access) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "{} ({}) is memory that the GPU cannot reach: it was not allocated "
                              "on the device, pinned or managed. Copy it to the device first.",
                              pageable->name, pageable->pointer);
    }
  }
  if (ordinal < 0) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "No operand tells the device: all pointers are null.");
  }
  return device(ordinal);
}

base::Result<Platform*> process_platform() {
  DEEPGEMM_TRY_ASSIGN(driver, process_driver());
  DEEPGEMM_TRY(driver->process.check());
  // Never destroyed: static objects may use it while the process ends.
  static const auto& platform =
      *new base::Result<std::unique_ptr<Platform>>(Platform::create(*driver));
  if (!platform.ok()) return platform.error();
  return platform->get();
}

}  // namespace deepgemm::cuda
