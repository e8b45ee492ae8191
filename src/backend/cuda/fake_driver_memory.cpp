// Memory of the fake driver.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/cuda/fake_driver.hpp"

namespace deepgemm::cuda {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

CuResult FakeDriver::take(CuPointer* pointer, FakeAllocation allocation) {
  if (allocation.bytes == 0) return CuResult::kInvalidValue;
  FakeDevice& device = here();
  if (device.used_bytes + allocation.bytes > device.memory_bytes) return CuResult::kOutOfMemory;
  const size_t rounded = (allocation.bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  std::memset(memory, 0xA5, rounded);  // not zero: nobody may count on it
  device.used_bytes += allocation.bytes;
  allocation.ordinal = current();
  allocation.owned = true;
  *pointer = reinterpret_cast<CuPointer>(memory);
  allocations[*pointer] = allocation;
  return CuResult::kSuccess;
}

CuResult FakeDriver::give(CuPointer pointer) {
  const auto found = allocations.find(pointer);
  if (found == allocations.end() || !found->second.owned) return CuResult::kInvalidValue;
  devices[static_cast<size_t>(found->second.ordinal)].used_bytes -= found->second.bytes;
  std::free(reinterpret_cast<void*>(pointer));
  allocations.erase(found);
  return CuResult::kSuccess;
}

CuResult FakeDriver::pointer_attributes(unsigned count, int* attributes, void** values,
                                        CuPointer pointer) {
  auto found = allocations.upper_bound(pointer);
  if (found == allocations.begin()) return CuResult::kSuccess;
  --found;
  const FakeAllocation& memory = found->second;
  if (pointer >= found->first + memory.bytes) return CuResult::kSuccess;
  for (unsigned i = 0; i < count; ++i) {
    const auto store = [&](auto value) { std::memcpy(values[i], &value, sizeof value); };
    if (attributes[i] == kPointerMemoryType) store(memory.type);
    if (attributes[i] == kPointerIsManaged) store(memory.managed);
    if (attributes[i] == kPointerDeviceOrdinal) store(memory.ordinal);
    if (attributes[i] == kPointerRangeStart) store(found->first);
    if (attributes[i] == kPointerRangeSize) store(memory.bytes);
  }
  return CuResult::kSuccess;
}

CuResult FakeDriver::memory_info(size_t* free, size_t* total) {
  *total = here().memory_bytes;
  *free = *total - here().used_bytes;
  return CuResult::kSuccess;
}

CuResult FakeDriver::memory_allocate(CuPointer* pointer, size_t bytes) {
  return take(pointer, {.bytes = bytes, .type = kMemoryTypeDevice});
}

CuResult FakeDriver::memory_free(CuPointer pointer) { return give(pointer); }

CuResult FakeDriver::pool_create(CuMemoryPool* pool, const CuPoolProperties* properties) {
  if (here().attributes.at(kDeviceMemoryPools) == 0) return CuResult::kNotSupported;
  if (properties->allocation != kAllocationPinned || properties->location != kLocationDevice) {
    return CuResult::kInvalidValue;
  }
  *pool = make_handle<CuMemoryPool>();
  pools[*pool] = {properties->location_id, 0, 0, 0};
  return CuResult::kSuccess;
}

CuResult FakeDriver::pool_destroy(CuMemoryPool pool) { return fake_answer(pools.erase(pool) == 1); }

CuResult FakeDriver::pool_set_attribute(CuMemoryPool pool, int attribute, void* value) {
  if (attribute != kPoolReleaseThreshold) return CuResult::kInvalidValue;
  std::memcpy(&pools.at(pool).release_threshold, value, sizeof(uint64_t));
  return CuResult::kSuccess;
}

CuResult FakeDriver::pool_attribute(CuMemoryPool pool, int attribute, void* value) {
  const FakePool& found = pools.at(pool);
  const bool reserved = attribute == kPoolReserved || attribute == kPoolReservedHigh;
  const uint64_t number = reserved ? found.reserved : found.used;
  std::memcpy(value, &number, sizeof number);
  return CuResult::kSuccess;
}

CuResult FakeDriver::pool_trim(CuMemoryPool pool, size_t) {
  pools.at(pool).reserved = pools.at(pool).used;
  return CuResult::kSuccess;
}

CuResult FakeDriver::pool_allocate(CuPointer* pointer, size_t bytes, CuMemoryPool pool,
                                   CuStream stream) {
  if (!usable(stream) || pools.count(pool) == 0) return CuResult::kInvalidHandle;
  const CuResult result = take(pointer, {.bytes = bytes, .type = kMemoryTypeDevice, .pool = pool});
  if (result != CuResult::kSuccess) return result;
  FakePool& found = pools.at(pool);
  found.used += bytes;
  found.reserved = std::max(found.reserved, found.used);
  return CuResult::kSuccess;
}

CuResult FakeDriver::pool_free(CuPointer pointer, CuStream stream) {
  if (!usable(stream)) return CuResult::kInvalidHandle;
  const auto found = allocations.find(pointer);
  if (found == allocations.end() || found->second.pool == nullptr) return CuResult::kInvalidValue;
  pools.at(found->second.pool).used -= found->second.bytes;
  return give(pointer);
}

CuResult FakeDriver::host_allocate(void** pointer, size_t bytes, unsigned) {
  CuPointer taken = 0;
  const CuResult result = take(&taken, {.bytes = bytes, .type = kMemoryTypeHost});
  *pointer = reinterpret_cast<void*>(taken);
  return result;
}

CuResult FakeDriver::host_free(void* pointer) { return give(reinterpret_cast<CuPointer>(pointer)); }

CuResult FakeDriver::copy(CuPointer to, CuPointer from, size_t bytes, CuStream stream) {
  if (!usable(stream)) return CuResult::kInvalidHandle;
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return CuResult::kSuccess;
}

CuResult FakeDriver::fill_bytes(CuPointer pointer, unsigned char value, size_t count,
                                CuStream stream) {
  if (!usable(stream)) return CuResult::kInvalidHandle;
  std::memset(reinterpret_cast<void*>(pointer), value, count);
  return CuResult::kSuccess;
}

}  // namespace deepgemm::cuda
