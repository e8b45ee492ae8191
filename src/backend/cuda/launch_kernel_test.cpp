#include "backend/cuda/launch_kernel.hpp"

#include "backend/cuda/cuda_fixture.hpp"
#include "backend/cuda/persisting_l2.hpp"

namespace deepgemm::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaLaunch : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    kernel_ = *find_kernel(*Module::load(device(), fake_image("k"), "k"), "k",
                           {.dynamic_shared_bytes = 98304});
  }
  void TearDown() override {
    kernel_ = {};
    CudaFixture::TearDown();
  }
  base::Result<void> launch(const LaunchConfig& config) {
    int value = 7;
    void* parameters[] = {&value};
    return launch_kernel(kernel_, config, parameters);
  }

  Kernel kernel_;
};

TEST_F(CudaLaunch, PassesGridBlockSharedMemoryStreamAndParameters) {
  int seen = 0;
  fake_.on_launch = [&](const FakeLaunch&, void** parameters) {
    seen = *static_cast<int*>(parameters[0]);
  };
  const CuStream stream = fake_.make_stream(0);
  ASSERT_TRUE(launch({.grid = {132, 2, 3}, .block = {384, 1, 1}, .stream = stream}).ok());
  ASSERT_EQ(fake_.launches.size(), 1U);
  const CuLaunchConfig& config = fake_.launches[0].config;
  EXPECT_EQ(fake_.launches[0].kernel, "k");
  EXPECT_EQ(config.grid_x, 132U);
  EXPECT_EQ(config.grid_y, 2U);
  EXPECT_EQ(config.grid_z, 3U);
  EXPECT_EQ(config.block_x, 384U);
  EXPECT_EQ(config.block_y, 1U);
  EXPECT_EQ(config.dynamic_shared_bytes, 98304U);
  EXPECT_EQ(config.stream, stream);
  EXPECT_TRUE(fake_.launches[0].attributes.empty());
  EXPECT_EQ(seen, 7);
}

TEST_F(CudaLaunch, AddsTheAttributesThatAreAskedFor) {
  const CuAccessWindow window = persisting_window(device().facts(), this, 1 << 20, 1 << 19);
  ASSERT_TRUE(launch({.grid = {8, 1, 1},
                      .block = {128, 1, 1},
                      .cluster = {2, 1, 1},
                      .programmatic = true,
                      .window = &window})
                  .ok());
  const FakeLaunch& seen = fake_.launches.at(0);
  ASSERT_EQ(seen.attributes.size(), 3U);
  ASSERT_NE(seen.attribute(kLaunchCluster), nullptr);
  EXPECT_EQ(seen.attribute(kLaunchCluster)->value.cluster.x, 2U);
  EXPECT_EQ(seen.attribute(kLaunchCluster)->value.cluster.z, 1U);
  ASSERT_NE(seen.attribute(kLaunchProgrammatic), nullptr);
  EXPECT_EQ(seen.attribute(kLaunchProgrammatic)->value.flag, 1);
  ASSERT_NE(seen.attribute(kLaunchAccessWindow), nullptr);
  EXPECT_EQ(seen.attribute(kLaunchAccessWindow)->value.window.bytes, size_t{1} << 20);
}

TEST_F(CudaLaunch, LeavesOutAWindowThatIsEmpty) {
  const CuAccessWindow window = persisting_window(device().facts(), this, 1 << 20, 0);
  ASSERT_TRUE(launch({.block = {32, 1, 1}, .window = &window}).ok());
  EXPECT_TRUE(fake_.launches.at(0).attributes.empty());
}

TEST_F(CudaLaunch, OfAnEmptyGridIsNone) {
  fake_.forget_calls();
  for (const Extent grid : {Extent{0, 1, 1}, Extent{1, 0, 1}, Extent{1, 1, 0}}) {
    EXPECT_TRUE(launch({.grid = grid, .block = {32, 1, 1}}).ok());
  }
  EXPECT_TRUE(fake_.calls().empty());
}

TEST_F(CudaLaunch, LeavesTheThreadsDeviceAsItWas) {
  const auto other = ContextGuard::enter(device(1));
  ASSERT_TRUE(launch({.block = {32, 1, 1}}).ok());
  EXPECT_EQ(current(), device(1).context());
}

TEST_F(CudaLaunch, MakesNoOtherCallsThanItNeeds) {
  ASSERT_TRUE(launch({.block = {32, 1, 1}}).ok());
  fake_.forget_calls();
  const auto guard = ContextGuard::enter(device());
  fake_.forget_calls();
  ASSERT_TRUE(launch({.block = {32, 1, 1}}).ok());
  std::vector<std::string> names;
  for (const FakeCall& call : fake_.calls()) names.push_back(call.name);
  EXPECT_THAT(names, ::testing::ElementsAre("cuCtxGetId", "cuCtxGetCurrent", "cuStreamIsCapturing",
                                            "cuLaunchKernelEx"));
}

TEST_F(CudaLaunch, LabelsAFaultOfEarlierWork) {
  fake_.fault(0, CuResult::kIllegalAddress);
  const auto result = launch({.block = {32, 1, 1}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_DEVICE);
  EXPECT_THAT(result.error().message,
              AllOf(HasSubstr("had already failed before this call"), HasSubstr("700")));
  EXPECT_TRUE(fake_.launches.empty());
}

TEST_F(CudaLaunch, LabelsAnEarlierFaultThatOnlyTheLaunchSees) {
  fake_.fail("cuLaunchKernelEx", CuResult::kMisalignedAddress);
  const auto result = launch({.block = {32, 1, 1}});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("had already failed before this call"));
}

TEST_F(CudaLaunch, ThatDoesNotFitNamesTheFigures) {
  fake_.fail("cuLaunchKernelEx", CuResult::kOutOfResources);
  const auto result = launch({.grid = {4, 1, 1}, .block = {1024, 1, 1}, .cluster = {4, 1, 1}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_UNSUPPORTED);
  EXPECT_THAT(
      result.error().message,
      AllOf(HasSubstr("'k' on cuda:0"), HasSubstr("block 1024 x 1 x 1"),
            HasSubstr("cluster 4 x 1 x 1"), HasSubstr("32 registers"), HasSubstr("98304 bytes")));
}

TEST_F(CudaLaunch, AfterAResetAsksForANewPlan) {
  fake_.reset_device(0);
  const auto result = launch({.block = {32, 1, 1}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  EXPECT_THAT(result.error().message, HasSubstr("was reset"));
  EXPECT_EQ(fake_.count("cuLaunchKernelEx"), 0);
}

TEST_F(CudaLaunch, IntoACaptureKeepsTheModuleForTheGraph) {
  const CuStream stream = fake_.make_stream(0, kCaptureActive);
  ASSERT_TRUE(launch({.block = {32, 1, 1}, .stream = stream}).ok());
  ASSERT_TRUE(launch({.block = {32, 1, 1}, .stream = stream}).ok());
  EXPECT_TRUE(fake_.launches.at(0).captured);
  EXPECT_EQ(kernel_.module->graphs(), 2);
  const CuGraph graph = fake_.streams.at(stream).graph;
  CuGraphExec executable = nullptr;
  ASSERT_EQ(driver().graph_instantiate(&executable, graph, 0), CuResult::kSuccess);
  driver().graph_destroy(graph);
  EXPECT_EQ(kernel_.module->graphs(), 2);
  driver().graph_executable_destroy(executable);
  EXPECT_EQ(kernel_.module->graphs(), 0);
}

TEST_F(CudaLaunch, OutsideACaptureCountsNoGraph) {
  ASSERT_TRUE(launch({.block = {32, 1, 1}, .stream = fake_.make_stream(0)}).ok());
  EXPECT_EQ(kernel_.module->graphs(), 0);
  EXPECT_EQ(fake_.count("cuUserObjectCreate"), 0);
}

TEST_F(CudaLaunch, IntoABrokenCaptureIsRefused) {
  const auto result = launch({.block = {32, 1, 1}, .stream = fake_.make_stream(0, kCaptureBroken)});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(fake_.count("cuLaunchKernelEx"), 0);
}

TEST_F(CudaLaunch, InAForkedChildIsRefused) {
  EXPECT_TRUE(holds_in_child([&] {
    const size_t before = fake_.calls().size();
    const auto result = launch({.block = {32, 1, 1}});
    return !result.ok() && result.error().message.find("forked") != std::string::npos &&
           fake_.calls().size() == before;
  }));
}

class CudaPersistingL2 : public CudaFixture {};

TEST_F(CudaPersistingL2, IsClippedToWhatTheDeviceHas) {
  EXPECT_EQ(*set_persisting_l2(device(), 1 << 20), size_t{1} << 20);
  EXPECT_EQ(*set_persisting_l2(device(), size_t{1} << 40), 39321600U);
}

TEST_F(CudaPersistingL2, IsNeverLowered) {
  ASSERT_EQ(*set_persisting_l2(device(), 2 << 20), size_t{2} << 20);
  EXPECT_EQ(*set_persisting_l2(device(), 1 << 20), size_t{2} << 20);
  EXPECT_EQ(fake_.count("cuCtxSetLimit"), 1);
}

TEST_F(CudaPersistingL2, IsNothingWhereThereIsNone) {
  fake_.fail("cuCtxSetLimit", CuResult::kNotSupported);
  EXPECT_EQ(*set_persisting_l2(device(), 1 << 20), 0U);
  fake_.devices[1].attributes[kDevicePersistingL2] = 0;
  const auto platform = Platform::create(fake_.driver());
  EXPECT_EQ(*set_persisting_l2(**(*platform)->device(1), 1 << 20), 0U);
}

TEST_F(CudaPersistingL2, KeepsAShareOfAWindowThatIsLargerThanTheGrant) {
  const DeviceFacts& facts = device().facts();
  const CuAccessWindow small = persisting_window(facts, this, 1000, 4000);
  EXPECT_EQ(small.base, this);
  EXPECT_EQ(small.bytes, 1000U);
  EXPECT_EQ(small.hit_ratio, 1.0F);
  EXPECT_EQ(small.hit, kAccessPersisting);
  EXPECT_EQ(small.miss, kAccessStreaming);
  EXPECT_EQ(persisting_window(facts, this, 4000, 1000).hit_ratio, 0.25F);
  EXPECT_EQ(persisting_window(facts, this, size_t{1} << 40, 1000).bytes, 134217728U);
  EXPECT_EQ(persisting_window(facts, this, 4000, 0).bytes, 0U);
}

}  // namespace
}  // namespace deepgemm::cuda
