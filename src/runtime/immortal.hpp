// Objects of static storage that outlive everything.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace deepgemm::runtime {

// An object that is never destroyed, because other static objects may still use it during exit, and
// that takes no memory from the heap for itself. For function-local statics.
template <class T>
class Immortal {
 public:
  template <class... Args>
  explicit Immortal(Args&&... args) {
    ::new (static_cast<void*>(storage_)) T(std::forward<Args>(args)...);
  }
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;

  T& get() { return *std::launder(reinterpret_cast<T*>(storage_)); }

 private:
  alignas(T) std::byte storage_[sizeof(T)];
};

}  // namespace deepgemm::runtime
