#include "runtime/device_load.hpp"

#include <algorithm>

namespace deepgemm::runtime {

std::optional<double> OwnWork::share(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double, std::nano> passed = now - begin_;
  if (passed >= kWindow) {
    const uint64_t all = nanoseconds_.load(std::memory_order_relaxed);
    share_ = static_cast<double>(all - before_) / passed.count();
    before_ = all;
    begin_ = now;
  }
  return share_;
}

double load_of_others(double busy, double own) {
  constexpr double kDoubt = 1.5;
  return std::clamp(busy - kDoubt * own, 0.0, 1.0);
}

}  // namespace deepgemm::runtime
