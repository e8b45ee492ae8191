// "Ready-made values" of deepgemm.h.
#include "deepgemm/deepgemm.h"

numerical_contract_t get_llm_contract(void) {
  numerical_contract_t contract = {};
  contract.input_precision = PRECISION_FP32;
  contract.output_precision = PRECISION_FP32;
  contract.error_model = ERROR_MODEL_RELATIVE_EPSILON;
  contract.max_relative_error = 1e-3;
  return contract;
}

gemm_tiling_policy_t get_optimal_policy_for_a100(void) {
  gemm_tiling_policy_t policy = {};
  policy.block_m = 128;
  policy.block_n = 128;
  policy.block_k = 32;
  policy.warp_m = 64;
  policy.warp_n = 64;
  return policy;
}

gemm_tiling_policy_t get_optimal_policy_for_h100(void) {
  gemm_tiling_policy_t policy = {};
  policy.block_m = 128;
  policy.block_n = 256;
  policy.block_k = 64;
  return policy;
}

gemm_tiling_policy_t get_tiling_policy_for_load(double load) {
  // Comparisons with NaN are false, so it ends in the last line as loads out of range do.
  if (load >= 0 && load < 0.4) return TILING_POLICY_AGGRESSIVE;
  if (load >= 0.4 && load < 0.7) return TILING_POLICY_BALANCED;
  return TILING_POLICY_CONSERVATIVE;
}
