#include "runtime/cuda_memory.hpp"

#include <algorithm>
#include <utility>

#include "backend/cuda/stream.hpp"
#include "runtime/context.hpp"
#include "runtime/pool.hpp"

namespace deepgemm::runtime {
namespace {

cuda::CuStream thread_stream() { return static_cast<cuda::CuStream>(default_stream()); }

}  // namespace

base::Result<void*> CudaMemory::allocate_pinned(size_t bytes, Block& block) const {
  DEEPGEMM_TRY_ASSIGN(buffer, cuda::PinnedBuffer::create(gpu_, std::max<size_t>(bytes, 1)));
  void* const pointer = buffer.data();
  block.pinned.emplace(std::move(buffer));
  return pointer;
}

// Who uses the block on another stream need not wait for this one.
base::Result<void*> CudaMemory::allocate_on_device(size_t bytes, std::string_view purpose) {
  cuda::MemoryPool& pool = pools_.pool(memory_class_name(classify_purpose(purpose)));
  DEEPGEMM_TRY_ASSIGN(pointer, pool.allocate(bytes, thread_stream()));
  if (auto ready = cuda::synchronize(gpu_, thread_stream()); !ready.ok()) {
    static_cast<void>(pool.release(pointer, thread_stream()));
    return ready.error();
  }
  return pointer;
}

base::Result<void*> CudaMemory::allocate(size_t bytes, std::string_view purpose) {
  Block block{bytes, std::string(purpose), std::nullopt};
  DEEPGEMM_TRY_ASSIGN(pointer, names_host_memory(purpose) ? allocate_pinned(bytes, block)
                                                          : allocate_on_device(bytes, purpose));
  const std::lock_guard lock(mutex_);
  if (block.pinned) pinned_bytes_ += bytes;
  serials_[pointer] = total_;
  blocks_.emplace(total_++, std::move(block));
  return pointer;
}

base::Result<void> CudaMemory::release(void* pointer) {
  std::optional<Block> block;  // pinned memory goes after the lock is released
  {
    const std::lock_guard lock(mutex_);
    const auto serial = serials_.find(pointer);
    if (serial == serials_.end()) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "pointer: {} is no live block of the pool of {}", pointer,
                              gpu_.name());
    }
    const auto found = blocks_.find(serial->second);
    if (found->second.pinned) pinned_bytes_ -= found->second.bytes;
    block = std::move(found->second);
    blocks_.erase(found);
    serials_.erase(serial);
  }
  return block->pinned ? base::Result<void>{} : pools_.release(pointer, thread_stream());
}

bool CudaMemory::owns(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  return serials_.contains(pointer);
}

deepgemm_pool_stats_t CudaMemory::stats() const {
  deepgemm_pool_stats_t stats = {};
  for (const auto& [name, counts] : pools_.counts()) {
    stats.reserved_bytes += counts.reserved_bytes;
    stats.used_bytes += counts.used_bytes;
    stats.peak_used_bytes += counts.peak_used_bytes;
  }
  if (stats.reserved_bytes > stats.used_bytes) {
    stats.fragmentation_ratio =
        1 - static_cast<double>(stats.used_bytes) / static_cast<double>(stats.reserved_bytes);
  }
  const std::lock_guard lock(mutex_);
  stats.reserved_bytes += pinned_bytes_;
  stats.used_bytes += pinned_bytes_;
  stats.live_allocations = static_cast<int64_t>(blocks_.size());
  stats.total_allocations = total_;
  return stats;
}

std::string CudaMemory::leak_report() const {
  std::string report;
  const std::lock_guard lock(mutex_);
  for (const auto& [serial, block] : blocks_) {
    report += fmt::format("{} bytes for '{}' ({}{}) on {}, allocation {}\n", block.bytes,
                          block.purpose, block.pinned ? "pinned " : "",
                          memory_class_name(classify_purpose(block.purpose)), gpu_.name(), serial);
  }
  return report;
}

}  // namespace deepgemm::runtime
