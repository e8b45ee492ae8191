#include "cpu_timing.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <numeric>
#include <thread>

namespace deepgemm::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSlowUs = 1e5;  // a launch this long needs no further warming
constexpr int kSlowRounds = 3;
constexpr double kMostWall = 4;  // wall time of a turn, in times of the launches asked for

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double process_cpu_us() {
  std::timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// Waits until no thread of this process computes: pools spin for a while before they sleep, and
// would take the CPUs from the next implementation.
void settle() {
  constexpr int kMostSleeps = 200;
  constexpr double kIdleUs = 100;
  for (int i = 0; i < kMostSleeps; ++i) {
    const double before = process_cpu_us();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (process_cpu_us() - before < kIdleUs) return;
  }
}

// Memory that is read to push other data out of the caches.
class Evictor {
 public:
  explicit Evictor(int64_t bytes) : data_(static_cast<size_t>(bytes) / sizeof(uint64_t), 1) {}

  void run() {
    constexpr size_t kLine = 64 / sizeof(uint64_t);
    uint64_t sum = 0;
    for (size_t i = 0; i < data_.size(); i += kLine) sum += data_[i];
    sum_ = sum;
  }
  bool needed() const { return !data_.empty(); }

 private:
  std::vector<uint64_t> data_;
  volatile uint64_t sum_ = 0;  // so that the reads are not left out
};

class Turns {
 public:
  Turns(Product& product, const TurnLimits& limits, Evictor& evictor)
      : product_(product), limits_(limits), evictor_(evictor) {}

  // One turn of `us` microseconds of counted launches.
  base::Result<void> run(double us) {
    settle();
    DEEPGEMM_TRY(warm());
    const Clock::time_point start = Clock::now();
    double counted = 0;
    do {
      DEEPGEMM_TRY(next(counted));
    } while (counted < us && us_since(start) < kMostWall * us);
    return {};
  }

  double first_us() const { return first_us_; }
  cli::Timing timing() const {
    return {cli::quantile(times_, 0.5), cli::quantile(times_, 0.1), cli::quantile(times_, 0.9),
            static_cast<int64_t>(times_.size())};
  }

 private:
  base::Result<double> launch() {
    const size_t set = at_++ % limits_.sets;
    const Clock::time_point start = Clock::now();
    DEEPGEMM_TRY(product_.launch(set));
    return us_since(start);
  }

  // Wakes the threads. Slow products are warm from their first turn on.
  base::Result<void> warm() {
    if (!times_.empty() && first_us_ > kSlowUs) return {};
    DEEPGEMM_TRY_ASSIGN(us, launch());
    if (times_.empty()) first_us_ = us;
    return {};
  }

  base::Result<void> next(double& counted) {
    if (evictor_.needed() && at_ % limits_.sets == 0) {
      evictor_.run();
      DEEPGEMM_TRY(warm());
      if (limits_.sets == 1) evictor_.run();
    }
    DEEPGEMM_TRY_ASSIGN(us, launch());
    times_.push_back(us);
    counted += us;
    return {};
  }

  Product& product_;
  const TurnLimits& limits_;
  Evictor& evictor_;
  size_t at_ = 0;
  double first_us_ = 0;
  std::vector<double> times_;
};

}  // namespace

base::Result<std::vector<cli::Timing>> measure_in_turns(std::span<Product* const> products,
                                                        const TurnLimits& limits) {
  Evictor evictor(limits.evict_bytes);
  std::vector<Turns> turns;
  for (Product* product : products) turns.emplace_back(*product, limits, evictor);
  for (int round = 0; round < limits.rounds; ++round) {
    for (Turns& turn : turns) {
      const bool slow = turn.first_us() > kSlowUs;
      if (slow && round >= kSlowRounds) continue;
      DEEPGEMM_TRY(turn.run(1e6 * limits.seconds / limits.rounds));
    }
  }
  std::vector<cli::Timing> timings;
  for (const Turns& turn : turns) timings.push_back(turn.timing());
  return timings;
}

}  // namespace deepgemm::bench
