#include "backend/cuda/module.hpp"

#include <thread>

#include "backend/cuda/cuda_fixture.hpp"
#include "backend/cuda/module_registry.hpp"

namespace deepgemm::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaModules : public CudaFixture {
 protected:
  std::shared_ptr<const Module> load(const std::string& kernels) {
    return *Module::load(device(), fake_image(kernels), kernels);
  }
};

TEST_F(CudaModules, AreLoadedInTheContextOfTheirDeviceAndUnloaded) {
  {
    const auto module = Module::load(device(1), fake_image("a"), "a");
    ASSERT_TRUE(module.ok());
    EXPECT_EQ(fake_.modules.at((*module)->get()).context, fake_.devices[1].context);
    EXPECT_EQ((*module)->bytes(), fake_image("a").size());
    EXPECT_TRUE((*module)->is_current());
  }
  EXPECT_TRUE(fake_.modules.empty());
}

TEST_F(CudaModules, AreNotUnloadedAfterAReset) {
  auto module = load("a");
  fake_.reset_device(0);
  ASSERT_TRUE(ContextGuard::enter(device()).ok());
  EXPECT_FALSE(module->is_current());
  module.reset();
  EXPECT_EQ(fake_.count("cuModuleUnload"), 0);
}

TEST_F(CudaModules, ThatAreDamagedAreReportedWithTheDriversWords) {
  const std::vector<uint8_t> image = {'x', 0};
  const auto module = Module::load(device(), image, "simt_fp32");
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, DEEPGEMM_ERROR_COMPILE_FAILED);
  EXPECT_THAT(module.error().message,
              AllOf(HasSubstr("'simt_fp32'"), HasSubstr("damaged"), HasSubstr("not a binary")));
}

TEST_F(CudaModules, NewerThanTheDriverOrOfAnotherArchitectureNameBoth) {
  fake_.fail("cuModuleLoadDataEx", CuResult::kUnsupportedPtx);
  const auto newer = Module::load(device(), fake_image("a"), "a");
  ASSERT_FALSE(newer.ok());
  EXPECT_THAT(newer.error().message,
              AllOf(HasSubstr("driver for CUDA 12.8"), HasSubstr("newer than the driver")));
  fake_.fail("cuModuleLoadDataEx", CuResult::kNoBinary);
  const auto other = Module::load(device(), fake_image("a"), "a");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, DEEPGEMM_ERROR_COMPILE_FAILED);
  EXPECT_THAT(other.error().message, AllOf(HasSubstr("sm_90"), HasSubstr("another architecture")));
}

TEST_F(CudaModules, GiveTheirKernelsWithTheDriversFacts) {
  fake_.kernel_attributes["a"] = {
      {kFunctionRegisters, 168}, {kFunctionLocalBytes, 16}, {kFunctionStaticShared, 1024}};
  const auto kernel = find_kernel(load("a,b"), "a", {.dynamic_shared_bytes = 200000});
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ(kernel->facts.registers, 168);
  EXPECT_EQ(kernel->facts.local_bytes, 16);
  EXPECT_EQ(kernel->facts.static_shared_bytes, 1024);
  EXPECT_EQ(kernel->facts.max_threads, 1024);
  EXPECT_EQ(kernel->facts.binary_sm, 90);
  const auto& attributes = fake_.functions.at(kernel->function).attributes;
  EXPECT_EQ(attributes.at(kFunctionDynamicShared), 200000);
  EXPECT_EQ(attributes.count(kFunctionAnyCluster), 0U);
  EXPECT_EQ(*blocks_per_sm(*kernel, 256), 8);
}

TEST_F(CudaModules, NeverLowerALimitOfAFunction) {
  fake_.kernel_attributes["a"] = {{kFunctionDynamicShared, 100000}};
  ASSERT_TRUE(find_kernel(load("a"), "a", {.dynamic_shared_bytes = 50000}).ok());
  EXPECT_EQ(fake_.count("cuFuncSetAttribute"), 0);
  ASSERT_TRUE(
      find_kernel(load("a"), "a", {.dynamic_shared_bytes = 100001, .large_clusters = true}).ok());
  EXPECT_EQ(fake_.count("cuFuncSetAttribute"), 2);
}

TEST_F(CudaModules, RefuseAKernelThatTheyLackOrThatDoesNotFit) {
  const auto missing = find_kernel(load("a"), "b");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, DEEPGEMM_ERROR_COMPILE_FAILED);
  EXPECT_THAT(missing.error().message, HasSubstr("'b'"));
  fake_.kernel_attributes["a"] = {{kFunctionStaticShared, 1024}};
  const auto large = find_kernel(load("a"), "a", {.dynamic_shared_bytes = 231425});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, DEEPGEMM_ERROR_UNSUPPORTED);
  EXPECT_THAT(large.error().message,
              AllOf(HasSubstr("1024 + 231425"), HasSubstr("232448"), HasSubstr("Fake H200")));
  EXPECT_TRUE(find_kernel(load("a"), "a", {.dynamic_shared_bytes = 231424}).ok());
}

class CudaModuleRegistry : public CudaModules {
 protected:
  base::Result<std::shared_ptr<const Module>> get(uint64_t key, int ordinal = 0) {
    return registry_->get(device(ordinal), {0, key}, fake_image("k"), "k");
  }
  void TearDown() override {
    registry_.reset();
    CudaModules::TearDown();
  }

  std::unique_ptr<ModuleRegistry> registry_ = std::make_unique<ModuleRegistry>(3);
};

TEST_F(CudaModuleRegistry, LoadsABinaryOnceForEachDevice) {
  const auto first = *get(1);
  EXPECT_EQ(*get(1), first);
  EXPECT_NE(*get(1, 1), first);
  EXPECT_NE(*get(2), first);
  EXPECT_EQ(fake_.count("cuModuleLoadDataEx"), 3);
  EXPECT_EQ(registry_->counts().loaded, 3);
  EXPECT_EQ(registry_->counts().bytes, 3 * fake_image("k").size());
}

TEST_F(CudaModuleRegistry, UnloadsWhatWasAskedForLongestAgo) {
  for (const uint64_t key : {1, 2, 3, 1, 4}) ASSERT_TRUE(get(key).ok());
  EXPECT_EQ(registry_->counts().evictions, 1);
  EXPECT_EQ(fake_.modules.size(), 3U);
  const int loads = fake_.count("cuModuleLoadDataEx");
  ASSERT_TRUE(get(1).ok());  // was used after 2
  EXPECT_EQ(fake_.count("cuModuleLoadDataEx"), loads);
  ASSERT_TRUE(get(2).ok());
  EXPECT_EQ(fake_.count("cuModuleLoadDataEx"), loads + 1);
}

TEST_F(CudaModuleRegistry, LevelsOffOverManySpecialisations) {
  for (uint64_t key = 0; key < 2000; ++key) ASSERT_TRUE(get(key).ok());
  EXPECT_EQ(fake_.modules.size(), 3U);
  EXPECT_EQ(registry_->counts().loaded, 3);
  EXPECT_EQ(registry_->counts().bytes, 3 * fake_image("k").size());
}

TEST_F(CudaModuleRegistry, NeverUnloadsWhatSomebodyHolds) {
  std::vector<std::shared_ptr<const Module>> held;
  for (uint64_t key = 0; key < 5; ++key) held.push_back(*get(key));
  EXPECT_EQ(fake_.count("cuModuleUnload"), 0);
  EXPECT_EQ(registry_->counts().loaded, 5);
  held.clear();
  ASSERT_TRUE(get(9).ok());
  EXPECT_EQ(registry_->counts().loaded, 3);
  EXPECT_EQ(fake_.modules.size(), 3U);
}

TEST_F(CudaModuleRegistry, NeverUnloadsWhatACapturedGraphUses) {
  const CuStream stream = fake_.make_stream(0, kCaptureActive);
  const CuGraph graph = fake_.streams.at(stream).graph;
  const CuModule used = (*get(1))->get();
  ASSERT_TRUE((*get(1))->keep_for_graph(graph).ok());
  CuGraphExec executable = nullptr;
  ASSERT_EQ(driver().graph_instantiate(&executable, graph, 0), CuResult::kSuccess);
  ASSERT_EQ(driver().graph_destroy(graph), CuResult::kSuccess);
  for (uint64_t key = 10; key < 20; ++key) ASSERT_TRUE(get(key).ok());
  EXPECT_EQ(fake_.modules.count(used), 1U);
  ASSERT_EQ(driver().graph_executable_destroy(executable), CuResult::kSuccess);
  EXPECT_EQ(fake_.count("cuModuleUnload"), 8);  // none by the graph's callback
  for (uint64_t key = 20; key < 23; ++key) ASSERT_TRUE(get(key).ok());
  EXPECT_EQ(fake_.modules.count(used), 0U);
}

TEST_F(CudaModuleRegistry, LeavesLoadedWhatAGraphUsesWhenItGoes) {
  const CuStream stream = fake_.make_stream(0, kCaptureActive);
  ASSERT_TRUE((*get(1))->keep_for_graph(fake_.streams.at(stream).graph).ok());
  ASSERT_TRUE((*get(2))->keep_for_graph(nullptr).ok());  // of a graph that is not known
  ASSERT_TRUE(get(3).ok());
  registry_.reset();
  EXPECT_EQ(fake_.modules.size(), 2U);
  EXPECT_EQ(driver().graph_destroy(fake_.streams.at(stream).graph), CuResult::kSuccess);
}

TEST_F(CudaModuleRegistry, CountsNoGraphThatCouldNotBeTold) {
  const CuStream stream = fake_.make_stream(0, kCaptureActive);
  const auto module = *get(1);
  for (const char* call : {"cuUserObjectCreate", "cuGraphRetainUserObject"}) {
    fake_.fail(call, CuResult::kOutOfMemory);
    EXPECT_FALSE(module->keep_for_graph(fake_.streams.at(stream).graph).ok()) << call;
    EXPECT_EQ(module->graphs(), 0) << call;
  }
  EXPECT_TRUE(fake_.user_objects.empty());
}

TEST_F(CudaModuleRegistry, LoadsAnewAfterAReset) {
  const auto before = *get(1);
  fake_.reset_device(0);
  const auto after = get(1);
  ASSERT_TRUE(after.ok());
  EXPECT_NE(*after, before);
  EXPECT_TRUE((*after)->is_current());
  EXPECT_EQ(registry_->counts().loaded, 1);
}

TEST_F(CudaModuleRegistry, KeepsNothingOfALoadThatFailed) {
  fake_.fail("cuModuleLoadDataEx", CuResult::kOutOfMemory);
  const auto failed = get(1);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, DEEPGEMM_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(registry_->counts().loaded, 0);
  EXPECT_TRUE(get(1).ok());
}

TEST_F(CudaModuleRegistry, ServesThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t round = 0; round < 100; ++round) {
        const auto module = get(round % 7, i % 2);
        failures += !module.ok() || !find_kernel(*module, "k").ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  ASSERT_TRUE(get(100).ok());
  EXPECT_EQ(registry_->counts().loaded, 3);
  EXPECT_EQ(fake_.modules.size(), 3U);
}

}  // namespace
}  // namespace deepgemm::cuda
