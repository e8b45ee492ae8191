// What callers hold of a GPU's memory.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "backend/cuda/memory.hpp"
#include "deepgemm/types.h"

namespace deepgemm::runtime {

// Blocks by purpose: device memory from a stream-ordered pool for each class of purposes, and
// pinned host memory for purposes with the word "pinned", "host" or "staging". Any thread.
class CudaMemory {
 public:
  // The device outlives it.
  explicit CudaMemory(cuda::Device& gpu) : gpu_(gpu), pools_(gpu, kKeepBytes) {}

  // Not initialised, aligned to 256 bytes, usable by every stream at once. OUT_OF_MEMORY;
  // NOT_PREPARED while the thread's default stream is captured.
  base::Result<void*> allocate(size_t bytes, std::string_view purpose);
  // In the order of the thread's default stream: work of other streams with the block has ended.
  // INVALID_ARGUMENT for what is no live block.
  base::Result<void> release(void* pointer);
  bool owns(const void* pointer) const;

  deepgemm_pool_stats_t stats() const;
  // A line per live block, oldest first; empty when there is none.
  std::string leak_report() const;

 private:
  static constexpr size_t kKeepBytes = size_t{64} << 20;  // free memory that stays with a pool
  struct Block {
    size_t bytes = 0;
    std::string purpose;
    std::optional<cuda::PinnedBuffer> pinned;
  };
  base::Result<void*> allocate_pinned(size_t bytes, Block& block) const;
  base::Result<void*> allocate_on_device(size_t bytes, std::string_view purpose);

  cuda::Device& gpu_;
  cuda::DeviceMemory pools_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<const void*, int64_t> serials_;
  std::map<int64_t, Block> blocks_;  // by order of allocation
  int64_t total_ = 0;
  size_t pinned_bytes_ = 0;
};

}  // namespace deepgemm::runtime
