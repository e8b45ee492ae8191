#include "backend/cuda/fork_watch.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace deepgemm::cuda {
namespace {

std::atomic<unsigned> forks{0};

// Counted by a handler: asking the system for the process's number costs more than a launch may.
unsigned count_forks() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

ForkWatch::ForkWatch() : generation_(count_forks()), pid_(::getpid()) {}

bool ForkWatch::forked() const { return forks.load(std::memory_order_relaxed) != generation_; }

base::Result<void> ForkWatch::check() const {
  if (!forked()) return {};
  return base::make_error(
      DEEPGEMM_ERROR_DEVICE,
      "CUDA was used in process {} before it forked into {}, and cannot be used in the child. "
      "Start the child with spawn or exec, or make the first use of a GPU after the fork.",
      pid_, ::getpid());
}

}  // namespace deepgemm::cuda
