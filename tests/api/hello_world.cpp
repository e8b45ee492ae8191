// The first program with DeepGEMM in C++: plan and intent by reference, typed pointers without
// casts.
#include <cmath>
#include <cstdio>

#include "deepgemm/deepgemm.h"

namespace {

constexpr int kM = 3;
constexpr int kN = 4;
constexpr int kK = 5;

int failed(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, deepgemm_last_error());
  return 1;
}

// C = A * B^T, as GEMM_OP_NT declares.
bool is_right(const float* A, const float* B, const float* C) {
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      double sum = 0;
      for (int k = 0; k < kK; ++k) sum += double{A[i * kK + k]} * B[j * kK + k];
      if (!(std::abs(C[i * kN + j] - sum) <= 1e-3 * std::abs(sum))) return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  const gemm_intent_t intent = {.operation = GEMM_OP_NT,
                                .alpha = 1.0,
                                .beta = 0.0,
                                .numerical_contract = get_llm_contract(),
                                .tiling_policy = TILING_POLICY_BALANCED};
  float* A = nullptr;
  float* B = nullptr;
  float* C = nullptr;
  if (deepgemm_malloc(&A, kM * kK * sizeof(float)) != DEEPGEMM_SUCCESS) return failed("A");
  if (deepgemm_malloc(&B, kN * kK * sizeof(float)) != DEEPGEMM_SUCCESS) return failed("B");
  if (deepgemm_malloc(&C, kM * kN * sizeof(float)) != DEEPGEMM_SUCCESS) return failed("C");
  for (int i = 0; i < kM * kK; ++i) A[i] = 0.5f + static_cast<float>(i);
  for (int i = 0; i < kN * kK; ++i) B[i] = 1.0f / static_cast<float>(i + 1);

  gemm_plan_t plan;
  if (deepgemm_create_plan(plan, intent, kM, kN, kK) != DEEPGEMM_SUCCESS) return failed("create");
  if (deepgemm_launch_plan(plan, A, B, C) != DEEPGEMM_SUCCESS) return failed("launch");
  if (!is_right(A, B, C)) {
    std::fprintf(stderr, "the product is wrong\n");
    return 1;
  }
  if (deepgemm_destroy_plan(plan) != DEEPGEMM_SUCCESS) return failed("destroy");
  if (deepgemm_free(A) != DEEPGEMM_SUCCESS) return failed("free A");
  if (deepgemm_free(B) != DEEPGEMM_SUCCESS) return failed("free B");
  if (deepgemm_free(C) != DEEPGEMM_SUCCESS) return failed("free C");
  return 0;
}
