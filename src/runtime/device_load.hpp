// How much of a device other programs use, from what the driver says of all of them and from what
// this process launched.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace deepgemm::runtime {

// Time that this process's launches take on a device, as predicted. Any thread.
class OwnWork {
 public:
  using Clock = std::chrono::steady_clock;
  // As long as the driver's own averages of loads are at most.
  static constexpr std::chrono::seconds kWindow{1};

  explicit OwnWork(Clock::time_point now) : begin_(now) {}

  void add(double us) {
    nanoseconds_.fetch_add(static_cast<uint64_t>(us * 1e3), std::memory_order_relaxed);
  }
  // Share of the time in the last whole window before `now`, above 1 when launches queue up;
  // nothing before the first window is over.
  std::optional<double> share(Clock::time_point now);

 private:
  std::atomic<uint64_t> nanoseconds_{0};
  std::mutex mutex_;
  Clock::time_point begin_;  // of the window
  uint64_t before_ = 0;      // nanoseconds until then
  std::optional<double> share_;
};

// Of the time in which the device is busy, the part that only others can explain. Own launches
// count half as much again: kernels may take longer than was predicted, and what they take must
// never be seen as others'.
double load_of_others(double busy, double own);

}  // namespace deepgemm::runtime
