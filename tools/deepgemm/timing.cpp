#include "deepgemm/timing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "backend/cpu/device.hpp"
#include "backend/cpu/thread_pool.hpp"
#include "base/files.hpp"

namespace deepgemm::cli {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The counter "total" of the line "some": microseconds in which some task waited.
double stalled_us() {
  constexpr int64_t kMaxBytes = 4096;
  const auto text = base::read_file("/proc/pressure/cpu", kMaxBytes);
  if (!text.ok() || !text->starts_with("some")) return -1;
  const size_t total = text->find("total=");
  if (total == std::string::npos) return -1;
  return std::strtod(text->c_str() + total + 6, nullptr);
}

}  // namespace

double quantile(std::vector<double> times, double share) {
  std::sort(times.begin(), times.end());
  const double position = share * static_cast<double>(times.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, times.size() - 1);
  return std::lerp(times[below], times[above], position - std::floor(position));
}

base::Result<Timing> measure(const TimingLimits& limits,
                             const std::function<base::Result<void>(int64_t)>& body) {
  DEEPGEMM_TRY(body(0));
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  for (int64_t run = 1; run <= limits.max_runs; ++run) {
    const Clock::time_point begin = Clock::now();
    DEEPGEMM_TRY(body(run));
    times.push_back(us_since(begin));
    if (run >= limits.min_runs && us_since(start) > limits.seconds * 1e6) break;
  }
  return Timing{quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9),
                static_cast<int64_t>(times.size())};
}

PressureMeter::PressureMeter() : stalled_us_(stalled_us()), start_(Clock::now()) {}

double PressureMeter::share() const {
  const double now = stalled_us();
  if (now < 0 || stalled_us_ < 0) return -1;
  return (now - stalled_us_) / std::max(us_since(start_), 1.0);
}

double measure_read_bandwidth() {
  constexpr int64_t kSmallest = int64_t{256} << 20;
  constexpr int64_t kChunk = int64_t{1} << 17;  // doubles
  constexpr int kReads = 5;
  const cpu::CpuDevice& device = cpu::cpu_device();
  const int64_t wanted = std::max(kSmallest, 4 * device.l3_bytes);
  const int64_t bytes = std::min(wanted, std::max(device.memory_bytes / 8, kChunk * 8));
  const int64_t chunks = bytes / (kChunk * 8);
  std::vector<double> data(static_cast<size_t>(chunks * kChunk), 1.0);
  std::vector<double> sums(static_cast<size_t>(chunks));
  double best_us = 0;
  for (int run = 0; run < kReads; ++run) {
    const Clock::time_point begin = Clock::now();
    cpu::process_pool().parallel_for(chunks, 0, [&](int64_t chunk, int) {
      constexpr int64_t kLanes = 32;  // independent sums, so that latency does not count
      double lanes[kLanes] = {};
      const double* values = data.data() + chunk * kChunk;
      for (int64_t i = 0; i < kChunk; i += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
      }
      sums[static_cast<size_t>(chunk)] = std::accumulate(lanes, lanes + kLanes, 0.0);
    });
    const double us = us_since(begin);
    best_us = run == 0 ? us : std::min(best_us, us);
  }
  // The sum is used, so that the reads cannot be left out.
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  return sum > 0 && best_us > 0 ? static_cast<double>(chunks * kChunk * 8) / best_us / 1e3 : 0;
}

}  // namespace deepgemm::cli
