// Addresses of live objects that callers hold as opaque pointers.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <unordered_set>

namespace deepgemm::runtime {

// Lets a function tell a handle from any other pointer without reading through it: a freed handle,
// an uninitialised variable or a dense matrix where a handle is wanted becomes an error, not a
// crash. Thread-safe. Owns nothing.
class HandleRegistry {
 public:
  void add(const void* handle) {
    const std::unique_lock lock(mutex_);
    live_.insert(handle);
  }
  // False when the handle was not live.
  bool remove(const void* handle) {
    const std::unique_lock lock(mutex_);
    return live_.erase(handle) != 0;
  }
  bool contains(const void* handle) const {
    const std::shared_lock lock(mutex_);
    return live_.contains(handle);
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_set<const void*> live_;
};

}  // namespace deepgemm::runtime
