#include "backend/cpu/thread_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/cpu/device.hpp"

namespace deepgemm::cpu {
namespace {

using Body = std::function<void(int64_t, int)>;

// Longer than the gap between the layers of a model, shorter than a scheduler's time slice.
constexpr std::chrono::microseconds kSpin{30};

thread_local bool inside_region = false;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Polls `done` for the spin time; true when it came true.
template <class Predicate>
bool spin_until(Predicate done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void run_alone(int64_t items, const Body& body) {
  for (int64_t item = 0; item < items; ++item) body(item, 0);
}

}  // namespace

// A region is open from the moment the caller publishes it until the caller has found no item left.
// Workers join an open region under the mutex; one that wakes up later finds it closed and goes
// back, so that the caller never waits for a thread that did not start.
struct ThreadPool::State {
  explicit State(int thread_count) : workers_wanted(thread_count - 1) {}
  ~State();

  void start();
  void run(int64_t item_count, int limit, const Body& region_body);

  const int workers_wanted;
  std::mutex queue;  // held by the caller whose region runs

  std::mutex mutex;  // guards what follows, up to the atomics
  std::condition_variable wake;
  std::condition_variable finished;
  std::vector<std::thread> workers;
  bool started = false;
  bool open = false;
  int slots_left = 0;  // workers that may still join
  int next_slot = 1;   // slot 0 is the caller's
  int64_t items = 0;
  const Body* body = nullptr;

  std::atomic<uint64_t> generation{0};  // counts published regions; written under `mutex`
  std::atomic<int> running{0};          // workers inside the region
  std::atomic<int64_t> next_item{0};
  std::atomic<bool> stop{false};

 private:
  void start_workers();
  void work();
  void take_items(int64_t count, const Body& region_body, int slot);
  void wait_for_workers();
};

ThreadPool::State::~State() {
  {
    const std::lock_guard lock(mutex);
    stop.store(true);
  }
  wake.notify_all();
  for (std::thread& worker : workers) worker.join();
}

void ThreadPool::State::start() {
  const std::lock_guard lock(mutex);
  start_workers();
}

void ThreadPool::State::start_workers() {
  if (started) return;
  started = true;
  workers.reserve(static_cast<size_t>(workers_wanted));
  try {
    for (int i = 0; i < workers_wanted; ++i) workers.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // The system grants no more threads; the caller works with those that started.
  }
}

void ThreadPool::State::work() {
  inside_region = true;  // a body that calls parallel_for runs its region alone
  uint64_t seen = 0;
  const auto has_news = [&] {
    return generation.load(std::memory_order_acquire) != seen ||
           stop.load(std::memory_order_relaxed);
  };
  while (true) {
    spin_until(has_news);
    std::unique_lock lock(mutex);
    wake.wait(lock, has_news);
    if (stop.load(std::memory_order_relaxed)) return;
    seen = generation.load(std::memory_order_relaxed);
    if (!open || slots_left == 0) continue;
    --slots_left;
    const int slot = next_slot++;
    const int64_t count = items;
    const Body& region_body = *body;
    running.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();

    take_items(count, region_body, slot);

    if (running.fetch_sub(1, std::memory_order_release) == 1) {
      const std::lock_guard signal(mutex);  // the caller is not between its test and its wait
      finished.notify_one();
    }
  }
}

void ThreadPool::State::take_items(int64_t count, const Body& region_body, int slot) {
  while (true) {
    const int64_t item = next_item.fetch_add(1, std::memory_order_relaxed);
    if (item >= count) return;
    region_body(item, slot);
  }
}

void ThreadPool::State::wait_for_workers() {
  const auto none_running = [this] { return running.load(std::memory_order_acquire) == 0; };
  if (spin_until(none_running)) return;
  std::unique_lock lock(mutex);
  finished.wait(lock, none_running);
}

void ThreadPool::State::run(int64_t item_count, int limit, const Body& region_body) {
  const std::lock_guard turn(queue);
  {
    const std::lock_guard lock(mutex);
    start_workers();
    items = item_count;
    body = &region_body;
    next_item.store(0, std::memory_order_relaxed);
    slots_left = static_cast<int>(std::min<int64_t>(limit, item_count)) - 1;
    next_slot = 1;
    open = true;
    generation.fetch_add(1, std::memory_order_release);
  }
  wake.notify_all();
  inside_region = true;
  take_items(item_count, region_body, 0);
  inside_region = false;
  {
    const std::lock_guard lock(mutex);
    open = false;
  }
  wait_for_workers();
}

// A forked child has only the thread that called fork: the state it inherits belongs to threads
// that do not exist and may hold locked mutexes. It is abandoned and replaced before fork()
// returns.
struct ForkHandler {
  std::mutex mutex;
  std::vector<ThreadPool*> pools;

  ForkHandler() {
    pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                   [] { instance().replace_states(); });
  }

  static ForkHandler& instance() {
    static ForkHandler& handler = *new ForkHandler;  // pools of static duration may outlive it else
    return handler;
  }

  void replace_states() {
    inside_region = false;
    for (ThreadPool* pool : pools) {
      static_cast<void>(pool->state_.release());
      pool->state_ = std::make_unique<ThreadPool::State>(pool->threads_);
    }
    mutex.unlock();
  }
};

ThreadPool::ThreadPool(int threads)
    : threads_(std::max(threads, 1)), state_(std::make_unique<State>(threads_)) {
  ForkHandler& handler = ForkHandler::instance();
  const std::lock_guard lock(handler.mutex);
  handler.pools.push_back(this);
}

ThreadPool::~ThreadPool() {
  ForkHandler& handler = ForkHandler::instance();
  const std::lock_guard lock(handler.mutex);
  std::erase(handler.pools, this);
}

void ThreadPool::start() { state_->start(); }

void ThreadPool::parallel_for(int64_t items, int limit, const Body& body) {
  const int usable = limit <= 0 ? threads_ : std::min(limit, threads_);
  if (usable == 1 || items <= 1 || inside_region) return run_alone(items, body);
  state_->run(items, usable, body);
}

ThreadPool& process_pool() {
  static ThreadPool pool(cpu_device().threads);
  return pool;
}

}  // namespace deepgemm::cpu
