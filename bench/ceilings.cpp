// Compiled with -ffp-contract=fast: the peak of a CPU is that of its fused instructions.
#include "ceilings.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "backend/cpu/device.hpp"

namespace deepgemm::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

using Floats16 [[gnu::vector_size(16)]] = float;
using Floats32 [[gnu::vector_size(32)]] = float;
using Floats64 [[gnu::vector_size(64)]] = float;
using Words16 [[gnu::vector_size(16)]] = uint64_t;
using Words32 [[gnu::vector_size(32)]] = uint64_t;
using Words64 [[gnu::vector_size(64)]] = uint64_t;

// kVectors accumulators stay in registers: enough to hide the latency of two units, few enough to
// leave registers for the factors.
template <class Vector, int kVectors>
[[gnu::always_inline]] inline float multiply_add(int64_t steps, float factor) {
  Vector sums[kVectors];
  for (int i = 0; i < kVectors; ++i) sums[i] = Vector{} + factor * static_cast<float>(i);
  const Vector scale = Vector{} + factor;
  const Vector addend = Vector{} + 1.0F;
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 32
    for (int i = 0; i < kVectors; ++i) sums[i] = sums[i] * scale + addend;
  }
  float total = 0;
  for (const Vector& sum : sums) total += sum[0];
  return total;
}

// Independent sums of what lies at `data`: `bytes`, a multiple of kVectors vectors.
template <class Vector, int kVectors>
[[gnu::always_inline]] inline uint64_t read(const uint64_t* data, int64_t bytes) {
  Vector sums[kVectors] = {};
  const auto* vectors = reinterpret_cast<const Vector*>(data);
  for (int64_t at = 0; at < bytes / int64_t{sizeof(Vector)}; at += kVectors) {
#pragma GCC unroll 32
    for (int i = 0; i < kVectors; ++i) sums[i] ^= vectors[at + i];
  }
  uint64_t total = 0;
  for (const Vector& sum : sums) total ^= sum[0];
  return total;
}

struct Loops {
  float (*multiply_add)(int64_t steps, float factor);
  uint64_t (*read)(const uint64_t* data, int64_t bytes);
  int floats;  // multiplied and added in a step
};

float multiply_add_generic(int64_t steps, float factor) {
  return multiply_add<Floats16, 12>(steps, factor);
}
uint64_t read_generic(const uint64_t* data, int64_t bytes) { return read<Words16, 8>(data, bytes); }

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] float multiply_add_avx2(int64_t steps, float factor) {
  return multiply_add<Floats32, 12>(steps, factor);
}
[[gnu::target("avx2,fma")]] uint64_t read_avx2(const uint64_t* data, int64_t bytes) {
  return read<Words32, 8>(data, bytes);
}
[[gnu::target("avx512f")]] float multiply_add_avx512(int64_t steps, float factor) {
  return multiply_add<Floats64, 20>(steps, factor);
}
[[gnu::target("avx512f")]] uint64_t read_avx512(const uint64_t* data, int64_t bytes) {
  return read<Words64, 8>(data, bytes);
}
#endif

Loops loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {multiply_add_avx512, read_avx512, 16 * 20};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {multiply_add_avx2, read_avx2, 8 * 12};
  }
#endif
  return {multiply_add_generic, read_generic, 4 * 12};
}

std::atomic<uint64_t> sink;  // results go here, so that nothing is left out

}  // namespace

double measure_fma_gflops() {
  constexpr int64_t kSteps = 2'000'000;
  constexpr int kRuns = 7;
  volatile float factor = 0.5F;
  const Loops chosen = loops();
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Clock::time_point start = Clock::now();
    sink = static_cast<uint64_t>(chosen.multiply_add(kSteps, factor));
    const double flops = 2.0 * static_cast<double>(kSteps) * chosen.floats;
    best = std::max(best, flops / seconds_since(start) / 1e9);
  }
  return best;
}

double measure_read_gbs(int threads) {
  constexpr int64_t kPass = 64 * 8;  // bytes that one step of the widest loop reads
  constexpr int kRuns = 7;
  constexpr size_t kHugePage = size_t{1} << 21;
  const int64_t l3 = std::max<int64_t>(cpu::cpu_device().l3_bytes, int64_t{32} << 20);
  const int64_t share = std::min(4 * l3, int64_t{1} << 30) / threads / kPass * kPass;
  const auto bytes = static_cast<size_t>(share * threads);
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(kHugePage, (bytes / kHugePage + 1) * kHugePage), &std::free);
  if (memory == nullptr) return 0;
  (void)madvise(memory.get(), bytes, MADV_HUGEPAGE);  // a wish: the rate without page walks
  std::memset(memory.get(), 1, bytes);
  std::vector<double> rates(kRuns);
  for (double& rate : rates) {
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] {
        sink = loops().read(static_cast<const uint64_t*>(memory.get()) + i * share / 8, share);
      });
    }
    for (std::thread& reader : readers) reader.join();
    rate = static_cast<double>(share * threads) / seconds_since(start) / 1e9;
  }
  return *std::max_element(rates.begin(), rates.end());
}

}  // namespace deepgemm::bench
