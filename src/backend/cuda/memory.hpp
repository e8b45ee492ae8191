// Memory of a device, and host memory that it reaches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "backend/cuda/owned.hpp"

namespace deepgemm::cuda {

struct PoolCounts {
  size_t used_bytes = 0;  // of live blocks
  size_t peak_used_bytes = 0;
  size_t reserved_bytes = 0;  // taken from the device, with what waits to be used again
  size_t limit_bytes = 0;     // 0: none
  int64_t live_blocks = 0;
  int64_t total_blocks = 0;
};

// Device memory for one purpose, in the order of streams: a block may be used by work of the stream
// that it was allocated on, and of others that wait for it; released, it is used again once the
// stream is there, without anybody waiting. Where the device has no such pools, releasing waits for
// the device. Any thread.
class MemoryPool {
 public:
  // `purpose` is for messages. `limit_bytes` bounds the live blocks (0: the device does);
  // `keep_bytes` stay with the pool when they are free. The device outlives the pool, and the
  // blocks go with it.
  MemoryPool(Device& device, std::string purpose, size_t limit_bytes, size_t keep_bytes);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Not initialised, aligned to 256 bytes at least; 0 bytes give a pointer of their own.
  //   OUT_OF_MEMORY  with what the pool holds and the device has free; everything that waits to be
  //                  used again was given back first
  //   NOT_PREPARED   the stream is being captured: allocate before
  base::Result<void*> allocate(size_t bytes, CuStream stream);
  // Null is fine. INVALID_ARGUMENT for what is no live block of this pool; NOT_PREPARED while the
  // stream is being captured.
  base::Result<void> release(void* pointer, CuStream stream);
  bool owns(const void* pointer) const;

  // Gives back to the device what is free.
  void trim();
  PoolCounts counts() const;

 private:
  using Handle = Owned<CuMemoryPool, &Driver::pool_destroy>;
  base::Result<void> prepare();
  base::Result<void> make_pool();
  CuResult take(CuPointer& pointer, size_t bytes, CuStream stream) const;
  CuResult give(CuPointer pointer, CuStream stream) const;
  base::Error out_of_memory(size_t bytes) const;
  void trim_locked() const;

  Device& device_;
  const std::string purpose_;
  const size_t limit_bytes_;
  const size_t keep_bytes_;
  mutable std::mutex mutex_;
  std::optional<Home> home_;  // of the pool and all blocks; nothing: not used yet
  Handle pool_;               // empty where the device has none
  std::unordered_map<const void*, size_t> live_;
  size_t used_ = 0;
  size_t peak_used_ = 0;
  int64_t total_ = 0;
};

// The pools of a device, one for each purpose that was asked for ("weights", "workspace"), so that
// what lives long does not lie among what comes and goes. Any thread.
class DeviceMemory {
 public:
  // Every pool keeps up to `keep_bytes` of free memory.
  DeviceMemory(Device& device, size_t keep_bytes) : device_(device), keep_bytes_(keep_bytes) {}

  // Lives as long as this.
  MemoryPool& pool(std::string_view purpose);
  // From whichever pool it is of; as MemoryPool::release.
  base::Result<void> release(void* pointer, CuStream stream);
  // By purpose.
  std::map<std::string, PoolCounts> counts() const;

 private:
  Device& device_;
  const size_t keep_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<MemoryPool>, std::less<>> pools_;
};

struct MemoryInfo {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};
base::Result<MemoryInfo> memory_info(Device& device);

// Copies and fills in the order of the stream, from and to memory of devices and host; host memory
// that is not pinned may make the call wait. 0 bytes are no call.
base::Result<void> copy(Device& device, void* to, const void* from, size_t bytes, CuStream stream);
base::Result<void> fill(Device& device, void* to, uint8_t value, size_t bytes, CuStream stream);

// Host memory that every device reaches and copies without staging. Zero bytes: empty.
class PinnedBuffer {
 public:
  static base::Result<PinnedBuffer> create(Device& device, size_t bytes);

  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  using Handle = Owned<void*, &Driver::host_free>;
  PinnedBuffer(Handle memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  Handle memory_;
  size_t bytes_;
};

}  // namespace deepgemm::cuda
