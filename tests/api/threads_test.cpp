// Many threads plan, launch, pack and free at once; every result is right.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support.hpp"

namespace deepgemm::api_test {
namespace {

constexpr int kThreads = 32;

// Runs `body(seed)` in all threads and collects what went wrong; gtest's own macros would
// serialise.
void run_threads(int threads, const std::function<std::string(unsigned)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back(
        [&, i] { errors[static_cast<size_t>(i)] = body(static_cast<unsigned>(i + 1)); });
  }
  for (std::thread& thread : running) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

std::string last_error(const char* call) {
  return std::string(call) + ": " + deepgemm_last_error();
}

// Small integers: every sum is exact, so that results must be equal.
std::vector<float> integers(std::mt19937& random, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 7) - 3;
  return values;
}

bool is_product(const std::vector<float>& a, const std::vector<float>& b,
                const std::vector<float>& c, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(j * k + p)];
      }
      if (c[static_cast<size_t>(i * n + j)] != sum) return false;
    }
  }
  return true;
}

TEST(Threads, CreateLaunchAndDestroyRandomShapes) {
  run_threads(kThreads, [](unsigned seed) -> std::string {
    std::mt19937 random(seed);
    for (int round = 0; round < 25; ++round) {
      // Few shapes, so that threads meet in the cache; some large enough for several tiles.
      const int64_t m = 1 + random() % 40, n = 1 + random() % 4 * 37, k = 1 + random() % 3 * 50;
      const auto a = integers(random, m * k), b = integers(random, n * k);
      std::vector<float> c(static_cast<size_t>(m * n), -1);
      const gemm_intent_t intent = fp32_intent(GEMM_OP_NT);
      gemm_plan_t plan;
      if (deepgemm_create_plan(&plan, &intent, m, n, k) != DEEPGEMM_SUCCESS) {
        return last_error("create");
      }
      if (deepgemm_launch_plan(&plan, a.data(), b.data(), c.data()) != DEEPGEMM_SUCCESS) {
        return last_error("launch");
      }
      if (!is_product(a, b, c, m, n, k)) return "wrong product";
      if (deepgemm_destroy_plan(&plan) != DEEPGEMM_SUCCESS) return last_error("destroy");
    }
    return "";
  });
}

TEST(Threads, LaunchOnePlanAtOnceWithAndWithoutOwnWorkspace) {
  constexpr int64_t kM = 33, kN = 65, kK = 70;
  const PlanOwner owner(fp32_intent(GEMM_OP_NT), kM, kN, kK);
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&owner.plan, &info)));
  run_threads(8, [&](unsigned seed) -> std::string {
    std::mt19937 random(seed);
    void* workspace = nullptr;
    if (deepgemm_malloc_purpose(&workspace, info.workspace_bytes, "workspace") !=
        DEEPGEMM_SUCCESS) {
      return last_error("malloc");
    }
    for (int round = 0; round < 20; ++round) {
      const auto a = integers(random, kM * kK), b = integers(random, kN * kK);
      std::vector<float> c(kM * kN, -1);
      gemm_launch_args_t args = {};
      args.A = a.data();
      args.B = b.data();
      args.C = c.data();
      if (random() % 2 == 0) {
        args.workspace = workspace;
        args.workspace_bytes = info.workspace_bytes;
      }
      if (deepgemm_launch_plan_args(&owner.plan, &args) != DEEPGEMM_SUCCESS) {
        return last_error("launch");
      }
      if (!is_product(a, b, c, kM, kN, kK)) return "wrong product";
    }
    return deepgemm_free(workspace) == DEEPGEMM_SUCCESS ? "" : last_error("free");
  });
}

TEST(Threads, VerifyExplainAndPrepareAtOnce) {
  constexpr int64_t kM = 5, kN = 8, kK = 16;
  const PlanOwner owner(fp32_intent(GEMM_OP_NT), kM, kN, kK);
  run_threads(8, [&](unsigned seed) -> std::string {
    std::mt19937 random(seed);
    const auto a = integers(random, kM * kK), b = integers(random, kN * kK);
    std::vector<float> c(kM * kN);
    gemm_launch_args_t args = {};
    args.A = a.data();
    args.B = b.data();
    args.C = c.data();
    const gemm_intent_t intent = fp32_intent(GEMM_OP_NN);
    for (int round = 0; round < 10; ++round) {
      deepgemm_verification_t verification;
      if (deepgemm_verify_plan(&owner.plan, &args, &verification) != DEEPGEMM_SUCCESS) {
        return last_error("verify");
      }
      if (!verification.contract_kept || verification.max_absolute_error != 0) return "not exact";
      std::vector<char> text(1 << 20);
      if (deepgemm_explain_plan(&owner.plan, DEEPGEMM_EXPLAIN_JSON, text.data(), text.size(),
                                nullptr) != DEEPGEMM_SUCCESS) {
        return last_error("explain");
      }
      const deepgemm_shape_t shape = {64, 32 + static_cast<int64_t>(random() % 3), 32};
      if (deepgemm_prepare(&intent, &shape, 1, nullptr) != DEEPGEMM_SUCCESS) {
        return last_error("prepare");
      }
    }
    return "";
  });
}

TEST(Threads, PackAndDestroyWeightsWhileOthersLaunch) {
  constexpr int64_t kM = 3, kN = 40, kK = 64;
  gemm_intent_t intent = {};
  intent.operation = GEMM_OP_NT;
  intent.numerical_contract.input_precision = PRECISION_INT4;
  intent.numerical_contract.activation_precision = PRECISION_FP32;
  intent.numerical_contract.output_precision = PRECISION_FP32;
  intent.device = "cpu";
  const PlanOwner owner(intent, kM, kN, kK);
  const auto weights = random_elements(PRECISION_FP32, kN * kK, 1);
  const auto a = random_elements(PRECISION_FP32, kM * kK, 2);
  auto copy = weights;
  const PackedOwner reference(owner.plan, copy, PRECISION_FP32, kK, kN);
  std::vector<float> expected(kM * kN);
  ASSERT_TRUE(
      succeeded(deepgemm_launch_plan(&owner.plan, a.data(), reference.packed, expected.data())));
  run_threads(8, [&](unsigned) -> std::string {
    for (int round = 0; round < 10; ++round) {
      auto own = weights;
      deepgemm_weight_tensors_t tensors = {};
      tensors.precision = PRECISION_FP32;
      tensors.in_features = kK;
      tensors.out_features = kN;
      tensors.weight = own.data();
      deepgemm_packed_weights_t* packed = nullptr;
      if (deepgemm_pack_weights(&packed, &owner.plan, &tensors) != DEEPGEMM_SUCCESS) {
        return last_error("pack");
      }
      std::vector<float> c(kM * kN, -1);
      if (deepgemm_launch_plan(&owner.plan, a.data(), packed, c.data()) != DEEPGEMM_SUCCESS) {
        return last_error("launch");
      }
      if (c != expected) return "wrong product";
      if (deepgemm_destroy_packed_weights(&packed) != DEEPGEMM_SUCCESS) {
        return last_error("destroy");
      }
    }
    return "";
  });
}

TEST(Threads, MemoryComesAndGoesEverywhere) {
  deepgemm_pool_stats_t before = {}, after = {};
  ASSERT_TRUE(succeeded(deepgemm_get_pool_stats(&before)));
  run_threads(8, [](unsigned seed) -> std::string {
    std::mt19937 random(seed);
    std::vector<unsigned char*> live;
    for (int round = 0; round < 500; ++round) {
      if (live.size() < 10) {
        unsigned char* memory = nullptr;
        if (deepgemm_malloc(&memory, 1 + random() % 100000) != DEEPGEMM_SUCCESS) {
          return last_error("malloc");
        }
        *memory = static_cast<unsigned char>(seed);
        live.push_back(memory);
      } else {
        std::swap(live[random() % live.size()], live.back());
        if (*live.back() != static_cast<unsigned char>(seed)) return "shared memory";
        if (deepgemm_free(live.back()) != DEEPGEMM_SUCCESS) return last_error("free");
        live.pop_back();
      }
    }
    for (unsigned char* memory : live) {
      if (deepgemm_free(memory) != DEEPGEMM_SUCCESS) return last_error("free");
    }
    return "";
  });
  ASSERT_TRUE(succeeded(deepgemm_get_pool_stats(&after)));
  EXPECT_EQ(after.live_allocations, before.live_allocations);
  EXPECT_EQ(after.used_bytes, before.used_bytes);
}

}  // namespace
}  // namespace deepgemm::api_test
