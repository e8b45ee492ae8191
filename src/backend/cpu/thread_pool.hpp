// Threads of the CPU backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace deepgemm::cpu {

// A fixed set of threads that run one parallel region at a time; workers spin briefly, then park.
// Threads start at the first region that needs them; when the system grants fewer, regions run on
// those. After fork() the child starts threads of its own at first use, as if nothing ran before.
class ThreadPool {
 public:
  // `threads` counts the caller of parallel_for; values below 1 count as 1.
  explicit ThreadPool(int threads);
  // Not while a region runs.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Starts the threads now, so that no later region does.
  void start();

  // Calls body(item, slot) for item = 0 ... items-1, on at most `limit` threads (0: all), the
  // caller being one of them; slot is 0 ... limit-1 and no two bodies of one call run in the same
  // slot at once. Returns when all are done. body must not throw. May be called from any thread:
  // calls that use workers queue; a call for one item or one thread, or from within a body, runs on
  // the caller alone and at once. Allocates nothing after the threads have started.
  void parallel_for(int64_t items, int limit, const std::function<void(int64_t, int)>& body);

 private:
  struct State;
  friend struct ForkHandler;

  int threads_;
  std::unique_ptr<State> state_;
};

// The pool of this process, sized by cpu_device().threads; started at first use.
ThreadPool& process_pool();

}  // namespace deepgemm::cpu
