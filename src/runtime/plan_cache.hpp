// Plans by declaration, so that making the same plan again costs a look-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "deepgemm/types.h"
#include "runtime/plan.hpp"

namespace deepgemm::runtime {

// The values of a declaration side by side, without padding, and their hash.
class PlanKey {
 public:
  static constexpr size_t kCapacity = 768;

  bool operator==(const PlanKey& other) const;
  uint64_t hash() const { return hash_; }

 private:
  friend class KeyWriter;
  std::array<std::byte, kCapacity> bytes_;  // only the first size_ are set
  size_t size_ = 0;
  uint64_t hash_ = 0;
};

// Absent when the device name is too long for a key; no known name is.
std::optional<PlanKey> make_plan_key(const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k,
                                     std::string_view device, bool hopper_opt);

// Keeps the plans used last. Thread-safe; plans are made outside its lock. A plan that drops out
// lives on in the handles that share it.
class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : capacity_(capacity) {}

  // Null when absent.
  std::shared_ptr<const PlanData> find(const PlanKey& key);
  // Returns the plan to use: the one that another thread put there first, else `plan`.
  std::shared_ptr<const PlanData> insert(const PlanKey& key, std::shared_ptr<const PlanData> plan);
  // Forgets the plan under this key.
  void erase(const PlanKey& key);
  size_t size() const;

 private:
  struct Entry {
    PlanKey key;
    std::shared_ptr<const PlanData> plan;
  };
  struct KeyHash {
    size_t operator()(const PlanKey* key) const { return static_cast<size_t>(key->hash()); }
  };
  struct KeyEqual {
    bool operator()(const PlanKey* left, const PlanKey* right) const { return *left == *right; }
  };
  std::shared_ptr<const PlanData> find_locked(const PlanKey& key);

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // used last first
  std::unordered_map<const PlanKey*, std::list<Entry>::iterator, KeyHash, KeyEqual> index_;
};

PlanCache& process_plan_cache();

}  // namespace deepgemm::runtime
