// Objects of the driver that free themselves.
#pragma once

#include <utility>

#include "backend/cuda/device.hpp"
#include "backend/cuda/stream_capture.hpp"

namespace deepgemm::cuda {

// Device and context of an object of the driver.
struct Home {
  Device* device = nullptr;
  uint64_t generation = 0;  // of the device's contexts

  Home() = default;
  // Of what is made under a guard of this device.
  explicit Home(Device& of) : device(&of), generation(of.generation()) {}

  // Is the context of the object still that of the device? Only then it may be given to the driver.
  bool is_current() const { return device != nullptr && device->generation() == generation; }
};

// One handle, destroyed with the object, in its context, without harm to captures of other threads.
// What went with a reset, or belongs to the parent of this process, is left alone. The device
// outlives it. Not thread-safe; may be destroyed on another thread than it was made on.
template <class Handle, CuResult (*Driver::*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  // Takes over a handle that was just made under a guard of the device.
  Owned(Device& device, Handle handle) : home_(device), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : home_(other.home_), handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(home_, other.home_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ == Handle{} || home_.device->forked()) return;
    const auto guard = ContextGuard::enter(*home_.device);  // notices a reset
    if (!guard.ok() || !home_.is_current()) return;
    const Driver& driver = home_.device->driver();
    const RelaxedCapture relaxed(driver);
    (driver.*kDestroy)(handle_);
  }

  Handle get() const { return handle_; }
  const Home& home() const { return home_; }
  explicit operator bool() const { return handle_ != Handle{}; }

 private:
  Home home_;
  Handle handle_{};
};

}  // namespace deepgemm::cuda
