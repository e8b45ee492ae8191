// Device profiles: facts of a chip that planning needs. Plain values; planning for a chip needs no
// chip.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "deepgemm/types.h"

namespace deepgemm::schedule {

enum class Backend : uint8_t { kCpu, kCuda };

// Dense peaks in TFLOP/s (INT8: TOP/s); 0: the chip has no unit for it.
struct PeakRates {
  double fp64 = 0, fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp8 = 0, int8 = 0;
  double fp64_tensor = 0;  // tensor cores; `fp64` is that of FMA
};

// Rate of tensor cores or tile units for operands of this format; 0: there are none.
double tensor_rate(gemm_precision_t multiplicand, const PeakRates& peak);

struct DeviceProfile {
  std::string name;   // "h200", "cpu"
  std::string title;  // "NVIDIA H200 SXM"
  Backend backend = Backend::kCuda;
  int sm = 0;       // compute capability * 10: 90; 0 for CPUs
  std::string isa;  // CPUs: "generic", "avx2", "avx512", "amx", "neon"
  int units = 1;    // SMs, or threads usable by this process
  PeakRates peak;
  double bandwidth_gbs = 0;
  double l2_gbs = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // opt-in limit; CPUs: L2 bytes per core
  double launch_us = 0;                // fixed cost of one launch
  double board_power_w = 0;            // 0: not stated, energy is then unknown
  double idle_power_w = 0;
  // Share of the stated rates that a kernel can reach at best; 1 where they were measured.
  double attainable_compute = 1;
  double attainable_bandwidth = 1;
  int tensor_accumulator_bits = 24;  // kept by FP16/BF16/TF32 products
  int tensor_aligned_bits = 0;       // addends of one step are cut to these bits below the largest
  int fp8_accumulator_bits = 24;
  bool tensor_truncates = false;
  int half_step = 1;  // products of FP16/BF16 that a tensor core adds in one step
  int tf32_step = 1;
  std::string source;  // where the facts are from
};

// The shipped profiles (profiles.inc), GPUs first; CPUs ("cpu_avx512") with two threads, as
// measured.
std::span<const DeviceProfile> all_profiles();
// nullptr when unknown.
const DeviceProfile* find_profile(const std::string& name);

// Profile "cpu_<isa>" of a CPU with `threads` threads, from per-core figures; `source` tells which
// were measured. An instruction set without figures gets those of "generic".
DeviceProfile cpu_profile(const std::string& isa, int threads);

// A moment's state; zero-initialised = idle and unknown. Planning is pure: the state is an
// argument.
struct DeviceState {
  double load = 0;  // share of units busy with other work, 0 ... 1
  double bandwidth_load = 0;
  double free_memory_bytes = 0;  // 0: unknown
};

}  // namespace deepgemm::schedule
