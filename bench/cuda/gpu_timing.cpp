#include "gpu_timing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <vector>

#include "backend/cuda/candidate_kernel.hpp"
#include "backend/cuda/executable.hpp"
#include "backend/cuda/launch_kernel.hpp"

namespace deepgemm::bench {
namespace {

using cuda::CuResult;

// 16 bytes a lane; the sum is stored under a condition that never holds.
constexpr const char* kReadKernel = R"(
extern "C" __global__ void __launch_bounds__(512) deepgemm_kernel_read(
    const uint4* from, unsigned long long count, unsigned* to) {
  unsigned sum = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = __ldcs(from + i), b = __ldcs(from + i + step);
    const uint4 c = __ldcs(from + i + 2 * step), d = __ldcs(from + i + 3 * step);
    sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
    sum += c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += step) sum += from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (sum == 0x12345678u && count == 1) *to = sum;
}
)";

// A graph of launches, ready for replay.
class Graph {
 public:
  Graph(const cuda::Driver& driver, cuda::CuStream stream) : driver_(driver), stream_(stream) {}
  ~Graph() {
    if (executable_ != nullptr) driver_.graph_executable_destroy(executable_);
    if (graph_ != nullptr) driver_.graph_destroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  base::Result<void> capture(int count, const std::function<bool(int)>& launch) {
    constexpr int kRelaxed = 2;
    DEEPGEMM_CUDA_TRY(driver_, driver_.capture_begin(stream_, kRelaxed), "Capturing");
    bool fine = true;
    for (int i = 0; i < count && fine; ++i) fine = launch(i);
    DEEPGEMM_CUDA_TRY(driver_, driver_.capture_end(stream_, &graph_), "Ending the capture");
    if (!fine) return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, "a launch was refused");
    DEEPGEMM_CUDA_TRY(driver_, driver_.graph_instantiate(&executable_, graph_, 0),
                      "Instantiating a graph");
    return {};
  }
  base::Result<void> replay() {
    DEEPGEMM_CUDA_TRY(driver_, driver_.graph_launch(executable_, stream_), "Replaying a graph");
    return {};
  }

 private:
  const cuda::Driver& driver_;
  cuda::CuStream stream_;
  cuda::CuGraph graph_ = nullptr;
  cuda::CuGraphExec executable_ = nullptr;
};

}  // namespace

base::Result<std::unique_ptr<BenchGpu>> BenchGpu::open(int ordinal) {
  DEEPGEMM_TRY_ASSIGN(platform, cuda::process_platform());
  DEEPGEMM_TRY_ASSIGN(device, platform->device(ordinal));
  std::unique_ptr<BenchGpu> gpu(new BenchGpu(*device));
  DEEPGEMM_TRY_ASSIGN(stream, cuda::Stream::create(*device));
  gpu->stream_ = std::make_unique<cuda::Stream>(std::move(stream));
  DEEPGEMM_TRY(gpu->make_kernels());
  return gpu;
}

base::Result<void> BenchGpu::make_kernels() {
  jit::Source source;
  source.language = jit::Language::kCuda;
  source.name = "read";
  source.text = kReadKernel;
  source.arch = cuda::arch_name(device_->facts().sm);
  source.symbols = {"deepgemm_kernel_read"};
  DEEPGEMM_TRY_ASSIGN(module, cuda::build_module(*device_, source));
  DEEPGEMM_TRY_ASSIGN(kernel, cuda::find_kernel(module, source.symbols.front()));
  read_ = std::move(kernel);
  DEEPGEMM_TRY_ASSIGN(memory, allocate(kReadBytes));
  read_memory_ = memory;
  DEEPGEMM_TRY(cuda::fill(*device_, read_memory_, 1, kReadBytes, stream()));
  return stream_->synchronize();
}

base::Result<void*> BenchGpu::allocate(size_t bytes) {
  DEEPGEMM_TRY_ASSIGN(memory, pool_.allocate(bytes, stream()));
  DEEPGEMM_TRY(stream_->synchronize());
  return memory;
}

base::Result<void> BenchGpu::release(void* memory) { return pool_.release(memory, stream()); }

base::Result<void> BenchGpu::copy(void* to, const void* from, size_t bytes) {
  DEEPGEMM_TRY(cuda::copy(*device_, to, from, bytes, stream()));
  return stream_->synchronize();
}

base::Result<std::vector<GpuTime>> BenchGpu::time(int count, double seconds,
                                                  std::span<const Launch> launches) {
  const auto guard = cuda::ContextGuard::enter(*device_);
  if (!guard.ok()) return guard.error();
  std::deque<Graph> graphs;
  for (const Launch& launch : launches) {
    graphs.emplace_back(device_->driver(), stream());
    DEEPGEMM_TRY(graphs.back().capture(count, launch));
  }
  DEEPGEMM_TRY_ASSIGN(begin, cuda::Event::create(*device_, cuda::Event::Time::kMeasured));
  DEEPGEMM_TRY_ASSIGN(end, cuda::Event::create(*device_, cuda::Event::Time::kMeasured));
  std::vector<std::vector<double>> times(launches.size());
  double total = 0;
  constexpr size_t kFewest = 5, kMost = 200;
  const double wanted = seconds * static_cast<double>(launches.size());
  for (size_t round = 0; round <= kFewest || (total < wanted && round < kMost); ++round) {
    for (size_t i = 0; i < launches.size(); ++i) {
      DEEPGEMM_TRY(begin.record(stream()));
      DEEPGEMM_TRY(graphs[i].replay());
      DEEPGEMM_TRY(end.record(stream()));
      DEEPGEMM_TRY(stream_->synchronize());
      DEEPGEMM_TRY_ASSIGN(ms, cuda::elapsed_ms(*device_, begin, end));
      if (round == 0) continue;  // warms up
      times[i].push_back(ms * 1e3 / count);
      total += ms * 1e-3;
    }
  }
  std::vector<GpuTime> medians;
  for (std::vector<double>& each : times) {
    std::sort(each.begin(), each.end());
    medians.push_back({each[each.size() / 2], each.back() / each.front() - 1});
  }
  return medians;
}

base::Result<GpuTime> BenchGpu::time(int count, double seconds, const Launch& launch) {
  DEEPGEMM_TRY_ASSIGN(times, time(count, seconds, std::span(&launch, 1)));
  return times.front();
}

base::Result<double> BenchGpu::read_us(size_t bytes, double seconds) {
  constexpr size_t kBeyondCaches = size_t{192} << 20;
  const size_t step = (std::max<size_t>(bytes, 16) + 255) / 256 * 256;
  const int places = static_cast<int>(std::clamp<size_t>(kReadBytes / step, 1, 64));
  const int count = std::max(places, static_cast<int>(kBeyondCaches / step) + 1);
  cuda::LaunchConfig config;
  config.grid = {static_cast<uint32_t>(device_->facts().sms) * 4, 1, 1};
  config.block = {512, 1, 1};
  config.stream = stream();
  DEEPGEMM_TRY_ASSIGN(time, this->time(std::min(count, 256), seconds, [&](int i) {
    const void* from =
        static_cast<std::byte*>(read_memory_) + static_cast<size_t>(i % places) * step;
    unsigned long long words = bytes / 16;
    void* to = nullptr;
    std::array<void*, 3> parameters = {&from, &words, &to};
    return cuda::launch_kernel(read_, config, parameters.data()).ok();
  }));
  return time.us;
}

base::Result<double> BenchGpu::bare_launch_us() {
  const auto guard = cuda::ContextGuard::enter(*device_);
  if (!guard.ok()) return guard.error();
  const cuda::Driver& driver = device_->driver();
  const cuda::CuLaunchConfig config = {.grid_x = 1,
                                       .grid_y = 1,
                                       .grid_z = 1,
                                       .block_x = 32,
                                       .block_y = 1,
                                       .block_z = 1,
                                       .dynamic_shared_bytes = 0,
                                       .stream = stream(),
                                       .attributes = nullptr,
                                       .attribute_count = 0};
  const void* from = read_memory_;
  unsigned long long words = 1;
  void* to = nullptr;
  std::array<void*, 3> parameters = {&from, &words, &to};
  bool fine = true;
  const double us = host_us(300, [&] {
    fine =
        driver.launch(&config, read_.function, parameters.data(), nullptr) == CuResult::kSuccess &&
        fine;
  });
  DEEPGEMM_TRY(stream_->synchronize());
  if (!fine) return base::make_error(DEEPGEMM_ERROR_DEVICE, "a bare launch failed");
  return us;
}

double host_us(int calls, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto begin = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[static_cast<size_t>(calls / 2)];
}

}  // namespace deepgemm::bench
