// The memory pool behind deepgemm_malloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "deepgemm/types.h"
#include "runtime/system_memory.hpp"

namespace deepgemm::runtime {

// Memory of one class shares chunks, so that what lives long (weights) does not pin the chunks of
// what comes and goes (activations).
enum class MemoryClass : uint8_t { kGeneral, kWeights, kActivations, kCache, kWorkspace };
constexpr size_t kMemoryClasses = 5;
const char* memory_class_name(MemoryClass memory_class);

// The class that a word of the purpose names: "q_proj_weight" -> weights, "kv_cache" -> cache.
// Words end at anything but a letter; the first word that is known decides, else general.
MemoryClass classify_purpose(std::string_view purpose);

// A word of the purpose asks for host memory that GPUs reach ("pinned", "host", "staging").
bool names_host_memory(std::string_view purpose);

// Best fit over chunks that grow with use, with neighbours merged on free. Blocks are aligned to
// kAlignment; requests of kLargeBlock and more have chunks of their own. Empty chunks return to the
// system beyond kReserveBytes. Thread-safe. Blocks still live when the pool is destroyed go with
// it.
class Pool {
 public:
  static constexpr size_t kAlignment = 256;
  static constexpr size_t kSmallestChunk = size_t{2} << 20;
  static constexpr size_t kLargestChunk = size_t{64} << 20;
  static constexpr size_t kLargeBlock = size_t{16} << 20;
  static constexpr size_t kReserveBytes = size_t{64} << 20;

  // `limit_bytes` bounds what is taken from the system; 0: only the system does.
  explicit Pool(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Not initialised. 0 bytes give a pointer of their own. OUT_OF_MEMORY tells what is in use.
  base::Result<void*> allocate(size_t bytes, std::string_view purpose);
  // INVALID_ARGUMENT for a pointer that is not a live block of this pool; null is fine.
  base::Result<void> release(void* pointer);

  deepgemm_pool_stats_t stats() const;
  // A line per live block, oldest first; empty when there is none.
  std::string leak_report() const;

 private:
  struct Block {
    size_t bytes = 0;      // the whole block, a multiple of kAlignment
    size_t requested = 0;  // what the caller asked for
    int64_t serial = 0;    // order of allocation
    std::string purpose;
    std::byte* chunk = nullptr;
    bool used = false;
  };
  using Blocks = std::map<std::byte*, Block>;
  struct Arena {
    std::set<std::pair<size_t, std::byte*>> free;  // by size: lower_bound is the best fit
    size_t reserved = 0;
    size_t used = 0;
  };
  struct Chunk {
    SystemMemory memory;
    MemoryClass memory_class = MemoryClass::kGeneral;
  };

  Arena& arena_of(const Block& block);
  bool grow(MemoryClass memory_class, size_t bytes);
  bool take_chunk(MemoryClass memory_class, size_t bytes);
  void split(Blocks::iterator block, size_t bytes);
  bool merge(Blocks::iterator left, Blocks::iterator right);
  void return_chunk(Blocks::iterator block);
  void trim(size_t keep);
  bool is_empty_chunk(const Block& block) const;
  base::Error out_of_memory(size_t bytes, std::string_view purpose) const;

  const size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::array<Arena, kMemoryClasses> arenas_;
  std::map<std::byte*, Chunk> chunks_;
  Blocks blocks_;  // all blocks, free and used, of all chunks
  size_t reserved_ = 0;
  size_t used_ = 0;
  size_t peak_used_ = 0;
  size_t empty_ = 0;  // bytes of chunks without a used block
  int64_t live_ = 0;
  int64_t total_ = 0;
};

// The pool of this process, bounded by the machine's memory.
Pool& process_pool();

}  // namespace deepgemm::runtime
