#include "schedule/profile.hpp"

#include <algorithm>
#include <vector>

namespace deepgemm::schedule {
namespace {

constexpr int64_t kKib = int64_t{1} << 10;
constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kGib = int64_t{1} << 30;

struct Attainable {
  double compute, bandwidth;
};

struct Arithmetic {
  int aligned_bits, fp8_bits, half_step, tf32_step;
};

// Sizes in the units of the table: MiB of L2, GiB (GB as sold) of memory, KiB of shared memory.
DeviceProfile gpu_profile(const char* name, const char* title, int sm, int units,
                          const PeakRates& peak, double bandwidth_gbs, int64_t l2_mib,
                          int64_t memory_gib, int64_t shared_kib, double launch_us, double power_w,
                          const Attainable& attainable, const Arithmetic& arithmetic,
                          const char* source) {
  DeviceProfile profile;
  profile.name = name;
  profile.title = title;
  profile.backend = Backend::kCuda;
  profile.sm = sm;
  profile.units = units;
  profile.peak = peak;
  profile.bandwidth_gbs = bandwidth_gbs;
  profile.l2_bytes = l2_mib * kMib;
  profile.memory_bytes = memory_gib * kGib;
  profile.shared_bytes_per_block = shared_kib * kKib;
  profile.launch_us = launch_us;
  profile.board_power_w = power_w;
  profile.attainable_compute = attainable.compute;
  profile.attainable_bandwidth = attainable.bandwidth;
  profile.tensor_accumulator_bits = 24;
  profile.tensor_aligned_bits = arithmetic.aligned_bits;
  profile.fp8_accumulator_bits = arithmetic.fp8_bits;
  profile.tensor_truncates = true;
  profile.half_step = arithmetic.half_step;
  profile.tf32_step = arithmetic.tf32_step;
  profile.source = source;
  return profile;
}

struct CpuCore {
  const char* isa;
  double fp32_gflops, bf16_gflops, int8_gops;
  const char* source;
};

constexpr CpuCore kCpuCores[] = {
#define DEEPGEMM_GPU_PROFILE(...)
#define DEEPGEMM_CPU_PROFILE(isa, fp32, bf16, int8, source) {#isa, fp32, bf16, int8, source},
#include "schedule/profiles.inc"
#undef DEEPGEMM_GPU_PROFILE
#undef DEEPGEMM_CPU_PROFILE
};

const CpuCore& find_core(const std::string& isa) {
  for (const CpuCore& core : kCpuCores) {
    if (isa == core.isa) return core;
  }
  return kCpuCores[0];
}

std::vector<DeviceProfile> make_profiles() {
  std::vector<DeviceProfile> profiles = {
#define PEAK(...) \
  PeakRates { __VA_ARGS__ }
#define ATTAINABLE(...) \
  Attainable { __VA_ARGS__ }
#define ARITHMETIC(...) \
  Arithmetic { __VA_ARGS__ }
#define DEEPGEMM_GPU_PROFILE(name, ...) gpu_profile(#name, __VA_ARGS__),
#define DEEPGEMM_CPU_PROFILE(...)
#include "schedule/profiles.inc"
#undef DEEPGEMM_GPU_PROFILE
#undef DEEPGEMM_CPU_PROFILE
#undef PEAK
#undef ATTAINABLE
#undef ARITHMETIC
  };
  constexpr int kMeasuredThreads = 2;
  for (const CpuCore& core : kCpuCores) {
    profiles.push_back(cpu_profile(core.isa, kMeasuredThreads));
  }
  return profiles;
}

}  // namespace

std::span<const DeviceProfile> all_profiles() {
  static const std::vector<DeviceProfile> profiles = make_profiles();
  return profiles;
}

double tensor_rate(gemm_precision_t multiplicand, const PeakRates& peak) {
  switch (multiplicand) {
    case PRECISION_FP64:
      return peak.fp64_tensor;
    case PRECISION_TF32:
      return peak.tf32;
    case PRECISION_FP16:
      return peak.fp16;
    case PRECISION_BF16:
      return peak.bf16;
    case PRECISION_FP8_E4M3:
    case PRECISION_FP8_E5M2:
      return peak.fp8;
    case PRECISION_INT8:
      return peak.int8;
    default:
      return 0;
  }
}

const DeviceProfile* find_profile(const std::string& name) {
  for (const DeviceProfile& profile : all_profiles()) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

DeviceProfile cpu_profile(const std::string& isa, int threads) {
  constexpr double kCoreReadGbs = 15;  // measured: 14 to 16 from memory, 29.8 on two cores
  constexpr double kCoreL2Gbs = 170;   // measured: 169 to 182
  constexpr int64_t kCoreL2Bytes = 2 * kMib;
  constexpr int kSaturatingThreads = 8;  // estimated: more threads read no faster
  const CpuCore& core = find_core(isa);
  DeviceProfile profile;
  profile.name = "cpu_" + isa;
  profile.title = "CPU with " + isa;
  profile.backend = Backend::kCpu;
  profile.isa = isa;
  profile.units = std::max(threads, 1);
  const double cores = profile.units;
  profile.peak.fp32 = core.fp32_gflops * cores / 1000;
  profile.peak.fp64 = profile.peak.fp32 / 2;
  profile.peak.bf16 = core.bf16_gflops * cores / 1000;
  profile.peak.int8 = core.int8_gops * cores / 1000;
  profile.bandwidth_gbs = kCoreReadGbs * std::min(profile.units, kSaturatingThreads);
  profile.l2_gbs = kCoreL2Gbs * cores;
  profile.l2_bytes = kCoreL2Bytes * profile.units;
  profile.shared_bytes_per_block = kCoreL2Bytes;
  profile.launch_us = profile.units > 1 ? 2 : 0.5;  // estimated: waking the other threads
  profile.source = core.source;
  profile.source += "; memory 15 GB/s a core measured on one and two cores, assumed up to eight";
  if (isa != core.isa) profile.source += " (no figures for " + isa + ": those of generic)";
  return profile;
}

}  // namespace deepgemm::schedule
