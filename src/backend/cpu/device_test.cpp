#include "backend/cpu/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace deepgemm::cpu {
namespace {

namespace fs = std::filesystem;

// A folder with fake /proc, cgroup and CPU trees.
class DeviceTest : public testing::Test {
 protected:
  DeviceTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) /
            ("deepgemm_device_" + std::to_string(getpid()) + "_" + info->name());
    fs::create_directories(root_);
    sources_.proc = (root_ / "proc").string();
    sources_.cgroup = (root_ / "cgroup").string();
    sources_.cpus = (root_ / "cpus").string();
  }
  ~DeviceTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  void allow_cpus(const std::string& list) const {
    write("proc/thread-self/status",
          "Name:\tserver\nCpus_allowed:\tff\nCpus_allowed_list:\t" + list + "\nMems_allowed:\t1\n");
  }

  fs::path root_;
  CpuSources sources_;
};

TEST_F(DeviceTest, ThreadsAreTheCpusOfTheAffinityMask) {
  allow_cpus("0-2,8,10-13");
  const CpuDevice device = detect_cpu(sources_);
  EXPECT_EQ(device.affinity_threads, 8);
  EXPECT_EQ(device.threads, 8);
  EXPECT_EQ(device.quota_threads, 0);
  EXPECT_EQ(device.threads_reason, "CPU affinity");
}

TEST_F(DeviceTest, TheSmallestVersion2QuotaOnTheWayUpCounts) {
  allow_cpus("0-63");
  write("proc/self/cgroup", "0::/pods/one/main\n");
  write("cgroup/pods/one/main/cpu.max", "max 100000\n");
  write("cgroup/pods/one/cpu.max", "400000 100000\n");
  write("cgroup/pods/cpu.max", "1600000 100000\n");
  const CpuDevice device = detect_cpu(sources_);
  EXPECT_EQ(device.quota_threads, 4);
  EXPECT_EQ(device.threads, 4);
  EXPECT_EQ(device.threads_reason, "cgroup CPU quota");
}

TEST_F(DeviceTest, AContainersOwnGroupIsTheMount) {
  allow_cpus("0-63");
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/cpu.max", "250000 100000\n");
  const CpuDevice device = detect_cpu(sources_);
  EXPECT_EQ(device.quota_threads, 2.5);
  EXPECT_EQ(device.threads, 2);
}

TEST_F(DeviceTest, Version1QuotaIsFoundUnderTheHostsPathAndUnderTheMount) {
  allow_cpus("0-15");
  write("proc/self/cgroup", "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n");
  write("cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "300000\n");
  write("cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(detect_cpu(sources_).threads, 3);
  fs::remove_all(root_ / "cgroup");
  write("cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(detect_cpu(sources_).quota_threads, 0.5);
  EXPECT_EQ(detect_cpu(sources_).threads, 1);
  write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(detect_cpu(sources_).quota_threads, 0);
  EXPECT_EQ(detect_cpu(sources_).threads, 16);
}

TEST_F(DeviceTest, AQuotaAboveTheAffinityChangesNothing) {
  allow_cpus("0-3");
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/cpu.max", "6400000 100000\n");
  const CpuDevice device = detect_cpu(sources_);
  EXPECT_EQ(device.quota_threads, 64);
  EXPECT_EQ(device.threads, 4);
  EXPECT_EQ(device.threads_reason, "CPU affinity");
}

TEST_F(DeviceTest, OmpNumThreadsLowersAndOwnVariableDecides) {
  allow_cpus("0-7");
  sources_.omp_threads = "4,2";
  EXPECT_EQ(detect_cpu(sources_).threads, 4);
  EXPECT_EQ(detect_cpu(sources_).threads_reason, "OMP_NUM_THREADS");
  sources_.omp_threads = "64";  // set for the host: must not raise
  EXPECT_EQ(detect_cpu(sources_).threads, 8);
  sources_.threads = "12";
  EXPECT_EQ(detect_cpu(sources_).threads, 12);
  EXPECT_EQ(detect_cpu(sources_).threads_reason, "DEEPGEMM_NUM_THREADS");
}

TEST_F(DeviceTest, SettingsThatAreNoNumbersAreIgnoredWithAWarning) {
  allow_cpus("0-7");
  for (const char* text : {"0", "-2", "many", "3x", "99999999999", "1e3"}) {
    sources_.threads = text;
    const CpuDevice device = detect_cpu(sources_);
    EXPECT_EQ(device.threads, 8) << text;
    ASSERT_EQ(device.warnings.size(), 1U) << text;
    EXPECT_THAT(device.warnings[0],
                testing::HasSubstr("DEEPGEMM_NUM_THREADS is \"" + std::string(text) + "\""));
  }
}

TEST_F(DeviceTest, AnOlderCpuGetsOlderKernels) {
  const std::string avx2 = "sse2 avx avx2 fma f16c";
  write("proc/cpuinfo", "model name\t: Old CPU\nflags\t\t: sse2 avx\n");
  EXPECT_EQ(detect_cpu(sources_).best_isa, Isa::kGeneric);
  EXPECT_EQ(detect_cpu(sources_).model, "Old CPU");
  EXPECT_THAT(detect_cpu(sources_).features, testing::ElementsAre("sse2", "avx"));
  write("proc/cpuinfo", "model name\t: CPU\nflags\t\t: " + avx2 + "\n");
  EXPECT_LE(detect_cpu(sources_).best_isa, Isa::kAvx2);
  write("proc/cpuinfo",
        "flags\t\t: " + avx2 + " avx512f avx512vl\n");  // the first of its kind: no BW
  EXPECT_LE(detect_cpu(sources_).best_isa, Isa::kAvx2);
}

TEST_F(DeviceTest, MaxIsaLowersAndNeverRaises) {
  const Isa best = detect_cpu(sources_).best_isa;
  for (const auto& [limit, isa] :
       {std::pair("generic", Isa::kGeneric), std::pair("avx2", Isa::kAvx2),
        std::pair("avx512", Isa::kAvx512), std::pair("amx", best)}) {
    sources_.max_isa = limit;
    EXPECT_EQ(detect_cpu(sources_).isa, std::min(best, isa)) << limit;
    EXPECT_EQ(detect_cpu(sources_).best_isa, best);
    EXPECT_TRUE(detect_cpu(sources_).warnings.empty());
  }
  sources_.max_isa = "sse9";
  EXPECT_EQ(detect_cpu(sources_).isa, best);
  ASSERT_EQ(detect_cpu(sources_).warnings.size(), 1U);
  EXPECT_THAT(detect_cpu(sources_).warnings[0], testing::HasSubstr("\"sse9\""));
}

TEST_F(DeviceTest, CachesAndMemoryComeFromTheSystem) {
  const std::string cache = "cpus/cpu0/cache/";
  const auto level = [&](const char* index, const char* number, const char* type,
                         const char* size) {
    write(cache + index + "/level", number);
    write(cache + index + "/type", type);
    write(cache + index + "/size", size);
  };
  level("index0", "1", "Data\n", "48K\n");
  level("index1", "1", "Instruction\n", "32K\n");
  level("index2", "2", "Unified\n", "2M\n");
  level("index3", "3", "Unified\n", "107520K\n");
  write("cpus/online", "0-5\n");
  write("proc/meminfo", "MemTotal:       1000000 kB\nMemFree: 3 kB\n");
  allow_cpus("0-1");
  CpuDevice device = detect_cpu(sources_);
  EXPECT_EQ(device.l1d_bytes, 48 << 10);
  EXPECT_EQ(device.l2_bytes, 2 << 20);
  EXPECT_EQ(device.l3_bytes, int64_t{107520} << 10);
  EXPECT_EQ(device.memory_bytes, int64_t{1000000} << 10);
  EXPECT_EQ(device.cores_online, 6);
  write("proc/self/cgroup", "0::/a\n");
  write("cgroup/a/memory.max", "536870912\n");
  EXPECT_EQ(detect_cpu(sources_).memory_bytes, 512 << 20);
  write("cgroup/a/memory.max", "max\n");
  EXPECT_EQ(detect_cpu(sources_).memory_bytes, int64_t{1000000} << 10);
}

TEST_F(DeviceTest, NothingReadableStillGivesADevice) {
  const CpuDevice device = detect_cpu(sources_);
  EXPECT_GE(device.threads, 1);
  EXPECT_EQ(device.threads, device.affinity_threads);
  EXPECT_FALSE(device.model.empty());
  EXPECT_TRUE(device.warnings.empty());
}

TEST_F(DeviceTest, MalformedFilesAreAsIfAbsent) {
  write("proc/self/cgroup", "no colons\n:::\n0:\n");
  write("cgroup/cpu.max", "garbage\n");
  write("proc/thread-self/status", "Cpus_allowed_list:\t5-2,x\n");
  write("proc/meminfo", "MemTotal:\n");
  const CpuDevice device = detect_cpu(sources_);
  EXPECT_EQ(device.quota_threads, 0);
  EXPECT_GE(device.threads, 1);
  EXPECT_EQ(device.memory_bytes, 0);
}

TEST(Device, APinnedThreadSeesItsOwnAffinity) {
  std::thread pinned([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    EXPECT_EQ(detect_cpu({}).affinity_threads, CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(detect_cpu({}).affinity_threads, 1);
    EXPECT_EQ(detect_cpu({}).threads, 1);
  });
  pinned.join();
}

TEST(Device, ThisMachineIsDetectedOnce) {
  const CpuDevice& device = cpu_device();
  EXPECT_EQ(&device, &cpu_device());
  EXPECT_GE(device.threads, 1);
  EXPECT_LE(device.isa, device.best_isa);
  EXPECT_GT(device.memory_bytes, 0);
}

}  // namespace
}  // namespace deepgemm::cpu
