/* The first program with DeepGEMM: declare, plan, launch, check. */
#include <math.h>
#include <stdio.h>

#include "deepgemm/deepgemm.h"

enum { M = 3, N = 4, K = 5 };

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, deepgemm_last_error());
  return 1;
}

static int check(const float* A, const float* B, const float* C) {
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) {
      double sum = 0;
      for (int k = 0; k < K; ++k) sum += (double)A[i * K + k] * B[k * N + j];
      if (!(fabs(C[i * N + j] - sum) <= 1e-3 * fabs(sum))) {
        fprintf(stderr, "C[%d][%d] is %g, not %g\n", i, j, C[i * N + j], sum);
        return 1;
      }
    }
  }
  return 0;
}

int main(void) {
  const gemm_intent_t intent = {.operation = GEMM_OP_NN,
                                .alpha = 1.0,
                                .beta = 0.0,
                                .numerical_contract = get_llm_contract(),
                                .tiling_policy = TILING_POLICY_BALANCED};
  void *a = NULL, *b = NULL, *c = NULL;
  if (deepgemm_malloc(&a, M * K * sizeof(float)) != DEEPGEMM_SUCCESS ||
      deepgemm_malloc(&b, K * N * sizeof(float)) != DEEPGEMM_SUCCESS ||
      deepgemm_malloc(&c, M * N * sizeof(float)) != DEEPGEMM_SUCCESS) {
    return failed("deepgemm_malloc");
  }
  float *A = a, *B = b, *C = c;
  for (int i = 0; i < M * K; ++i) A[i] = 0.5f + (float)i;
  for (int i = 0; i < K * N; ++i) B[i] = 1.0f / (float)(i + 1);

  gemm_plan_t plan;
  if (deepgemm_create_plan(&plan, &intent, M, N, K) != DEEPGEMM_SUCCESS) {
    return failed("deepgemm_create_plan");
  }
  if (deepgemm_launch_plan(&plan, A, B, C) != DEEPGEMM_SUCCESS) {
    return failed("deepgemm_launch_plan");
  }
  if (check(A, B, C) != 0) return 1;
  if (deepgemm_destroy_plan(&plan) != DEEPGEMM_SUCCESS) return failed("deepgemm_destroy_plan");
  deepgemm_free(A);
  deepgemm_free(B);
  deepgemm_free(C);
  return 0;
}
