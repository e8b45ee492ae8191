// The memory that callers see: statistics, leaks, operands - and that a launch takes none.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "build_config.hpp"
#include "support.hpp"

namespace deepgemm::api_test {
namespace {

deepgemm_pool_stats_t stats() {
  deepgemm_pool_stats_t stats = {};
  EXPECT_TRUE(succeeded(deepgemm_get_pool_stats(&stats)));
  return stats;
}

std::string leak_report() {
  std::string text(1 << 16, '\0');
  EXPECT_TRUE(succeeded(deepgemm_get_leak_report(text.data(), text.size(), nullptr)));
  return text.c_str();
}

TEST(Memory, StatisticsFollowWhatIsHandedOut) {
  const deepgemm_pool_stats_t before = stats();
  float* memory = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc(&memory, 1000 * sizeof(float))));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
  const deepgemm_pool_stats_t during = stats();
  EXPECT_EQ(during.live_allocations, before.live_allocations + 1);
  EXPECT_EQ(during.total_allocations, before.total_allocations + 1);
  EXPECT_GE(during.used_bytes, before.used_bytes + 1000 * sizeof(float));
  EXPECT_GE(during.peak_used_bytes, during.used_bytes);
  EXPECT_GE(during.reserved_bytes, during.used_bytes);
  EXPECT_GE(during.fragmentation_ratio, 0);
  EXPECT_LE(during.fragmentation_ratio, 1);
  ASSERT_TRUE(succeeded(deepgemm_free(memory)));
  EXPECT_EQ(stats().used_bytes, before.used_bytes);
}

TEST(Memory, LeaksAreListedByPurpose) {
  EXPECT_EQ(leak_report(), "");
  void* weight = nullptr;
  void* cache = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc_purpose(&weight, 100, "q_proj_weight")));
  ASSERT_TRUE(succeeded(deepgemm_malloc_purpose(&cache, 200, "kv_cache")));
  const std::string report = leak_report();
  const size_t first = report.find("100 bytes for 'q_proj_weight' (weights)");
  const size_t second = report.find("200 bytes for 'kv_cache' (cache)");
  EXPECT_NE(first, std::string::npos) << report;
  EXPECT_NE(second, std::string::npos) << report;
  EXPECT_LT(first, second) << "oldest first";
  EXPECT_TRUE(succeeded(deepgemm_free(weight)));
  EXPECT_TRUE(succeeded(deepgemm_free(cache)));
  EXPECT_EQ(leak_report(), "");
}

TEST(Memory, OperandsGetTheBytesOfTheirLayout) {
  gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
  intent.layout_b.physical_layout = LAYOUT_BLOCKED_16x16;
  constexpr int64_t kM = 3, kN = 17, kK = 40;
  size_t padded = 0;
  gemm_layout_t stored = intent.layout_b;
  stored.logical_shape[0] = 1;
  stored.logical_shape[1] = kN;
  stored.logical_shape[2] = kK;
  ASSERT_TRUE(succeeded(deepgemm_layout_bytes(&stored, PRECISION_FP32, &padded)));
  EXPECT_EQ(padded, size_t{32} * 48 * 4);
  const size_t before = stats().used_bytes;
  void* memory = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc_operand(&memory, &intent, GEMM_OPERAND_B, kM, kN, kK)));
  EXPECT_GE(stats().used_bytes - before, padded);
  std::memset(memory, 0, padded);
  EXPECT_TRUE(succeeded(deepgemm_free(memory)));

  intent = {};
  intent.numerical_contract.input_precision = PRECISION_INT4;
  intent.operation = GEMM_OP_NT;
  EXPECT_TRUE(failed(deepgemm_malloc_operand(&memory, &intent, GEMM_OPERAND_B, kM, kN, kK),
                     DEEPGEMM_ERROR_UNSUPPORTED, "deepgemm_pack_weights"));
}

TEST(Memory, CopiesBothWays) {
  const std::vector<float> source = {1, 2, 3};
  std::vector<float> back(3);
  float* memory = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc(&memory, 12)));
  EXPECT_TRUE(succeeded(deepgemm_copy(memory, source.data(), 12)));
  EXPECT_TRUE(succeeded(deepgemm_copy(back.data(), memory, 12)));
  EXPECT_EQ(back, source);
  EXPECT_TRUE(succeeded(deepgemm_copy(nullptr, nullptr, 0)));
  EXPECT_TRUE(succeeded(deepgemm_free(memory)));
}

// No launch allocates: neither from the pool nor from the heap, in any precision.
TEST(Memory, LaunchesTakeNone) {
  struct Case {
    const char* name;
    gemm_precision_t input;
    bool packed;
  };
  constexpr int64_t kM = 70, kN = 130, kK = 300;
  for (const Case& each : {Case{"fp32", PRECISION_FP32, false}, Case{"bf16", PRECISION_BF16, false},
                           Case{"int8", PRECISION_INT8, false}, Case{"int4", PRECISION_INT4, true},
                           Case{"fp8", PRECISION_FP8_E4M3, false}}) {
    SCOPED_TRACE(each.name);
    gemm_intent_t intent = {};
    intent.operation = GEMM_OP_NT;
    intent.numerical_contract.input_precision = each.input;
    intent.numerical_contract.output_precision = PRECISION_FP32;
    intent.device = "cpu";
    const gemm_precision_t a_format = each.packed ? PRECISION_FP16 : each.input;
    if (each.packed) intent.numerical_contract.activation_precision = a_format;
    const PlanOwner owner(intent, kM, kN, kK);
    auto b = random_elements(each.packed ? PRECISION_FP16 : each.input, kN * kK, 1);
    const auto a = random_elements(a_format, kM * kK, 2);
    std::vector<float> c(kM * kN);
    deepgemm_packed_weights_t* packed = nullptr;
    if (each.packed) {
      deepgemm_weight_tensors_t tensors = {};
      tensors.precision = PRECISION_FP16;
      tensors.in_features = kK;
      tensors.out_features = kN;
      tensors.weight = b.data();
      ASSERT_TRUE(succeeded(deepgemm_pack_weights(&packed, &owner.plan, &tensors)));
    }
    const void* const operand = packed != nullptr ? static_cast<const void*>(packed) : b.data();
    const deepgemm_pool_stats_t pool_before = stats();
    const int64_t before = heap_allocations();
    deepgemm_status_t status = DEEPGEMM_SUCCESS;
    for (int i = 0; i < 5 && status == DEEPGEMM_SUCCESS; ++i) {
      status = deepgemm_launch_plan(&owner.plan, a.data(), operand, c.data());
    }
    if (!build_config::kEnableDebugTracing) {  // a traced launch keeps an event
      EXPECT_EQ(heap_allocations() - before, 0);
    }
    EXPECT_TRUE(succeeded(status));
    EXPECT_EQ(stats().total_allocations, pool_before.total_allocations);
    EXPECT_EQ(stats().reserved_bytes, pool_before.reserved_bytes);
    EXPECT_TRUE(succeeded(deepgemm_destroy_packed_weights(&packed)));
  }
}

}  // namespace
}  // namespace deepgemm::api_test
