// A lock between processes that only saves work: whoever does not get it does the work as well.
#pragma once

#include <string>
#include <utility>

#include "jit/descriptor.hpp"

namespace deepgemm::jit {

// The kernel releases it when its process ends, however that happens.
class WorkLock {
 public:
  enum class State { kHeld, kBusy, kImpossible };  // the last: this directory has no locks

  // Does not wait. An empty path has no locks.
  static WorkLock take(const std::string& path);

  WorkLock(WorkLock&& other) noexcept
      : path_(std::exchange(other.path_, {})),
        file_(std::move(other.file_)),
        state_(std::exchange(other.state_, State::kImpossible)) {}
  WorkLock& operator=(WorkLock&&) = delete;
  ~WorkLock();

  State state() const { return state_; }

 private:
  explicit WorkLock(State state) : state_(state) {}

  std::string path_;
  Descriptor file_;
  State state_;
};

}  // namespace deepgemm::jit
