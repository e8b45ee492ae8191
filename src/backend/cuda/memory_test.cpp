#include "backend/cuda/memory.hpp"

#include <cstring>
#include <thread>

#include "backend/cuda/cuda_fixture.hpp"

namespace deepgemm::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// With stream-ordered pools (1) and without (0).
class CudaMemory : public CudaFixture, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    for (FakeDevice& device : fake_.devices) device.attributes[kDeviceMemoryPools] = GetParam();
    CudaFixture::SetUp();
  }
  bool has_pools() const { return GetParam() == 1; }
};

INSTANTIATE_TEST_SUITE_P(Pools, CudaMemory, ::testing::Values(1, 0));

TEST_P(CudaMemory, IsAllocatedOnTheDeviceAndReleased) {
  MemoryPool pool(device(1), "weights", 0, 1 << 20);
  const auto block = pool.allocate(1000, nullptr);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(platform_->pointer_facts(*block)->ordinal, 1);
  EXPECT_EQ(pool.counts().used_bytes, 1000U);
  EXPECT_EQ(pool.counts().live_blocks, 1);
  EXPECT_TRUE(pool.owns(*block));
  ASSERT_TRUE(pool.release(*block, nullptr).ok());
  EXPECT_EQ(pool.counts().used_bytes, 0U);
  EXPECT_EQ(pool.counts().peak_used_bytes, 1000U);
  EXPECT_EQ(pool.counts().total_blocks, 1);
  EXPECT_TRUE(fake_.allocations.empty());
  EXPECT_EQ(fake_.count(has_pools() ? "cuMemFreeAsync" : "cuMemFree_v2"), 1);
}

TEST_P(CudaMemory, OfZeroBytesHasAPointerOfItsOwn) {
  MemoryPool pool(device(), "workspace", 0, 0);
  const auto first = pool.allocate(0, nullptr);
  const auto second = pool.allocate(0, nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, nullptr);
  EXPECT_NE(*first, *second);
  EXPECT_TRUE(pool.release(*first, nullptr).ok());
  EXPECT_TRUE(pool.release(nullptr, nullptr).ok());
}

TEST_P(CudaMemory, ThatIsNoneOfThePoolIsRefused) {
  MemoryPool pool(device(), "weights", 0, 0);
  int other = 0;
  void* block = *pool.allocate(10, nullptr);
  ASSERT_TRUE(pool.release(block, nullptr).ok());
  for (void* pointer : {block, static_cast<void*>(&other)}) {
    const auto result = pool.release(pointer, nullptr);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(result.error().message, HasSubstr("'weights'"));
  }
}

TEST_P(CudaMemory, IsBoundedByItsLimit) {
  MemoryPool pool(device(), "cache", 1000, 0);
  void* block = *pool.allocate(600, nullptr);
  const auto more = pool.allocate(401, nullptr);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, DEEPGEMM_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(more.error().message, AllOf(HasSubstr("401 bytes for 'cache'"),
                                          HasSubstr("600 bytes"), HasSubstr("limit: 1000")));
  EXPECT_TRUE(pool.allocate(400, nullptr).ok());
  EXPECT_TRUE(pool.release(block, nullptr).ok());
  EXPECT_TRUE(pool.allocate(600, nullptr).ok());
}

TEST_P(CudaMemory, ThatIsExhaustedIsToldWithTheFigures) {
  MemoryPool pool(device(), "weights", 0, 0);
  const auto block = pool.allocate(size_t{2} << 30, nullptr);
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.error().code, DEEPGEMM_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(block.error().message, HasSubstr("1073741824 of the device's 1073741824"));
  EXPECT_EQ(pool.counts().live_blocks, 0);
}

TEST_P(CudaMemory, IsGivenBackBeforeItCountsAsExhausted) {
  MemoryPool pool(device(), "weights", 0, 0);
  ASSERT_TRUE(pool.allocate(1, nullptr).ok());
  fake_.fail(has_pools() ? "cuMemAllocFromPoolAsync" : "cuMemAlloc_v2", CuResult::kOutOfMemory);
  EXPECT_TRUE(pool.allocate(100, nullptr).ok());
  EXPECT_EQ(fake_.count("cuMemPoolTrimTo"), has_pools() ? 1 : 0);
}

TEST_P(CudaMemory, IsNeitherAllocatedNorReleasedUnderCapture) {
  MemoryPool pool(device(), "workspace", 0, 0);
  void* block = *pool.allocate(10, nullptr);
  const CuStream captured = fake_.make_stream(0, kCaptureActive);
  const auto more = pool.allocate(10, captured);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  EXPECT_THAT(more.error().message, HasSubstr("before the capture begins"));
  EXPECT_FALSE(pool.release(block, captured).ok());
  EXPECT_TRUE(pool.owns(block));
  EXPECT_EQ(fake_.streams.at(captured).capture, kCaptureActive);
}

TEST_P(CudaMemory, StartsAnewAfterAReset) {
  MemoryPool pool(device(), "weights", 0, 0);
  void* gone = *pool.allocate(1000, nullptr);
  fake_.reset_device(0);
  fake_.forget_calls();
  EXPECT_TRUE(pool.release(gone, nullptr).ok());  // without the driver
  EXPECT_EQ(fake_.count(has_pools() ? "cuMemFreeAsync" : "cuMemFree_v2"), 0);
  const auto block = pool.allocate(10, nullptr);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(pool.counts().used_bytes, 10U);
}

TEST_P(CudaMemory, GoesWithItsPool) {
  {
    MemoryPool pool(device(), "weights", 0, 0);
    ASSERT_TRUE(pool.allocate(10, nullptr).ok());
    ASSERT_TRUE(pool.allocate(20, nullptr).ok());
  }
  EXPECT_TRUE(fake_.allocations.empty());
  EXPECT_TRUE(fake_.pools.empty());
}

TEST_P(CudaMemory, ReportsAnEarlierFault) {
  MemoryPool pool(device(), "weights", 0, 0);
  fake_.fault(0, CuResult::kLaunchFailed);
  const auto block = pool.allocate(10, nullptr);
  ASSERT_FALSE(block.ok());
  EXPECT_THAT(block.error().message, HasSubstr("had already failed before this call"));
}

TEST_P(CudaMemory, IsAllocatedByThreadsAtOnce) {
  MemoryPool pool(device(), "weights", 0, 0);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const auto block = pool.allocate(100, nullptr);
        failures += !block.ok() || !pool.release(*block, nullptr).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(pool.counts().used_bytes, 0U);
  EXPECT_EQ(pool.counts().total_blocks, 800);
}

TEST_P(CudaMemory, HasAPoolForEachPurpose) {
  DeviceMemory memory(device(), 1 << 20);
  void* weight = *memory.pool("weights").allocate(100, nullptr);
  void* scratch = *memory.pool("workspace").allocate(10, nullptr);
  EXPECT_EQ(&memory.pool("weights"), &memory.pool("weights"));
  EXPECT_FALSE(memory.pool("weights").owns(scratch));
  EXPECT_EQ(memory.counts().at("weights").used_bytes, 100U);
  EXPECT_EQ(memory.counts().at("workspace").used_bytes, 10U);
  EXPECT_EQ(fake_.pools.size(), has_pools() ? 2U : 0U);
  EXPECT_TRUE(memory.release(weight, nullptr).ok());
  EXPECT_FALSE(memory.release(weight, nullptr).ok());
  EXPECT_TRUE(memory.release(nullptr, nullptr).ok());
}

TEST_P(CudaMemory, KeepsAsMuchAsItIsTold) {
  MemoryPool pool(device(), "weights", 0, 12345);
  ASSERT_TRUE(pool.allocate(10, nullptr).ok());
  for (const auto& [handle, fake] : fake_.pools) EXPECT_EQ(fake.release_threshold, 12345U);
  pool.trim();
  EXPECT_EQ(fake_.count("cuMemPoolTrimTo"), has_pools() ? 1 : 0);
}

TEST_P(CudaMemory, IsCopiedAndFilled) {
  MemoryPool pool(device(), "activations", 0, 0);
  void* block = *pool.allocate(8, nullptr);
  const char text[8] = "written";
  char back[8] = "";
  ASSERT_TRUE(copy(device(), block, text, 8, nullptr).ok());
  ASSERT_TRUE(copy(device(), back, block, 8, nullptr).ok());
  EXPECT_STREQ(back, text);
  ASSERT_TRUE(fill(device(), block, 0x2a, 7, nullptr).ok());
  ASSERT_TRUE(copy(device(), back, block, 8, nullptr).ok());
  EXPECT_STREQ(back, "*******");
  fake_.forget_calls();
  EXPECT_TRUE(copy(device(), nullptr, nullptr, 0, nullptr).ok());
  EXPECT_TRUE(fill(device(), nullptr, 0, 0, nullptr).ok());
  EXPECT_TRUE(fake_.calls().empty());
}

TEST_P(CudaMemory, OfTheHostIsPinnedAndFreed) {
  {
    const auto buffer = PinnedBuffer::create(device(), 4096);
    ASSERT_TRUE(buffer.ok());
    std::memset(buffer->data(), 1, buffer->bytes());
    EXPECT_EQ(platform_->pointer_facts(buffer->data())->kind, MemoryKind::kPinned);
    EXPECT_EQ(PinnedBuffer::create(device(), 0)->data(), nullptr);
  }
  EXPECT_EQ(fake_.count("cuMemFreeHost"), 1);
  fake_.fail("cuMemHostAlloc", CuResult::kOutOfMemory);
  const auto buffer = PinnedBuffer::create(device(), 4096);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, DEEPGEMM_ERROR_OUT_OF_MEMORY);
}

TEST_P(CudaMemory, IsToldAsFreeAndInAll) {
  MemoryPool pool(device(), "weights", 0, 0);
  ASSERT_TRUE(pool.allocate(1024, nullptr).ok());
  const auto info = memory_info(device());
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->total_bytes, size_t{1} << 30);
  EXPECT_EQ(info->free_bytes, info->total_bytes - 1024);
}

TEST_P(CudaMemory, OfTheParentIsLeftAloneInAForkedChild) {
  auto pool = std::make_unique<MemoryPool>(device(), "weights", 0, 0);
  ASSERT_TRUE(pool->allocate(10, nullptr).ok());
  EXPECT_TRUE(holds_in_child([&] {
    const size_t before = fake_.calls().size();
    const bool refused = !pool->allocate(10, nullptr).ok();
    pool->trim();
    const bool counted = pool->counts().used_bytes == 10;
    pool.reset();
    return refused && counted && fake_.calls().size() == before;
  }));
}

}  // namespace
}  // namespace deepgemm::cuda
