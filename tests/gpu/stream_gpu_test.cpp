// Streams, captures, threads and processes.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "jit/service.hpp"
#include "plan_fixture.hpp"

namespace deepgemm::gpu_test {
namespace {

// A problem whose kernels split K over blocks, so that launches need workspace.
std::string split_line(int splits) {
  // The 4 is that of a listed tiling of sm80.
  return splits > 1 ? "nt m=48 n=128 k=4096 a=bf16 tile=32x64x64 warp=16x32x64"
                    : "nt m=48 n=128 k=4096 a=bf16 tile=64x64x64 warp=32x32x64";
}

// A graph, captured and instantiated; replayed any number of times.
class Graph {
 public:
  explicit Graph(cuda::Stream& stream) : stream_(stream), driver_(**cuda::process_driver()) {}
  ~Graph() {
    if (executable_ != nullptr) driver_.graph_executable_destroy(executable_);
    if (graph_ != nullptr) driver_.graph_destroy(graph_);
  }
  bool begin(int mode) {
    return driver_.capture_begin(stream_.get(), mode) == cuda::CuResult::kSuccess;
  }
  bool end() {
    return driver_.capture_end(stream_.get(), &graph_) == cuda::CuResult::kSuccess &&
           driver_.graph_instantiate(&executable_, graph_, 0) == cuda::CuResult::kSuccess;
  }
  bool replay(cuda::CuStream stream) {
    return driver_.graph_launch(executable_, stream) == cuda::CuResult::kSuccess;
  }

 private:
  cuda::Stream& stream_;
  const cuda::Driver& driver_;
  cuda::CuGraph graph_ = nullptr;
  cuda::CuGraphExec executable_ = nullptr;
};

constexpr int kModes[] = {0, 1, 2};  // global, thread-local, relaxed

class GpuStreams : public GpuPlans {
 protected:
  void SetUp() override {
    GpuPlans::SetUp();
    if (IsSkipped()) return;
    auto platform = cuda::process_platform();
    auto guard = cuda::ContextGuard::enter(**(*platform)->device(0));
    ASSERT_TRUE(guard.ok());
    guard_ = std::make_unique<cuda::ContextGuard>(std::move(*guard));
  }

 private:
  std::unique_ptr<cuda::ContextGuard> guard_;  // for calls of the driver by the tests themselves
};

TEST_F(GpuStreams, ACapturedLaunchIsReplayed) {
  for (const int mode : kModes) {
    for (const int splits : {1, 4}) {
      Product product(split_line(splits));
      product.expect_verified();
      const std::vector<uint8_t> expected = product.c.download();
      product.c.upload(std::vector<uint8_t>(expected.size(), 0xFF));
      product.plan->plan.stream = stream(0).get();
      Graph graph(stream(0));
      ASSERT_TRUE(graph.begin(mode));
      EXPECT_TRUE(succeeded(product.launch()));
      ASSERT_TRUE(graph.end());
      for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(graph.replay(stream(0).get()));
        synchronize(0);
        EXPECT_EQ(product.c.download(), expected) << "mode " << mode << ", splits " << splits;
        product.c.upload(std::vector<uint8_t>(expected.size(), 0xFF));
      }
    }
  }
}

// J12
TEST_F(GpuStreams, AColdKernelLeavesTheCaptureIntact) {
  for (const int mode : kModes) {
    // Of its own, so that nothing was compiled for it before.
    Product product(
        fmt::format("nt m=31 n={} k=64 a=fp16 lc=row:0,{},1", 96 + 32 * mode, 101 + 32 * mode), 2);
    product.plan->plan.stream = stream(0).get();
    Graph graph(stream(0));
    ASSERT_TRUE(graph.begin(mode));
    const deepgemm_status_t cold = product.launch();
    EXPECT_TRUE(cold == DEEPGEMM_SUCCESS || cold == DEEPGEMM_ERROR_NOT_PREPARED) << cold;
    // Planning, compiling and loading while the stream is captured, here and on another thread.
    gemm_intent_t intent = product.intent;
    intent.layout_c = {};
    const PlanOwner here(intent, 30 + mode, 160, 96);
    EXPECT_NE(here.plan.handle, nullptr);
    std::thread([&] {
      const PlanOwner there(intent, 40 + mode, 224, 96);
      EXPECT_NE(there.plan.handle, nullptr);
    }).join();
    EXPECT_TRUE(graph.end()) << "mode " << mode;
  }
}

// G8
TEST_F(GpuStreams, WorkspacesOfStreamsAndGraphsAreTheirOwn) {
  Product first(split_line(4)), second(split_line(4));
  first.expect_verified();
  const std::vector<uint8_t> expected = first.c.download();
  DeviceArray from_graph(expected.size());
  first.plan->plan.stream = stream(0).get();
  second.plan->plan.stream = stream(1).get();
  Graph graph(stream(2));
  ASSERT_TRUE(graph.begin(2));
  gemm_launch_args_t captured = first.args;
  captured.C = from_graph.data();
  captured.stream = stream(2).get();
  ASSERT_TRUE(succeeded(deepgemm_launch_plan_args(&first.plan->plan, &captured)));
  ASSERT_TRUE(graph.end());
  for (int round = 0; round < 1000; ++round) {
    ASSERT_TRUE(succeeded(first.launch()));
    ASSERT_TRUE(succeeded(second.launch()));
    ASSERT_TRUE(graph.replay(stream(3).get()));
  }
  for (const size_t index : {0, 1, 2, 3}) synchronize(index);
  EXPECT_EQ(first.c.download(), expected);
  EXPECT_EQ(second.c.download(), expected);
  EXPECT_EQ(from_graph.download(), expected);
}

TEST_F(GpuStreams, AWorkspaceOfTheCallerNeedNotBeZero) {
  Product product(split_line(4));
  product.expect_verified();
  const std::vector<uint8_t> expected = product.c.download();
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&product.plan->plan, &info)));
  ASSERT_GT(info.workspace_bytes, 0u);
  DeviceArray workspace(info.workspace_bytes);  // NaN
  product.args.workspace = workspace.data();
  product.args.workspace_bytes = info.workspace_bytes;
  for (int round = 0; round < 3; ++round) product.expect_verified();
  EXPECT_EQ(product.c.download(), expected);
  EXPECT_TRUE(workspace.guards_intact());
  product.args.workspace_bytes -= 1;
  EXPECT_TRUE(failed(product.launch(), DEEPGEMM_ERROR_INVALID_ARGUMENT, "workspace_bytes"));
}

// N9
TEST_F(GpuStreams, AHundredRepeatsBesideABusyStreamHaveTheSameBits) {
  Product busy("nt m=512 n=512 k=2048 a=bf16");
  busy.plan->plan.stream = stream(1).get();
  for (const char* line : {"nt m=48 n=128 k=4096 a=bf16", "nt m=1 n=512 k=4096 a=fp16",
                           "nt m=256 n=256 k=1024 a=fp32 rel=0.001", "nt m=33 n=65 k=999 a=fp32"}) {
    Product product(line);
    product.plan->plan.stream = stream(0).get();
    ASSERT_TRUE(succeeded(product.launch()));
    synchronize(0);
    const std::vector<uint8_t> expected = product.c.download();
    for (int round = 0; round < 100; ++round) {
      ASSERT_TRUE(succeeded(busy.launch()));
      ASSERT_TRUE(succeeded(product.launch()));
      synchronize(0);
      ASSERT_EQ(product.c.download(), expected) << line << ", round " << round;
    }
  }
}

// N8
TEST_F(GpuStreams, ARowHasTheSameBitsInEveryBatch) {
  constexpr int kN = 192, kK = 1024;
  for (const char* format :
       {"a=bf16", "a=fp16", "a=fp32", "a=fp32 rel=0.001", "a=int8", "a=fp8_e4m3"}) {
    const auto line = [&](int m) {
      return fmt::format("nt m={} n={} k={} {} repro=batch", m, kN, kK, format);
    };
    Product alone(line(1));
    ASSERT_NE(alone.plan->plan.handle, nullptr);
    ASSERT_TRUE(succeeded(alone.launch()));
    const std::vector<uint8_t> row = alone.c.download();
    std::vector<int> sizes;
    for (int m = 2; m <= 64; ++m) sizes.push_back(m);
    sizes.insert(sizes.end(), {127, 128, 129, 1024});
    for (const int m : sizes) {
      Product many(line(m));  // the same seed: row 0 and B are those of `alone`
      ASSERT_TRUE(succeeded(many.launch()));
      std::vector<uint8_t> first = many.c.download();
      first.resize(row.size());
      ASSERT_EQ(first, row) << line(m) << " on " << many.family();
    }
  }
}

// G9
TEST_F(GpuStreams, EveryCountOfSmsIsRight) {
  for (const char* sms : {"1", "7", "78", "131", "all", "dynamic"}) {
    for (const char* line : {"nt m=300 n=520 k=128 a=bf16", "nt m=2 n=512 k=512 a=bf16",
                             "nt m=48 n=128 k=4096 a=bf16 tile=32x64x64 warp=16x32x64"}) {
      Product(fmt::format("{} sm={}", line, sms)).expect_verified();
    }
  }
}

// G7
TEST_F(GpuStreams, ThreadsPlanAndLaunchAtOnce) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 32; ++i) stream(i);
  for (size_t i = 0; i < 32; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      for (int round = 0; round < 4; ++round) {
        const auto size = [&] { return 1 + static_cast<int>(random() % 200); };
        Product product(fmt::format("nt m={} n={} k={} a=bf16", size(), size(), size()));
        product.plan->plan.stream = stream(i).get();
        deepgemm_verification_t result = {};
        const deepgemm_status_t status =
            deepgemm_verify_plan(&product.plan->plan, &product.args, &result);
        if (status != DEEPGEMM_SUCCESS || !result.bound_kept) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// G5
TEST_F(GpuStreams, AForkedChildGetsAnErrorAndNoHang) {
  Product product("nt m=8 n=64 k=64 a=bf16");
  ASSERT_TRUE(succeeded(product.launch()));
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    const deepgemm_status_t launched = product.launch();
    gemm_plan_t plan = {};
    const deepgemm_status_t planned =
        deepgemm_create_plan(&plan, &product.intent, product.m, product.n, product.k + 1);
    ::_exit(launched == DEEPGEMM_ERROR_DEVICE && planned == DEEPGEMM_ERROR_DEVICE ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  product.expect_verified();
}

TEST_F(GpuStreams, AfterPreparingNothingIsCompiled) {
  Product product("nt m=1 n=320 k=448 a=fp16");
  const deepgemm_shape_t shape = {.max_m = 300, .n = 320, .k = 448};
  deepgemm_prepare_report_t report = {};
  ASSERT_TRUE(succeeded(deepgemm_prepare(&product.intent, &shape, 1, &report)));
  EXPECT_GT(report.kernels, 0);
  const uint64_t before = jit::process_service().counters().compiles;
  for (int m = 1; m <= 300; m += 13) {
    Product(fmt::format("nt m={} n=320 k=448 a=fp16", m)).expect_verified();
    Product(fmt::format("nt m={} n=320 k=448 a=fp16", m), 2).expect_verified();
  }
  EXPECT_EQ(jit::process_service().counters().compiles, before);
}

}  // namespace
}  // namespace deepgemm::gpu_test
