// What this CPU and this process may use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/profile.hpp"

namespace deepgemm::cpu {

// Units that kernels exist for; each has those before it. kAmx: tile units for BF16 and INT8.
enum class Isa : uint8_t { kGeneric, kAvx2, kAvx512, kAmx };
const char* isa_name(Isa isa);

// Facts read once; cheap to copy.
struct CpuDevice {
  std::string model;
  Isa best_isa = Isa::kGeneric;  // of this machine (CPUID and the operating system's state mask)
  Isa isa = Isa::kGeneric;       // used: best_isa lowered by DEEPGEMM_MAX_CPU_ISA
  std::vector<std::string> features;  // avx2, fma, avx512f, amx_bf16, ... as found
  int cores_online = 1;
  int affinity_threads = 1;  // CPUs this process may run on
  double quota_threads = 0;  // cgroup v1/v2 CPU quota; 0: none
  // What the backend uses: DEEPGEMM_NUM_THREADS; else the smaller of affinity and quota (rounded
  // down, at least 1), lowered by OMP_NUM_THREADS where that is smaller.
  int threads = 1;
  std::string threads_reason;                         // which of them decided
  std::vector<std::string> warnings;                  // settings that were not understood
  int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // 0: unknown
  int64_t memory_bytes = 0;  // of the machine, or of the process's cgroup where less
};

// Where the facts are read from. The values of the environment are given as text, empty: not set.
struct CpuSources {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
  std::string cpus = "/sys/devices/system/cpu";
  std::string max_isa;      // DEEPGEMM_MAX_CPU_ISA
  std::string threads;      // DEEPGEMM_NUM_THREADS
  std::string omp_threads;  // OMP_NUM_THREADS; the first of a list counts
};

// Detects at the first call (thread-safe) and keeps the result.
const CpuDevice& cpu_device();
// Detects anew from the given sources: for tests and for programs that show another machine's
// files.
CpuDevice detect_cpu(const CpuSources& sources);

// Profile for planning on this machine, named "cpu".
schedule::DeviceProfile host_profile();

}  // namespace deepgemm::cpu
