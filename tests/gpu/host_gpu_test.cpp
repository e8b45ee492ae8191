// What the host layer takes for granted about the driver, on a GPU: captures, modules that go while
// their kernels run, what a launch costs, and the sampler.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "backend/cuda/module_registry.hpp"
#include "backend/cuda/nvml_sampler.hpp"
#include "backend/cuda/stream_capture.hpp"
#include "gpu_fixture.hpp"

namespace deepgemm::cuda {
namespace {

// A product of ones in FP32, n x n x n: each element of C is n.
class Ones {
 public:
  Ones(Gpu& gpu, int64_t n) : gpu_(gpu), n_(n) {
    const auto cases = kernel_cases();
    one_ = cases.front();
    problem_ = problem_of(one_, n, n, n);
    stride_ = problem_.c.layout.row_stride;
    const auto spec = spec_of(one_, problem_, gpu.arch());
    EXPECT_TRUE(spec.ok());
    if (!spec.ok()) return;
    spec_ = *spec;
    const auto shape = launch_shape(spec_, problem_, n, 1);
    EXPECT_TRUE(shape.ok());
    if (shape.ok()) shape_ = *shape;
    const std::vector<float> ones(static_cast<size_t>(n * (n + 16)), 1.0F);
    for (void** to : {&a_, &b_, &c_}) *to = gpu.allocate(ones.size() * sizeof(float));
    for (void* to : {a_, b_}) gpu.copy(to, ones.data(), ones.size() * sizeof(float));
    gpu.synchronize();
  }

  Kernel own_kernel() { return gpu_.own_kernel(spec_, shape_.shared_bytes); }
  std::vector<uint8_t> binary() { return gpu_.binary(kernel_source(spec_)); }
  // Of a module that was loaded from the binary.
  Kernel kernel_of(std::shared_ptr<const Module> module) const {
    const auto found = find_kernel(std::move(module), kernel_symbol(spec_),
                                   {.dynamic_shared_bytes = shape_.shared_bytes});
    EXPECT_TRUE(found.ok());
    return found.ok() ? *found : Kernel{};
  }
  int threads() const { return shape_.threads; }
  int64_t blocks() const { return shape_.items; }

  kernel::GemmArguments arguments() const {
    LaunchOperands operands;
    operands.a = a_;
    operands.b = b_;
    operands.c = c_;
    operands.m = n_;
    return launch_arguments(spec_, problem_, operands);
  }
  bool launch(const Kernel& kernel) {
    return gpu_.launch(kernel, shape_, shape_.items, arguments());
  }
  void clear() {
    EXPECT_TRUE(fill(gpu_.device(), c_, 0xFF, bytes(), gpu_.stream()).ok());
    gpu_.synchronize();
  }
  bool is_right() {
    std::vector<float> c(bytes() / sizeof(float));
    gpu_.copy(c.data(), c_, bytes());
    if (!gpu_.synchronize()) return false;
    for (int64_t i = 0; i < n_; ++i) {
      const float* row = c.data() + i * stride_;
      if (!std::all_of(row, row + n_, [&](float x) { return x == static_cast<float>(n_); })) {
        return false;
      }
    }
    return true;
  }

 private:
  size_t bytes() const { return static_cast<size_t>(n_ * stride_) * sizeof(float); }

  Gpu& gpu_;
  int64_t n_, stride_ = 0;
  KernelCase one_;
  intent::Problem problem_;
  KernelSpec spec_;
  LaunchShape shape_;
  void *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
};

class HostLayer : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    gpu_ = Gpu::get(why);
    if (gpu_ == nullptr) GTEST_SKIP() << why;
  }
  const Driver& driver() const { return gpu_->device().driver(); }

  Gpu* gpu_ = nullptr;
};

TEST_F(HostLayer, LaunchesBecomeNodesOfAGraphThatKeepsTheirModule) {
  Ones ones(*gpu_, 256);
  ones.clear();
  const Kernel kernel = ones.own_kernel();
  const auto context = ContextGuard::enter(gpu_->device());
  ASSERT_TRUE(context.ok());
  constexpr int kGlobal = 0;
  ASSERT_EQ(driver().capture_begin(gpu_->stream(), kGlobal), CuResult::kSuccess);
  EXPECT_TRUE(ones.launch(kernel));
  // What cannot be captured is refused and leaves the capture as it is.
  MemoryPool pool(gpu_->device(), "capture", 0, 0);
  const auto refused = pool.allocate(1024, gpu_->stream());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  // Loading in the meantime does not break it either.
  {
    const RelaxedCapture relaxed(driver());
    EXPECT_NE(ones.own_kernel().function, nullptr);
  }
  CuGraph graph = nullptr;
  ASSERT_EQ(driver().capture_end(gpu_->stream(), &graph), CuResult::kSuccess);
  EXPECT_EQ(kernel.module->graphs(), 1);
  EXPECT_FALSE(ones.is_right()) << "the launch was captured, not run";
  CuGraphExec executable = nullptr;
  ASSERT_EQ(driver().graph_instantiate(&executable, graph, 0), CuResult::kSuccess);
  ASSERT_EQ(driver().graph_launch(executable, gpu_->stream()), CuResult::kSuccess);
  EXPECT_TRUE(ones.is_right());
  EXPECT_EQ(driver().graph_executable_destroy(executable), CuResult::kSuccess);
  EXPECT_EQ(driver().graph_destroy(graph), CuResult::kSuccess);
  for (int wait = 0; wait < 1000 && kernel.module->graphs() > 0; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(kernel.module->graphs(), 0);
}

TEST_F(HostLayer, AModuleMayGoWhileItsKernelsRun) {
  Ones ones(*gpu_, 4096);  // some milliseconds
  for (int round = 0; round < 5; ++round) {
    ones.clear();
    {
      const Kernel kernel = ones.own_kernel();
      for (int i = 0; i < 10; ++i) EXPECT_TRUE(ones.launch(kernel));
    }
    EXPECT_TRUE(ones.is_right()) << "round " << round;
  }
}

// Bytes of a binary behind its end are not read, and make it another one.
TEST_F(HostLayer, MemoryLevelsOffWithTwoThousandKernels) {
  constexpr int kKernels = 2000, kKept = 64;
  Ones ones(*gpu_, 256);
  ModuleRegistry registry(kKept);
  std::vector<uint8_t> image = ones.binary();
  ASSERT_FALSE(image.empty());
  image.resize(image.size() + sizeof(int));
  const auto kernel_number = [&](int i) {
    std::memcpy(image.data() + image.size() - sizeof(int), &i, sizeof(int));
    const auto module =
        registry.get(gpu_->device(), base::hash_bytes(image.data(), image.size()), image, "kernel");
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().message);
    return module.ok() ? ones.kernel_of(*module) : Kernel{};
  };
  // One is captured, and must outlive the others.
  const auto context = ContextGuard::enter(gpu_->device());
  ASSERT_TRUE(context.ok());
  CuGraph graph = nullptr;
  CuGraphExec executable = nullptr;
  {
    const Kernel captured = kernel_number(0);
    ASSERT_EQ(driver().capture_begin(gpu_->stream(), 0), CuResult::kSuccess);
    EXPECT_TRUE(ones.launch(captured));
    ASSERT_EQ(driver().capture_end(gpu_->stream(), &graph), CuResult::kSuccess);
    ASSERT_EQ(driver().graph_instantiate(&executable, graph, 0), CuResult::kSuccess);
  }
  int64_t free_at_level = 0;
  for (int i = 1; i <= kKernels; ++i) {
    ASSERT_TRUE(ones.launch(kernel_number(i)));
    ASSERT_TRUE(gpu_->synchronize());
    const auto memory = memory_info(gpu_->device());
    ASSERT_TRUE(memory.ok());
    if (i == 4 * kKept) free_at_level = static_cast<int64_t>(memory->free_bytes);
    if (i == kKernels) {
      // The driver hands out memory in pieces of 2 MiB.
      EXPECT_LE(free_at_level - static_cast<int64_t>(memory->free_bytes), int64_t{4} << 20);
    }
  }
  EXPECT_EQ(registry.counts().loads, kKernels + 1);
  EXPECT_LE(registry.counts().loaded, kKept + 1);
  ones.clear();
  EXPECT_EQ(driver().graph_launch(executable, gpu_->stream()), CuResult::kSuccess);
  EXPECT_TRUE(ones.is_right()) << "the captured kernel was unloaded";
  EXPECT_EQ(driver().graph_executable_destroy(executable), CuResult::kSuccess);
  EXPECT_EQ(driver().graph_destroy(graph), CuResult::kSuccess);
}

// Medians of calls; the queue of the device never fills.
double microseconds_each(const std::function<void()>& call, const std::function<void()>& drain) {
  constexpr int kRounds = 50, kCalls = 100;
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    drain();
    times.push_back(time.count() / kCalls);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

TEST_F(HostLayer, ALaunchCostsLittleMoreThanTheDriversOwn) {
  Ones ones(*gpu_, 64);
  const Kernel kernel = ones.own_kernel();
  kernel::GemmArguments arguments = ones.arguments();
  void* parameters[] = {&arguments};
  const auto context = ContextGuard::enter(gpu_->device());
  ASSERT_TRUE(context.ok());
  CuLaunchConfig bare = {};
  bare.grid_x = static_cast<unsigned>(ones.blocks());
  bare.grid_y = bare.grid_z = bare.block_y = bare.block_z = 1;
  bare.block_x = static_cast<unsigned>(ones.threads());
  bare.dynamic_shared_bytes = static_cast<unsigned>(kernel.needs.dynamic_shared_bytes);
  bare.stream = gpu_->stream();
  LaunchConfig config;
  config.grid[0] = bare.grid_x;
  config.block[0] = bare.block_x;
  config.stream = bare.stream;
  const auto drain = [&] { gpu_->synchronize(); };
  const double of_driver = microseconds_each(
      [&] { driver().launch(&bare, kernel.function, parameters, nullptr); }, drain);
  const double ours =
      microseconds_each([&] { (void)launch_kernel(kernel, config, parameters); }, drain);
  std::printf("  a launch takes %.2f us, the driver's own %.2f us\n", ours, of_driver);
  EXPECT_LT(ours, of_driver + 2);
}

TEST_F(HostLayer, TheSamplerKnowsClocksAndPower) {
  const auto seen = process_sampler().fresh(gpu_->device().facts().uuid, std::chrono::seconds(5));
  EXPECT_EQ(seen.unknown_because, "");
  int known = 0;
  for (const Reading& reading : seen.readings) known += reading.value.has_value();
  std::printf("  %d of %zu metrics are known\n", known, kMetrics);
  EXPECT_GT(known, 3);
}

}  // namespace
}  // namespace deepgemm::cuda
