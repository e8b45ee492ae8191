// How many compilers run at a time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace deepgemm::jit {

// Bytes of memory that this process can still take: what the system has, and what each control
// group from its own up to the root leaves; -1 when nothing is known. `proc` and `cgroup` are the
// mounted file systems.
int64_t free_memory(const std::string& proc = "/proc",
                    const std::string& cgroup = "/sys/fs/cgroup");

// CPUs that this process may run on, or whose time it may use where that is less; at least 1.
int usable_cpus(const std::string& proc = "/proc", const std::string& cgroup = "/sys/fs/cgroup");

// Any thread. At least one job always runs.
class JobSlots {
 public:
  // Both are asked anew for each job.
  JobSlots(std::function<int64_t()> memory, std::function<int()> cpus);

  // Waits for a slot.
  void take(int64_t job_bytes);
  void give_back(int64_t job_bytes);

 private:
  bool try_take(int64_t job_bytes, int64_t room, int cpus);

  const std::function<int64_t()> memory_;
  const std::function<int()> cpus_;
  // Jobs that have ended; whoever waits looks at it. A condition variable would not survive a fork
  // while other threads wait.
  std::atomic<uint64_t> ended_{0};
  std::mutex mutex_;
  // All under mutex_.
  pid_t process_;
  int running_ = 0;
  int64_t running_bytes_ = 0;
};

// A slot for the time of its life.
class JobSlot {
 public:
  JobSlot(JobSlots& slots, int64_t job_bytes) : slots_(slots), job_bytes_(job_bytes) {
    slots_.take(job_bytes_);
  }
  JobSlot(const JobSlot&) = delete;
  JobSlot& operator=(const JobSlot&) = delete;
  ~JobSlot() { slots_.give_back(job_bytes_); }

 private:
  JobSlots& slots_;
  const int64_t job_bytes_;
};

}  // namespace deepgemm::jit
