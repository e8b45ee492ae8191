// What host code costs: plans from the cache and cold, and the launch around a tiny product.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "deepgemm/deepgemm.h"

namespace {

gemm_intent_t intent_of(gemm_precision_t precision) {
  gemm_intent_t intent = {};
  intent.operation = GEMM_OP_NT;
  intent.numerical_contract.input_precision = precision;
  intent.device = "cpu";
  return intent;
}

void check(benchmark::State& state, deepgemm_status_t status) {
  if (status != DEEPGEMM_SUCCESS) state.SkipWithError(deepgemm_last_error());
}

void create_plan_from_cache(benchmark::State& state) {
  const gemm_intent_t intent = intent_of(PRECISION_FP16);
  gemm_plan_t plan;
  for (auto _ : state) {
    check(state, deepgemm_create_plan(&plan, &intent, 1, 4096, 4096));
    check(state, deepgemm_destroy_plan(&plan));
  }
}
BENCHMARK(create_plan_from_cache);
BENCHMARK(create_plan_from_cache)->Threads(2);

// A beta that was never seen gives a plan that the cache does not have.
void create_plan_cold(benchmark::State& state) {
  gemm_intent_t intent = intent_of(static_cast<gemm_precision_t>(state.range(0)));
  intent.numerical_contract.output_precision = PRECISION_FP16;
  static double beta = 1;
  gemm_plan_t plan;
  for (auto _ : state) {
    beta += 1e-6;
    intent.beta = beta;
    check(state, deepgemm_create_plan(&plan, &intent, 17, 4096, 4096));
    check(state, deepgemm_destroy_plan(&plan));
  }
}
BENCHMARK(create_plan_cold)->Arg(PRECISION_FP32)->Arg(PRECISION_FP16)->Arg(PRECISION_INT4);

void plan_for_h200_cold(benchmark::State& state) {
  gemm_intent_t intent = intent_of(PRECISION_BF16);
  intent.device = "h200";
  static double beta = 1;
  gemm_plan_t plan;
  for (auto _ : state) {
    beta += 1e-6;
    intent.beta = beta;
    check(state, deepgemm_create_plan(&plan, &intent, 17, 4096, 4096));
    check(state, deepgemm_destroy_plan(&plan));
  }
}
BENCHMARK(plan_for_h200_cold);

void launch_one_element(benchmark::State& state) {
  const gemm_intent_t intent = intent_of(PRECISION_FP32);
  gemm_plan_t plan;
  check(state, deepgemm_create_plan(&plan, &intent, 1, 1, 1));
  const float a = 2, b = 3;
  float c = 0;
  for (auto _ : state) check(state, deepgemm_launch_plan(&plan, &a, &b, &c));
  check(state, deepgemm_destroy_plan(&plan));
}
BENCHMARK(launch_one_element);

}  // namespace
