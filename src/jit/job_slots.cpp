#include "jit/job_slots.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

namespace deepgemm::jit {
namespace {

// Absent for "max" and for a file that is not there.
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

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

// File cache counts as used but can be had: "inactive_file" of memory.stat.
int64_t reclaimable(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == "inactive_file" || name == "total_inactive_file") return value;
  }
  return 0;
}

struct Names {
  const char* limit;
  const char* used;
};

void narrow(const std::string& folder, const Names& names, std::optional<int64_t>& room) {
  const auto limit = number_in(folder + "/" + names.limit);
  const auto used = number_in(folder + "/" + names.used);
  if (!limit || !used) return;
  const int64_t left = std::max<int64_t>(0, *limit - *used + reclaimable(folder));
  room = room ? std::min(*room, left) : left;
}

// The group's folder and those above it, the mount itself last: inside a container the path may be
// the host's, of which only the mount exists.
void walk_up(const std::string& root, std::string path, const Names& names,
             std::optional<int64_t>& room) {
  while (!path.empty() && path != "/") {
    narrow(root + path, names, room);
    path.resize(path.rfind('/'));
  }
  narrow(root, names, room);
}

}  // namespace

int64_t free_memory(const std::string& proc, const std::string& cgroup) {
  constexpr Names kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes"};
  constexpr Names kVersion2 = {"memory.max", "memory.current"};
  std::optional<int64_t> room = available(proc);
  // Lines "<id>:<controllers>:<path>"; version 2 has id 0 and no controllers.
  std::ifstream file(proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      walk_up(cgroup, path, kVersion2, room);
    } else if (controllers.find(",memory,") != std::string::npos) {
      walk_up(cgroup + "/memory", path, kVersion1, room);
    }
  }
  return room.value_or(-1);
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // above 1024 CPUs
}

JobSlots::JobSlots(std::function<int64_t()> memory, std::function<int()> cpus)
    : memory_(std::move(memory)), cpus_(std::move(cpus)), process_(::getpid()) {}

// As if the running jobs had not yet taken any of their memory: many have just begun.
bool JobSlots::fits(int64_t job_bytes) const {
  if (running_ == 0) return true;
  if (running_ >= cpus_()) return false;
  const int64_t room = memory_();
  return room < 0 || running_bytes_ + job_bytes <= room;
}

void JobSlots::take(int64_t job_bytes) {
  std::unique_lock lock(mutex_);
  if (process_ != ::getpid()) {  // forked while jobs ran: those are the parent's
    process_ = ::getpid();
    running_ = 0;
    running_bytes_ = 0;
  }
  // Memory can come free without a job of ours ending.
  while (!fits(job_bytes)) changed_.wait_for(lock, std::chrono::milliseconds(500));
  ++running_;
  running_bytes_ += job_bytes;
}

void JobSlots::give_back(int64_t job_bytes) {
  {
    const std::lock_guard lock(mutex_);
    --running_;
    running_bytes_ -= job_bytes;
  }
  changed_.notify_all();
}

}  // namespace deepgemm::jit
