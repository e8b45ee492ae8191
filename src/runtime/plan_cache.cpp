#include "runtime/plan_cache.hpp"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/hash.hpp"
#include "runtime/immortal.hpp"

namespace deepgemm::runtime {

// Appends values to a key. The structs are taken apart by structured bindings: a field that is
// added to one of them and forgotten here does not compile.
class KeyWriter {
 public:
  template <class... Values>
  void put(const Values&... values) {
    (put_one(values), ...);
  }

  void put_text(std::string_view text) {
    put(text.size());
    append(text.data(), text.size());
  }

  std::optional<PlanKey> finish() {
    if (overflow_) return std::nullopt;
    key_.hash_ = base::hash_bytes(key_.bytes_.data(), key_.size_).low;
    return key_;
  }

 private:
  template <class Value>
  requires(std::is_arithmetic_v<Value> || std::is_enum_v<Value>) void put_one(const Value& value) {
    append(&value, sizeof value);
  }
  template <class Value, size_t count>
  void put_one(const Value (&values)[count]) {
    append(values, sizeof values);
  }
  void put_one(const numerical_contract_t& contract) {
    const auto& [input, output, safe, model, relative, absolute, outlier, dequant, reproducibility,
                 basis, confidence, activation, weight, group_size, outlier_fraction, max_a, max_b,
                 skip, seed, reserved] = contract;
    put(input, output, safe, model, relative, absolute, outlier, dequant, reproducibility, basis,
        confidence, activation, weight, group_size, outlier_fraction, max_a, max_b, skip, seed,
        reserved);
  }
  void put_one(const gemm_tiling_policy_t& policy) {
    const auto& [block_m, block_n, block_k, warp_m, warp_n, warp_k, partition, prefetch, reserved] =
        policy;
    put(block_m, block_n, block_k, warp_m, warp_n, warp_k, partition, prefetch, reserved);
  }
  void put_one(const compute_budget_t& budget) {
    const auto& [latency, energy, reliability] = budget;
    put(latency, energy, reliability);
  }
  void put_one(const gemm_layout_t& layout) {
    const auto& [shape, physical, space, access, strides] = layout;
    put(shape, physical, space, access, strides);
  }
  void put_one(const gemm_epilogue_t& epilogue) {
    const auto& [activation, bias, residual, bias_precision, residual_precision, stride, reserved] =
        epilogue;
    put(activation, bias, residual, bias_precision, residual_precision, stride, reserved);
  }

  void append(const void* data, size_t bytes) {
    if (bytes > PlanKey::kCapacity - key_.size_) {
      overflow_ = true;
      return;
    }
    std::memcpy(key_.bytes_.data() + key_.size_, data, bytes);
    key_.size_ += bytes;
  }

  PlanKey key_;
  bool overflow_ = false;
};

bool PlanKey::operator==(const PlanKey& other) const {
  return hash_ == other.hash_ && size_ == other.size_ &&
         std::memcmp(bytes_.data(), other.bytes_.data(), size_) == 0;
}

std::optional<PlanKey> make_plan_key(const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k,
                                     std::string_view device, bool hopper_opt) {
  // The device is keyed by its text; the intent's pointer may be null or of any copy of it.
  const auto& [operation, role, alpha, beta, contract, policy, budget, layout_a, layout_b, layout_c,
               epilogue, batch_count, group_kind, group_count, output_count, output_widths,
               intent_device, reserved] = intent;
  KeyWriter writer;
  writer.put(operation, role, alpha, beta, contract, policy, budget, layout_a, layout_b, layout_c,
             epilogue, batch_count, group_kind, group_count, output_count, output_widths, reserved,
             m, n, k, hopper_opt);
  writer.put_text(device);
  return writer.finish();
}

std::shared_ptr<const PlanData> PlanCache::find_locked(const PlanKey& key) {
  const auto found = index_.find(&key);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->plan;
}

std::shared_ptr<const PlanData> PlanCache::find(const PlanKey& key) {
  const std::lock_guard lock(mutex_);
  return find_locked(key);
}

std::shared_ptr<const PlanData> PlanCache::insert(const PlanKey& key,
                                                  std::shared_ptr<const PlanData> plan) {
  std::shared_ptr<const PlanData> dropped;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (auto present = find_locked(key)) return present;
  entries_.push_front({key, plan});
  try {
    index_.emplace(&entries_.front().key, entries_.begin());
  } catch (...) {
    entries_.pop_front();
    throw;
  }
  if (entries_.size() > capacity_) {
    index_.erase(&entries_.back().key);
    dropped = std::move(entries_.back().plan);
    entries_.pop_back();
  }
  return plan;
}

void PlanCache::erase(const PlanKey& key) {
  std::shared_ptr<const PlanData> dropped;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(&key);
  if (found == index_.end()) return;
  const auto entry = found->second;
  dropped = std::move(entry->plan);
  index_.erase(found);
  entries_.erase(entry);
}

size_t PlanCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

PlanCache& process_plan_cache() {
  constexpr size_t kPlans = 1024;
  static Immortal<PlanCache> cache(kPlans);
  return cache.get();
}

}  // namespace deepgemm::runtime
