// Times on a GPU: graphs of launches, replayed between events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device.hpp"
#include "backend/cuda/memory.hpp"
#include "backend/cuda/module.hpp"
#include "backend/cuda/stream.hpp"
#include "base/result.hpp"

namespace deepgemm::bench {

struct GpuTime {
  double us = 0;      // a launch, median of the replays
  double spread = 0;  // of the replays: slowest over fastest, less 1
};

// A GPU with a stream and memory for a benchmark.
class BenchGpu {
 public:
  static base::Result<std::unique_ptr<BenchGpu>> open(int ordinal);

  cuda::Device& device() { return *device_; }
  cuda::CuStream stream() { return stream_->get(); }
  base::Result<void*> allocate(size_t bytes);
  base::Result<void> release(void* memory);
  base::Result<void> copy(void* to, const void* from, size_t bytes);

  // Captures launch(0) ... launch(count - 1) of each, and replays them in turn, so that clocks and
  // neighbours are the same for all, until each took `seconds`, at least five times. launch()
  // answers whether it could.
  using Launch = std::function<bool(int)>;
  base::Result<std::vector<GpuTime>> time(int count, double seconds,
                                          std::span<const Launch> launches);
  base::Result<GpuTime> time(int count, double seconds, const Launch& launch);

  // Microseconds that a kernel takes to read `bytes` of memory that L2 does not hold.
  base::Result<double> read_us(size_t bytes, double seconds);
  // Microseconds of the host for a launch: of a kernel that does nothing, by the driver alone.
  base::Result<double> bare_launch_us();

 private:
  explicit BenchGpu(cuda::Device& device) : device_(&device), pool_(device, "bench", 0, 0) {}
  base::Result<void> make_kernels();

  cuda::Device* device_;
  std::unique_ptr<cuda::Stream> stream_;
  cuda::MemoryPool pool_;
  cuda::Kernel read_;
  void* read_memory_ = nullptr;
  static constexpr size_t kReadBytes = size_t{2} << 30;
};

// Median of the host's time of `call`, in microseconds.
double host_us(int calls, const std::function<void()>& call);

}  // namespace deepgemm::bench
