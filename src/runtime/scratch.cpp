#include "runtime/scratch.hpp"

#include <utility>

#include "runtime/immortal.hpp"

namespace deepgemm::runtime {

Scratch::Reservation::~Reservation() {
  const std::lock_guard lock(scratch_.mutex_);
  if (--scratch_.reservations_ == 0) scratch_.memory_ = SystemMemory();
}

base::Result<std::unique_ptr<Scratch::Reservation>> Scratch::reserve(size_t bytes) {
  if (bytes == 0) return std::unique_ptr<Reservation>();
  const std::lock_guard lock(mutex_);
  if (bytes > memory_.bytes()) {
    SystemMemory larger(bytes);
    if (larger.data() == nullptr) {
      return base::make_error(
          DEEPGEMM_ERROR_OUT_OF_MEMORY,
          "the plan needs {} bytes of workspace, which the system refuses; free "
          "memory or plan smaller blocks (tiling_policy)",
          bytes);
    }
    memory_ = std::move(larger);
  }
  auto reservation = std::make_unique<Reservation>(*this);
  ++reservations_;
  return reservation;
}

Scratch& process_scratch() {
  static Immortal<Scratch> scratch;
  return scratch.get();
}

}  // namespace deepgemm::runtime
