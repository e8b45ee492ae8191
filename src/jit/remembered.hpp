// A value that is made once for a key, outside any lock.
#pragma once

#include <unistd.h>

#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <utility>

namespace deepgemm::jit {

// Holds the value of the newest key. Several threads asking for one key at once make one value. Any
// thread; a process forked while another thread makes a value makes its own, unless the fork falls
// into one of the moments, well below a microsecond, in which a thread holds the lock.
template <class Key, class Value>
class Remembered {
 public:
  using Pointer = std::shared_ptr<Value>;

  // `make` gives a Pointer; what it throws reaches every caller that waits, and is not remembered.
  template <class Make>
  Pointer get(const Key& key, const Make& make) {
    std::shared_ptr<Flight> flight;
    {
      std::unique_lock lock(mutex_);
      if (value_ && key_ == key) return value_;
      if (flight_ && flight_->process == ::getpid() && flight_->key == key) {
        const std::shared_future<Pointer> result = flight_->result;
        lock.unlock();
        return result.get();
      }
      flight = flight_ = std::make_shared<Flight>(key);
    }
    Pointer made;
    try {
      made = make();
    } catch (...) {
      finish(flight, nullptr);
      flight->promise.set_exception(std::current_exception());
      throw;
    }
    finish(flight, made);
    flight->promise.set_value(made);
    return made;
  }

  // The value of whichever key, if there is one yet.
  Pointer newest() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  // Its thread exists in the process that began it only.
  struct Flight {
    explicit Flight(Key wanted) : key(std::move(wanted)) {}
    const Key key;
    const pid_t process = ::getpid();
    std::promise<Pointer> promise;
    const std::shared_future<Pointer> result = promise.get_future().share();
  };

  // Another key that was asked for meanwhile is newer.
  void finish(const std::shared_ptr<Flight>& flight, const Pointer& made) {
    const std::lock_guard lock(mutex_);
    if (flight_ != flight) return;
    flight_.reset();
    if (!made) return;
    key_ = flight->key;
    value_ = made;
  }

  mutable std::mutex mutex_;
  // All under mutex_.
  Key key_;
  Pointer value_;
  std::shared_ptr<Flight> flight_;
};

}  // namespace deepgemm::jit
