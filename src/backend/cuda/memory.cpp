#include "backend/cuda/memory.hpp"

#include <algorithm>

namespace deepgemm::cuda {
namespace {

CuPointer address(const void* pointer) { return reinterpret_cast<CuPointer>(pointer); }

// A captured stream would make a node of the graph of it.
base::Result<void> refuse_capture(const Device& device, CuStream stream, const char* what) {
  DEEPGEMM_TRY_ASSIGN(captured, is_capturing(device.driver(), stream));
  if (!captured) return {};
  return base::make_error(DEEPGEMM_ERROR_NOT_PREPARED,
                          "{} memory of {} is not possible while the stream is being captured. Do "
                          "it before the capture begins or after it has ended.",
                          what, device.name());
}

}  // namespace

MemoryPool::MemoryPool(Device& device, std::string purpose, size_t limit_bytes, size_t keep_bytes)
    : device_(device),
      purpose_(std::move(purpose)),
      limit_bytes_(limit_bytes),
      keep_bytes_(keep_bytes) {}

MemoryPool::~MemoryPool() {
  if (live_.empty() || device_.forked()) return;
  const auto guard = ContextGuard::enter(device_);
  if (!guard.ok() || !home_->is_current()) return;
  const RelaxedCapture relaxed(device_.driver());
  for (const auto& [pointer, bytes] : live_) give(address(pointer), nullptr);
}

base::Result<void> MemoryPool::make_pool() {
  const Driver& driver = device_.driver();
  CuPoolProperties properties = {};
  properties.allocation = kAllocationPinned;
  properties.location = kLocationDevice;
  properties.location_id = device_.facts().ordinal;
  const std::string action = fmt::format("Making a memory pool on {}", device_.name());
  CuMemoryPool pool = nullptr;
  DEEPGEMM_CUDA_TRY(driver, driver.pool_create(&pool, &properties), action);
  pool_ = Handle(device_, pool);
  uint64_t keep = keep_bytes_;
  DEEPGEMM_CUDA_TRY(driver, driver.pool_set_attribute(pool, kPoolReleaseThreshold, &keep), action);
  return {};
}

// Under a guard. What was before a reset of the device has gone with it.
base::Result<void> MemoryPool::prepare() {
  if (home_ && home_->is_current()) return {};
  home_.reset();
  live_.clear();
  used_ = 0;
  if (device_.facts().memory_pools) DEEPGEMM_TRY(make_pool());
  home_ = Home(device_);
  return {};
}

CuResult MemoryPool::take(CuPointer& pointer, size_t bytes, CuStream stream) const {
  const Driver& driver = device_.driver();
  return pool_ ? driver.pool_allocate(&pointer, bytes, pool_.get(), stream)
               : driver.memory_allocate(&pointer, bytes);
}

CuResult MemoryPool::give(CuPointer pointer, CuStream stream) const {
  const Driver& driver = device_.driver();
  return pool_ ? driver.pool_free(pointer, stream) : driver.memory_free(pointer);
}

base::Error MemoryPool::out_of_memory(size_t bytes) const {
  size_t free = 0;
  size_t total = 0;
  device_.driver().memory_info(&free, &total);
  return base::make_error(
      DEEPGEMM_ERROR_OUT_OF_MEMORY,
      "{} bytes for '{}' are not to be had on {}: its pool holds {} bytes in {} "
      "blocks (limit: {}), and {} of the device's {} bytes are free. Free "
      "memory, raise the limit, or give a smaller problem.",
      bytes, purpose_, device_.name(), used_, live_.size(),
      limit_bytes_ == 0 ? "none" : std::to_string(limit_bytes_), free, total);
}

base::Result<void*> MemoryPool::allocate(size_t bytes, CuStream stream) {
  DEEPGEMM_ENTER_DEVICE(device_);
  DEEPGEMM_TRY(refuse_capture(device_, stream, "Allocating"));
  const std::lock_guard lock(mutex_);
  const RelaxedCapture relaxed(device_.driver());
  DEEPGEMM_TRY(prepare());
  const size_t wanted = std::max<size_t>(bytes, 1);
  if (limit_bytes_ != 0 && wanted > limit_bytes_ - std::min(used_, limit_bytes_)) {
    return out_of_memory(bytes);
  }
  CuPointer pointer = 0;
  CuResult result = take(pointer, wanted, stream);
  if (result == CuResult::kOutOfMemory) {
    trim_locked();
    result = take(pointer, wanted, stream);
  }
  if (result == CuResult::kOutOfMemory) return out_of_memory(bytes);
  DEEPGEMM_CUDA_TRY(
      device_.driver(), result,
      fmt::format("Allocating {} bytes for '{}' on {}", bytes, purpose_, device_.name()));
  auto* block = reinterpret_cast<void*>(pointer);
  live_.emplace(block, wanted);
  used_ += wanted;
  peak_used_ = std::max(peak_used_, used_);
  ++total_;
  return block;
}

base::Result<void> MemoryPool::release(void* pointer, CuStream stream) {
  if (pointer == nullptr) return {};
  DEEPGEMM_ENTER_DEVICE(device_);
  DEEPGEMM_TRY(refuse_capture(device_, stream, "Releasing"));
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(pointer);
  if (found == live_.end()) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{} is no live block of the pool '{}' of {}: it was released before, "
                            "or comes from elsewhere.",
                            pointer, purpose_, device_.name());
  }
  const RelaxedCapture relaxed(device_.driver());
  const CuResult result = home_->is_current() ? give(address(pointer), stream) : CuResult::kSuccess;
  used_ -= found->second;
  live_.erase(found);
  DEEPGEMM_CUDA_TRY(device_.driver(), result,
                    fmt::format("Releasing memory of '{}' on {}", purpose_, device_.name()));
  return {};
}

bool MemoryPool::owns(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  return live_.count(pointer) == 1;
}

void MemoryPool::trim_locked() const {
  if (pool_) device_.driver().pool_trim(pool_.get(), 0);
}

void MemoryPool::trim() {
  const auto guard = ContextGuard::enter(device_);
  const std::lock_guard lock(mutex_);
  if (!guard.ok() || !home_ || !home_->is_current()) return;
  const RelaxedCapture relaxed(device_.driver());
  trim_locked();
}

PoolCounts MemoryPool::counts() const {
  const std::lock_guard lock(mutex_);
  PoolCounts counts = {.used_bytes = used_,
                       .peak_used_bytes = peak_used_,
                       .reserved_bytes = used_,
                       .limit_bytes = limit_bytes_,
                       .live_blocks = static_cast<int64_t>(live_.size()),
                       .total_blocks = total_};
  if (!pool_ || device_.forked()) return counts;
  const auto guard = ContextGuard::enter(device_);
  uint64_t reserved = 0;
  if (guard.ok() && home_->is_current() &&
      device_.driver().pool_attribute(pool_.get(), kPoolReserved, &reserved) ==
          CuResult::kSuccess) {
    counts.reserved_bytes = static_cast<size_t>(reserved);
  }
  return counts;
}

MemoryPool& DeviceMemory::pool(std::string_view purpose) {
  const std::lock_guard lock(mutex_);
  auto found = pools_.find(purpose);
  if (found == pools_.end()) {
    auto pool = std::make_unique<MemoryPool>(device_, std::string(purpose), 0, keep_bytes_);
    found = pools_.emplace(purpose, std::move(pool)).first;
  }
  return *found->second;
}

base::Result<void> DeviceMemory::release(void* pointer, CuStream stream) {
  if (pointer == nullptr) return {};
  MemoryPool* owner = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [purpose, pool] : pools_) {
      if (pool->owns(pointer)) owner = pool.get();
    }
  }
  if (owner != nullptr) return owner->release(pointer, stream);
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                          "{} is no live block of any pool of {}: it was released before, or comes "
                          "from elsewhere.",
                          pointer, device_.name());
}

std::map<std::string, PoolCounts> DeviceMemory::counts() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, PoolCounts> counts;
  for (const auto& [purpose, pool] : pools_) counts.emplace(purpose, pool->counts());
  return counts;
}

base::Result<MemoryInfo> memory_info(Device& device) {
  DEEPGEMM_ENTER_DEVICE(device);
  MemoryInfo info;
  DEEPGEMM_CUDA_TRY(device.driver(),
                    device.driver().memory_info(&info.free_bytes, &info.total_bytes),
                    "Asking for the free memory of " + device.name());
  return info;
}

base::Result<void> copy(Device& device, void* to, const void* from, size_t bytes, CuStream stream) {
  if (bytes == 0) return {};
  DEEPGEMM_ENTER_DEVICE(device);
  DEEPGEMM_CUDA_TRY(device.driver(),
                    device.driver().copy(address(to), address(from), bytes, stream),
                    fmt::format("Copying {} bytes on {}", bytes, device.name()));
  return {};
}

base::Result<void> fill(Device& device, void* to, uint8_t value, size_t bytes, CuStream stream) {
  if (bytes == 0) return {};
  DEEPGEMM_ENTER_DEVICE(device);
  DEEPGEMM_CUDA_TRY(device.driver(), device.driver().fill_bytes(address(to), value, bytes, stream),
                    fmt::format("Filling {} bytes on {}", bytes, device.name()));
  return {};
}

base::Result<PinnedBuffer> PinnedBuffer::create(Device& device, size_t bytes) {
  if (bytes == 0) return PinnedBuffer({}, 0);
  DEEPGEMM_ENTER_DEVICE(device);
  const RelaxedCapture relaxed(device.driver());
  void* memory = nullptr;
  DEEPGEMM_CUDA_TRY(device.driver(), device.driver().host_allocate(&memory, bytes, kHostPortable),
                    fmt::format("Allocating {} bytes of pinned host memory", bytes));
  return PinnedBuffer(Handle(device, memory), bytes);
}

}  // namespace deepgemm::cuda
