#include "runtime/pool.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <vector>

#include "backend/cpu/device.hpp"
#include "runtime/immortal.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace deepgemm::runtime {
namespace {

// Under AddressSanitizer what is free, and the tail of a block beyond the bytes asked for, may not
// be touched; elsewhere these two do nothing.
void forbid([[maybe_unused]] std::byte* start, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(start, bytes);
#endif
}
void permit([[maybe_unused]] std::byte* start, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(start, bytes);
#endif
}

struct PurposeWord {
  const char* word;
  MemoryClass memory_class;
};

constexpr PurposeWord kPurposeWords[] = {
    {"weight", MemoryClass::kWeights},
    {"weights", MemoryClass::kWeights},
    {"embedding", MemoryClass::kWeights},
    {"bias", MemoryClass::kWeights},
    {"cache", MemoryClass::kCache},
    {"kv", MemoryClass::kCache},
    {"activation", MemoryClass::kActivations},
    {"activations", MemoryClass::kActivations},
    {"input", MemoryClass::kActivations},
    {"output", MemoryClass::kActivations},
    {"hidden", MemoryClass::kActivations},
    {"residual", MemoryClass::kActivations},
    {"logits", MemoryClass::kActivations},
    {"workspace", MemoryClass::kWorkspace},
    {"scratch", MemoryClass::kWorkspace},
};

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// In lower case.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (auto from = text.begin(); from != text.end();) {
    from = std::find_if(from, text.end(), is_letter);
    const auto to = std::find_if_not(from, text.end(), is_letter);
    std::string word(from, to);
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!word.empty()) words.push_back(std::move(word));
    from = to;
  }
  return words;
}

constexpr size_t kMaxPurpose = 64;  // characters kept for the leak report

}  // namespace

const char* memory_class_name(MemoryClass memory_class) {
  constexpr const char* kNames[kMemoryClasses] = {"general", "weights", "activations", "cache",
                                                  "workspace"};
  return kNames[static_cast<size_t>(memory_class)];
}

MemoryClass classify_purpose(std::string_view purpose) {
  for (const std::string& word : words_of(purpose)) {
    for (const PurposeWord& known : kPurposeWords) {
      if (word == known.word) return known.memory_class;
    }
  }
  return MemoryClass::kGeneral;
}

bool names_host_memory(std::string_view purpose) {
  return std::ranges::any_of(words_of(purpose), [](const std::string& word) {
    return word == "pinned" || word == "host" || word == "staging";
  });
}

base::Result<void*> Pool::allocate(size_t bytes, std::string_view purpose) {
  const MemoryClass memory_class = classify_purpose(purpose);
  // Copied first: from here on an allocation by the standard library may fail only before any
  // change.
  std::string name(purpose.substr(0, kMaxPurpose));
  const std::lock_guard lock(mutex_);
  if (bytes > std::numeric_limits<size_t>::max() / 4) return out_of_memory(bytes, purpose);
  const size_t size = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  Arena& arena = arenas_[static_cast<size_t>(memory_class)];
  auto found = arena.free.lower_bound({size, nullptr});
  if (found == arena.free.end()) {
    if (!grow(memory_class, size)) return out_of_memory(bytes, purpose);
    found = arena.free.lower_bound({size, nullptr});
  }
  const auto position = blocks_.find(found->second);
  split(position, size);
  Block& block = position->second;
  if (is_empty_chunk(block)) empty_ -= chunks_.at(block.chunk).memory.bytes();
  arena.free.erase({block.bytes, position->first});
  block.used = true;
  block.requested = bytes;
  block.purpose = std::move(name);
  block.serial = ++total_;
  arena.used += block.bytes;
  used_ += block.bytes;
  peak_used_ = std::max(peak_used_, used_);
  ++live_;
  permit(position->first, bytes);
  return static_cast<void*>(position->first);
}

base::Result<void> Pool::release(void* pointer) {
  if (pointer == nullptr) return {};
  const std::lock_guard lock(mutex_);
  auto position = blocks_.find(static_cast<std::byte*>(pointer));
  if (position == blocks_.end() || !position->second.used) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "pointer: {} is not a live allocation of the pool (freed already, inside a block, or from "
        "another allocator); free each pointer of deepgemm_malloc once",
        pointer);
  }
  Block& freed = position->second;
  Arena& arena = arena_of(freed);
  arena.free.insert({freed.bytes, position->first});  // may throw: before any other change
  freed.used = false;
  arena.used -= freed.bytes;
  used_ -= freed.bytes;
  --live_;
  forbid(position->first, freed.bytes);
  if (const auto next = std::next(position); next != blocks_.end()) merge(position, next);
  if (position != blocks_.begin()) {
    const auto previous = std::prev(position);
    if (merge(previous, position)) position = previous;
  }
  if (is_empty_chunk(position->second)) {
    empty_ += position->second.bytes;
    if (empty_ > kReserveBytes) return_chunk(position);
  }
  return {};
}

Pool::Arena& Pool::arena_of(const Block& block) {
  return arenas_[static_cast<size_t>(chunks_.at(block.chunk).memory_class)];
}

bool Pool::is_empty_chunk(const Block& block) const {
  return !block.used && block.bytes == chunks_.at(block.chunk).memory.bytes();
}

// Chunks grow with what the arena holds already, so that their number stays logarithmic.
bool Pool::grow(MemoryClass memory_class, size_t bytes) {
  const size_t reserved = arenas_[static_cast<size_t>(memory_class)].reserved;
  const size_t usual = std::clamp(reserved / 2, kSmallestChunk, kLargestChunk);
  const size_t wanted = bytes >= kLargeBlock ? bytes : std::max(bytes, usual);
  if (take_chunk(memory_class, wanted)) return true;
  trim(0);
  return take_chunk(memory_class, bytes);
}

bool Pool::take_chunk(MemoryClass memory_class, size_t bytes) {
  if (limit_bytes_ != 0 && (bytes > limit_bytes_ || reserved_ > limit_bytes_ - bytes)) return false;
  SystemMemory memory(bytes);
  std::byte* const start = memory.data();
  if (start == nullptr) return false;
  const size_t size = memory.bytes();
  Arena& arena = arenas_[static_cast<size_t>(memory_class)];
  const auto chunk = chunks_.emplace(start, Chunk{std::move(memory), memory_class}).first;
  try {
    Block block;
    block.bytes = size;
    block.chunk = start;
    blocks_.emplace(start, std::move(block));
    arena.free.insert({size, start});
  } catch (...) {
    blocks_.erase(start);
    chunks_.erase(chunk);
    throw;
  }
  forbid(start, size);
  arena.reserved += size;
  reserved_ += size;
  empty_ += size;
  return true;
}

// Cuts a free block to `bytes`; the rest becomes a free block of its own.
void Pool::split(Blocks::iterator position, size_t bytes) {
  Block& block = position->second;
  const size_t rest = block.bytes - bytes;
  if (rest < kAlignment) return;
  Arena& arena = arena_of(block);
  std::byte* const start = position->first;
  Block tail;
  tail.bytes = rest;
  tail.chunk = block.chunk;
  // Three insertions may throw; only when all are done is the old entry dropped.
  const auto added = blocks_.emplace(start + bytes, std::move(tail)).first;
  try {
    arena.free.insert({rest, start + bytes});
    arena.free.insert({bytes, start});
  } catch (...) {
    arena.free.erase({rest, start + bytes});
    blocks_.erase(added);
    throw;
  }
  if (is_empty_chunk(block)) empty_ -= block.bytes;
  arena.free.erase({block.bytes, start});
  block.bytes = bytes;
}

// Joins two neighbours into `left` when both are free and of one chunk.
bool Pool::merge(Blocks::iterator left, Blocks::iterator right) {
  Block& low = left->second;
  const Block& high = right->second;
  if (low.used || high.used || low.chunk != high.chunk) return false;
  Arena& arena = arena_of(low);
  arena.free.erase({high.bytes, right->first});
  // Re-keys the node in place: nothing here can fail.
  auto node = arena.free.extract({low.bytes, left->first});
  low.bytes += high.bytes;
  node.value() = {low.bytes, left->first};
  arena.free.insert(std::move(node));
  blocks_.erase(right);
  return true;
}

void Pool::return_chunk(Blocks::iterator position) {
  const Block& block = position->second;
  Arena& arena = arena_of(block);
  std::byte* const start = position->first;
  const size_t bytes = block.bytes;
  permit(start, bytes);  // the address may be mapped again by others
  arena.free.erase({bytes, start});
  arena.reserved -= bytes;
  reserved_ -= bytes;
  empty_ -= bytes;
  blocks_.erase(position);
  chunks_.erase(start);
}

// Returns empty chunks until at most `keep` bytes of them are left.
void Pool::trim(size_t keep) {
  for (auto position = blocks_.begin(); position != blocks_.end() && empty_ > keep;) {
    const auto current = position++;
    if (is_empty_chunk(current->second)) return_chunk(current);
  }
}

base::Error Pool::out_of_memory(size_t bytes, std::string_view purpose) const {
  std::string in_use;
  for (size_t i = 0; i < kMemoryClasses; ++i) {
    if (arenas_[i].used == 0) continue;
    in_use += fmt::format("{}{} {}", in_use.empty() ? "" : ", ",
                          memory_class_name(static_cast<MemoryClass>(i)), arenas_[i].used);
  }
  return base::make_error(DEEPGEMM_ERROR_OUT_OF_MEMORY,
                          "bytes: {} for '{}' cannot be had; the pool holds {} bytes of which {} "
                          "are in use ({}){}; free "
                          "memory or ask for less",
                          bytes, purpose, reserved_, used_, in_use.empty() ? "none" : in_use,
                          limit_bytes_ == 0 ? "" : fmt::format(", its limit is {}", limit_bytes_));
}

deepgemm_pool_stats_t Pool::stats() const {
  const std::lock_guard lock(mutex_);
  deepgemm_pool_stats_t stats = {};
  stats.reserved_bytes = reserved_;
  stats.used_bytes = used_;
  stats.peak_used_bytes = peak_used_;
  stats.live_allocations = live_;
  stats.total_allocations = total_;
  const size_t free_bytes = reserved_ - used_;
  size_t largest = 0;
  for (const Arena& arena : arenas_) {
    if (!arena.free.empty()) largest = std::max(largest, arena.free.rbegin()->first);
  }
  if (free_bytes > 0) {
    stats.fragmentation_ratio =
        1.0 - static_cast<double>(largest) / static_cast<double>(free_bytes);
  }
  return stats;
}

std::string Pool::leak_report() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Block*> live;
  for (const auto& [address, block] : blocks_) {
    if (block.used) live.push_back(&block);
  }
  std::sort(live.begin(), live.end(),
            [](const Block* a, const Block* b) { return a->serial < b->serial; });
  std::string report;
  for (const Block* block : live) {
    const Chunk& chunk = chunks_.at(block->chunk);
    report += fmt::format("allocation {}: {} bytes for '{}' ({})\n", block->serial,
                          block->requested, block->purpose.empty() ? "general" : block->purpose,
                          memory_class_name(chunk.memory_class));
  }
  return report;
}

Pool& process_pool() {
  static Immortal<Pool> pool(static_cast<size_t>(cpu::cpu_device().memory_bytes));
  return pool.get();
}

}  // namespace deepgemm::runtime
