#include "jit/job_slots.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/cgroup.hpp"

namespace deepgemm::jit {
namespace {

// "MemAvailable:   123456 kB".
std::optional<int64_t> available(const std::string& proc) {
  std::ifstream file(proc + "/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == "MemAvailable:") return kilobytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

int64_t free_memory(const std::string& proc, const std::string& cgroup) {
  const int64_t left = base::memory_left(proc, cgroup);
  const std::optional<int64_t> of_system = available(proc);
  if (!of_system) return left;
  return left < 0 ? *of_system : std::min(*of_system, left);
}

int usable_cpus(const std::string& proc, const std::string& cgroup) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = ::sched_getaffinity(0, sizeof(set), &set) == 0
                          ? CPU_COUNT(&set)
                          : static_cast<int>(std::thread::hardware_concurrency());  // above 1024
  const double quota = base::cpu_quota(proc, cgroup);
  return std::max(1, quota > 0 && quota < allowed ? static_cast<int>(quota) : allowed);
}

JobSlots::JobSlots(std::function<int64_t()> memory, std::function<int()> cpus)
    : memory_(std::move(memory)), cpus_(std::move(cpus)), process_(::getpid()) {}

// As if the running jobs had not yet taken any of their memory: many have just begun.
bool JobSlots::try_take(int64_t job_bytes, int64_t room, int cpus) {
  const std::lock_guard lock(mutex_);
  if (process_ != ::getpid()) {  // forked while jobs ran: those are the parent's
    process_ = ::getpid();
    running_ = 0;
    running_bytes_ = 0;
  }
  const bool fits = running_ < cpus && (room < 0 || running_bytes_ + job_bytes <= room);
  if (running_ > 0 && !fits) return false;
  ++running_;
  running_bytes_ += job_bytes;
  return true;
}

void JobSlots::take(int64_t job_bytes) {
  // Memory can come free without a job of ours ending.
  constexpr std::chrono::milliseconds kAskAgain(500);
  constexpr std::chrono::milliseconds kLook(5);
  for (;;) {
    const uint64_t seen = ended_;
    if (try_take(job_bytes, memory_(), cpus_())) return;
    const auto again = std::chrono::steady_clock::now() + kAskAgain;
    while (ended_ == seen && std::chrono::steady_clock::now() < again) {
      std::this_thread::sleep_for(kLook);
    }
  }
}

void JobSlots::give_back(int64_t job_bytes) {
  {
    const std::lock_guard lock(mutex_);
    --running_;
    running_bytes_ -= job_bytes;
  }
  ++ended_;
}

}  // namespace deepgemm::jit
