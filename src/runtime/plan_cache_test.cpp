#include "runtime/plan_cache.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace deepgemm::runtime {
namespace {

PlanKey key_of(const gemm_intent_t& intent, int64_t m = 1, const char* device = "cpu") {
  const auto key = make_plan_key(intent, m, 2, 3, device, true);
  EXPECT_TRUE(key.has_value());
  return *key;
}

std::shared_ptr<const PlanData> some_plan() { return std::make_shared<PlanData>(); }

TEST(PlanKey, IgnoresPaddingAndTheAddressOfTheDeviceName) {
  gemm_intent_t clean;
  gemm_intent_t dirty;
  std::memset(static_cast<void*>(&clean), 0, sizeof clean);
  std::memset(static_cast<void*>(&dirty), 0xFF, sizeof dirty);
  const gemm_intent_t zero = {};
  // Member by member, so that padding keeps its old bytes.
  for (gemm_intent_t* intent : {&clean, &dirty}) {
    intent->operation = GEMM_OP_NT;
    intent->role = zero.role;
    intent->alpha = 1;
    intent->beta = zero.beta;
    intent->numerical_contract.input_precision = PRECISION_FP16;
    intent->numerical_contract.output_precision = PRECISION_DEFAULT;
    intent->numerical_contract.safe_accumulation = true;
  }
  const auto keep_padding = [](auto& to, const auto& from, size_t first, size_t last) {
    std::memcpy(reinterpret_cast<char*>(&to) + first, reinterpret_cast<const char*>(&from) + first,
                last - first);
  };
  // The gap after the one-byte flag stays different; everything behind it becomes equal.
  keep_padding(dirty, clean, offsetof(gemm_intent_t, numerical_contract.error_model),
               sizeof(gemm_intent_t));
  const std::string name_a = "cpu";
  const std::string name_b = "cpu";
  clean.device = name_a.c_str();
  dirty.device = name_b.c_str();
  ASSERT_NE(std::memcmp(&clean, &dirty, sizeof clean), 0) << "the padding must differ";
  EXPECT_EQ(key_of(clean), key_of(dirty));
}

TEST(PlanKey, DiffersInEveryDeclaredField) {
  const gemm_intent_t base = {};
  const PlanKey key = key_of(base);
  const auto differs = [&](auto&& change) {
    gemm_intent_t changed = base;
    change(changed);
    return !(key_of(changed) == key);
  };
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.operation = GEMM_OP_TT; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.beta = 0.5; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.numerical_contract.seed = 1; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.numerical_contract.reserved[3] = 1; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.tiling_policy.warp_k = 16; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.budget.reliability_level = 1; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.layout_c.strides[2] = 1; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.epilogue.bias = true; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.output_widths[2] = 1; }));
  EXPECT_TRUE(differs([](gemm_intent_t& i) { i.reserved[0] = 1; }));
  EXPECT_FALSE(key_of(base, 1) == key_of(base, 2));
  EXPECT_FALSE(key_of(base, 1, "cpu") == key_of(base, 1, "h200"));
  EXPECT_FALSE(*make_plan_key(base, 1, 2, 3, "cpu", false) ==
               *make_plan_key(base, 1, 2, 3, "cpu", true));
}

TEST(PlanKey, IsAbsentForDeviceNamesThatDoNotFit) {
  EXPECT_FALSE(make_plan_key({}, 1, 2, 3, std::string(1000, 'x'), true).has_value());
}

TEST(PlanCache, DropsThePlanUsedLongestAgo) {
  PlanCache cache(2);
  const auto first = some_plan();
  const auto second = some_plan();
  const auto third = some_plan();
  cache.insert(key_of({}, 1), first);
  cache.insert(key_of({}, 2), second);
  EXPECT_EQ(cache.find(key_of({}, 1)), first);  // now the second is the oldest
  cache.insert(key_of({}, 3), third);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.find(key_of({}, 1)), first);
  EXPECT_EQ(cache.find(key_of({}, 2)), nullptr);
  EXPECT_EQ(cache.find(key_of({}, 3)), third);
}

TEST(PlanCache, TheFirstOfTwoEqualPlansIsShared) {
  PlanCache cache(2);
  const auto first = some_plan();
  EXPECT_EQ(cache.insert(key_of({}), first), first);
  EXPECT_EQ(cache.insert(key_of({}), some_plan()), first);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(PlanCache, StaysWithinItsCapacityUnderThreads) {
  PlanCache cache(8);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (int64_t i = 0; i < 500; ++i) {
        const PlanKey key = key_of({}, (i * 7 + t) % 20);
        if (!cache.find(key)) cache.insert(key, some_plan());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.size(), 8u);
}

}  // namespace
}  // namespace deepgemm::runtime
