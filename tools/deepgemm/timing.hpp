// Measuring time.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "base/result.hpp"

namespace deepgemm::cli {

// Times of repeated runs, in microseconds.
struct Timing {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  int64_t runs = 0;
};

// Value below which a share (0 ... 1) of the times lies, interpolated; `times` is not empty.
double quantile(std::vector<double> times, double share);

// Runs `body(i)` for i = 0, 1, ... until `seconds` have passed, at least `min_runs` and at most
// `max_runs` times, after one run that is not counted. Stops at the first error.
struct TimingLimits {
  double seconds = 1;
  int64_t min_runs = 5;
  int64_t max_runs = 10000;
};
base::Result<Timing> measure(const TimingLimits& limits,
                             const std::function<base::Result<void>(int64_t)>& body);

// Share of wall time, since construction, in which some task of this machine (or container) waited
// for a CPU: from /proc/pressure/cpu. Negative where the kernel does not tell.
class PressureMeter {
 public:
  PressureMeter();
  double share() const;

 private:
  double stalled_us_;
  std::chrono::steady_clock::time_point start_;
};
constexpr double kNoisyPressure = 0.05;  // above this, figures are marked as noisy

// Reading rate of this machine's memory in GB/s: all threads of the CPU backend sum a buffer that
// no cache holds; the best of five.
double measure_read_bandwidth();

}  // namespace deepgemm::cli
