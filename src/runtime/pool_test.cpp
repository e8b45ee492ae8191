#include "runtime/pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace deepgemm::runtime {
namespace {

void* take(Pool& pool, size_t bytes, const char* purpose = "general") {
  const auto result = pool.allocate(bytes, purpose);
  EXPECT_TRUE(result.ok());
  return result.ok() ? *result : nullptr;
}

TEST(PoolPurpose, WordsOfAPurposeChooseTheClass) {
  EXPECT_EQ(classify_purpose("q_proj_weight"), MemoryClass::kWeights);
  EXPECT_EQ(classify_purpose("kv_cache"), MemoryClass::kCache);
  EXPECT_EQ(classify_purpose("KV.Cache.layer3"), MemoryClass::kCache);
  EXPECT_EQ(classify_purpose("mlp activation 7"), MemoryClass::kActivations);
  EXPECT_EQ(classify_purpose("workspace"), MemoryClass::kWorkspace);
  EXPECT_EQ(classify_purpose("weightless"), MemoryClass::kGeneral);
  EXPECT_EQ(classify_purpose(""), MemoryClass::kGeneral);
  EXPECT_EQ(classify_purpose("12_34"), MemoryClass::kGeneral);
}

TEST(Pool, MemoryIsAlignedAndDisjoint) {
  Pool pool(0);
  std::vector<std::pair<char*, size_t>> blocks;
  for (const size_t bytes : {1u, 255u, 256u, 257u, 5000u, 3u << 20, 20u << 20}) {
    auto* block = static_cast<char*>(take(pool, bytes));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % Pool::kAlignment, 0u);
    std::memset(block, static_cast<int>(blocks.size() + 1), bytes);
    blocks.emplace_back(block, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    const auto same = [&](char c) { return c == static_cast<char>(i + 1); };
    EXPECT_TRUE(std::all_of(block, block + bytes, same)) << "block " << i;
  }
  for (const auto& [block, bytes] : blocks) EXPECT_TRUE(pool.release(block).ok());
  EXPECT_EQ(pool.stats().used_bytes, 0u);
}

TEST(Pool, LargeBlocksLieOnHugePageBoundaries) {
  Pool pool(0);
  void* const block = take(pool, Pool::kLargeBlock);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kHugePage, 0u);
  EXPECT_TRUE(pool.release(block).ok());
}

TEST(Pool, ZeroBytesGiveUniquePointers) {
  Pool pool(0);
  void* const first = take(pool, 0);
  void* const second = take(pool, 0);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(first, second);
  EXPECT_TRUE(pool.release(first).ok());
  EXPECT_TRUE(pool.release(second).ok());
}

TEST(Pool, NeighboursMergeWhenFreedInAnyOrder) {
  constexpr size_t kBytes = 64 << 10;
  for (const std::vector<int>& order :
       {std::vector{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}}) {
    Pool pool(0);
    void* const blocks[] = {take(pool, kBytes), take(pool, kBytes), take(pool, kBytes)};
    for (const int i : order) EXPECT_TRUE(pool.release(blocks[i]).ok());
    const deepgemm_pool_stats_t stats = pool.stats();
    EXPECT_EQ(stats.fragmentation_ratio, 0) << "one free block is left";
    EXPECT_EQ(stats.used_bytes, 0u);
    // All of the chunk can be had in one piece again.
    void* const whole = take(pool, stats.reserved_bytes);
    EXPECT_EQ(pool.stats().reserved_bytes, stats.reserved_bytes);
    EXPECT_TRUE(pool.release(whole).ok());
  }
}

TEST(Pool, TheSmallestBlockThatFitsIsUsed) {
  Pool pool(0);
  void* const large = take(pool, 64 << 10);
  void* const wall = take(pool, 256);
  void* const small = take(pool, 4 << 10);
  void* const other_wall = take(pool, 256);
  EXPECT_TRUE(pool.release(large).ok());
  EXPECT_TRUE(pool.release(small).ok());
  EXPECT_EQ(take(pool, 4 << 10), small);
  EXPECT_TRUE(pool.release(small).ok());
  EXPECT_TRUE(pool.release(wall).ok());
  EXPECT_TRUE(pool.release(other_wall).ok());
}

TEST(Pool, FragmentationRatioIsOneMinusLargestOverFree) {
  Pool pool(0);
  std::vector<void*> blocks;
  const size_t kBytes = Pool::kSmallestChunk / 4;
  for (int i = 0; i < 4; ++i) blocks.push_back(take(pool, kBytes));
  EXPECT_EQ(pool.stats().fragmentation_ratio, 0) << "nothing is free";
  EXPECT_TRUE(pool.release(blocks[0]).ok());
  EXPECT_TRUE(pool.release(blocks[2]).ok());
  EXPECT_DOUBLE_EQ(pool.stats().fragmentation_ratio, 0.5);
  EXPECT_TRUE(pool.release(blocks[1]).ok());
  EXPECT_EQ(pool.stats().fragmentation_ratio, 0);
  EXPECT_TRUE(pool.release(blocks[3]).ok());
}

TEST(Pool, ClassesDoNotShareChunks) {
  Pool pool(0);
  void* const weights = take(pool, 256, "weight");
  const size_t one = pool.stats().reserved_bytes;
  void* const cache = take(pool, 256, "kv_cache");
  EXPECT_EQ(pool.stats().reserved_bytes, 2 * one);
  EXPECT_TRUE(pool.release(weights).ok());
  EXPECT_TRUE(pool.release(cache).ok());
}

TEST(Pool, DoubleFreeAndForeignPointersAreErrors) {
  Pool pool(0);
  auto* const block = static_cast<char*>(take(pool, 1024));
  int local = 0;
  EXPECT_EQ(pool.release(&local).error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(pool.release(block + 256).error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(pool.release(block).ok());
  EXPECT_EQ(pool.release(block).error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(pool.release(nullptr).ok());
  EXPECT_EQ(pool.stats().live_allocations, 0);
}

TEST(Pool, EmptyChunksBeyondTheReserveReturnToTheSystem) {
  Pool pool(0);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(pool, Pool::kLargeBlock));
  EXPECT_GE(pool.stats().reserved_bytes, 8 * Pool::kLargeBlock);
  for (void* block : blocks) EXPECT_TRUE(pool.release(block).ok());
  EXPECT_LE(pool.stats().reserved_bytes, Pool::kReserveBytes);
  EXPECT_EQ(pool.stats().peak_used_bytes, 8 * Pool::kLargeBlock);
}

TEST(Pool, TheLimitHoldsAndTheReserveIsSpentBeforeItFails) {
  Pool pool(32 << 20);
  void* const first = take(pool, 20 << 20, "weights");
  const auto refused = pool.allocate(20 << 20, "kv_cache");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(refused.error().message.find("weights 20971520"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(pool.release(first).ok());
  // The freed chunk is of another class: it must go before this one can come.
  void* const second = take(pool, 20 << 20, "kv_cache");
  EXPECT_TRUE(pool.release(second).ok());
}

TEST(Pool, ImpossibleSizesAreOutOfMemory) {
  Pool pool(0);
  for (const size_t bytes : {std::numeric_limits<size_t>::max(),
                             std::numeric_limits<size_t>::max() - 255, size_t{1} << 60}) {
    const auto result = pool.allocate(bytes, "x");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_EQ(pool.stats().live_allocations, 0);
}

TEST(Pool, LeakReportListsLiveBlocksOldestFirst) {
  Pool pool(0);
  EXPECT_EQ(pool.leak_report(), "");
  void* const first = take(pool, 100, "q_proj_weight");
  void* const second = take(pool, 7, "kv_cache");
  void* const third = take(pool, 9, "kv_cache");
  EXPECT_TRUE(pool.release(second).ok());
  EXPECT_EQ(pool.leak_report(),
            "allocation 1: 100 bytes for 'q_proj_weight' (weights)\n"
            "allocation 3: 9 bytes for 'kv_cache' (cache)\n");
  EXPECT_TRUE(pool.release(first).ok());
  EXPECT_TRUE(pool.release(third).ok());
  EXPECT_EQ(pool.leak_report(), "");
}

// Random traffic against a model: contents survive, statistics agree, and everything comes back.
TEST(Pool, SurvivesRandomTrafficFromSeveralThreads) {
  Pool pool(0);
  const auto traffic = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<unsigned char*, size_t>> live;
    const auto mark = [&](size_t i) { return static_cast<unsigned char>(seed * 31 + i); };
    for (int step = 0; step < 2000; ++step) {
      if (live.size() < 20 || random() % 2 == 0) {
        const size_t bytes = random() % 8 == 0 ? random() % (3 << 20) : random() % 4096;
        const char* const purposes[] = {"weight", "activation", "other"};
        const auto result = pool.allocate(bytes, purposes[random() % 3]);
        ASSERT_TRUE(result.ok());
        auto* const block = static_cast<unsigned char*>(*result);
        if (bytes > 0) block[0] = block[bytes - 1] = mark(bytes);
        live.emplace_back(block, bytes);
      } else {
        std::swap(live[random() % live.size()], live.back());
        const auto [block, bytes] = live.back();
        live.pop_back();
        if (bytes > 0) {
          ASSERT_EQ(block[0], mark(bytes));
          ASSERT_EQ(block[bytes - 1], mark(bytes));
        }
        ASSERT_TRUE(pool.release(block).ok());
      }
    }
    for (const auto& [block, bytes] : live) ASSERT_TRUE(pool.release(block).ok());
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(traffic, seed);
  for (std::thread& thread : threads) thread.join();
  const deepgemm_pool_stats_t stats = pool.stats();
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.live_allocations, 0);
  EXPECT_LE(stats.reserved_bytes, Pool::kReserveBytes);
}

}  // namespace
}  // namespace deepgemm::runtime
