#include "jit/job_slots.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/temporary_directory.hpp"

namespace deepgemm::jit {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

class FreeMemory : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(directory_ / path).parent_path());
    std::ofstream(directory_ / path) << text;
  }
  int64_t free() { return free_memory(directory_ / "proc", directory_ / "cgroup"); }

  base::TemporaryDirectory directory_;
};

TEST_F(FreeMemory, IsUnknownWithoutTheFiles) { EXPECT_EQ(free(), -1); }

TEST_F(FreeMemory, IsWhatTheSystemHas) {
  write("proc/meminfo", "MemTotal: 33554432 kB\nMemFree: 1 kB\nMemAvailable: 16777216 kB\n");
  EXPECT_EQ(free(), 16 * kGiB);
}

TEST_F(FreeMemory, IsNarrowedByEveryGroupAbove) {
  write("proc/meminfo", "MemAvailable: 16777216 kB\n");
  write("proc/self/cgroup", "0::/pod/container\n");
  write("cgroup/pod/container/memory.max", "max\n");
  write("cgroup/pod/container/memory.current", "1000\n");
  EXPECT_EQ(free(), 16 * kGiB);
  write("cgroup/pod/memory.max", std::to_string(4 * kGiB));
  write("cgroup/pod/memory.current", std::to_string(3 * kGiB));
  EXPECT_EQ(free(), kGiB);
  write("cgroup/pod/memory.stat", "anon 5\ninactive_file " + std::to_string(2 * kGiB) + "\n");
  EXPECT_EQ(free(), 3 * kGiB);
  write("cgroup/memory.max", "100");
  write("cgroup/memory.current", "200");
  EXPECT_EQ(free(), 0);
}

TEST_F(FreeMemory, KnowsTheFirstVersionOfControlGroups) {
  write("proc/meminfo", "MemAvailable: 16777216 kB\n");
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n0::/\n");
  write("cgroup/memory/memory.limit_in_bytes", std::to_string(2 * kGiB));
  write("cgroup/memory/memory.usage_in_bytes", std::to_string(kGiB));
  EXPECT_EQ(free(), kGiB);
}

TEST_F(FreeMemory, LeavesOutGroupsThatHaveNoLimit) {
  write("proc/self/cgroup", "4:memory:/x\n");
  write("cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/x/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(free(), -1);
}

TEST_F(FreeMemory, UsableCpusHeedTheQuota) {
  const int allowed = usable_cpus(directory_ / "proc", directory_ / "cgroup");
  EXPECT_GE(allowed, 1);
  write("proc/self/cgroup", "0::/pod\n");
  for (const char* quota : {"100000 100000", "50000 100000"}) {
    write("cgroup/pod/cpu.max", quota);
    EXPECT_EQ(usable_cpus(directory_ / "proc", directory_ / "cgroup"), 1) << quota;
  }
  write("cgroup/pod/cpu.max", "102400000 100000");
  EXPECT_EQ(usable_cpus(directory_ / "proc", directory_ / "cgroup"), allowed);
}

TEST_F(FreeMemory, OfThisMachineIsKnown) { EXPECT_GT(free_memory(), 0); }

// The largest number of jobs at a time.
int most_at_once(int64_t memory, int cpus, int64_t job) {
  JobSlots slots([memory] { return memory; }, [cpus] { return cpus; });
  std::atomic<int> running{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      const JobSlot slot(slots, job);
      const int now = ++running;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      --running;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return most;
}

TEST(JobSlots, AreLimitedByMemoryAndCpusAndNeverNone) {
  EXPECT_EQ(most_at_once(4 * kGiB, 64, kGiB), 4);
  EXPECT_EQ(most_at_once(4 * kGiB, 3, kGiB), 3);
  EXPECT_EQ(most_at_once(kGiB, 64, 3 * kGiB), 1);
  EXPECT_EQ(most_at_once(0, 64, kGiB), 1);
  EXPECT_EQ(most_at_once(-1, 2, kGiB), 2);
}

}  // namespace
}  // namespace deepgemm::jit
