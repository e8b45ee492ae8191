// The resolved numerical contract, the admissibility rule and the certificate of a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "contract/bound.hpp"
#include "deepgemm/types.h"

namespace deepgemm::contract {

// numerical_contract_t with every default filled in.
struct Contract {
  gemm_precision_t a = PRECISION_FP32;  // storage of A, B, C
  gemm_precision_t b = PRECISION_FP32;
  gemm_precision_t output = PRECISION_FP32;
  bool safe_accumulation = false;
  double max_relative_error = 0;  // 0: no relative limit
  double max_absolute_error = 0;  // 0: no absolute limit
  bool native = false;            // no limit given: no operand rounding, sums at least FP32
  bool tf32_allowed = false;      // input_precision TF32: rounding operands to TF32 is native
  gemm_outlier_handling_t outlier_handling = OUTLIER_NONE;
  gemm_dequant_strategy_t dequant_strategy = DEQUANT_STRATEGY_DEFAULT;
  int64_t group_size = 0;  // along K; K for one group
  double outlier_fraction = 0;
  gemm_reproducibility_t reproducibility = REPRODUCIBILITY_NONE;
  double confidence = 0;  // 0: worst case demanded
  double max_abs_a = 0;   // 0: not declared
  double max_abs_b = 0;
  double skip_tolerance = 0;
  uint64_t seed = 0;

  bool operator==(const Contract&) const = default;
};

// Fills defaults and refuses NaN, negative limits, unknown enum values, contradictions.
base::Result<Contract> resolve(const numerical_contract_t& declared, int reliability_level,
                               int64_t k);

// What a plan promises and, after verification, what was measured.
struct Certificate {
  ErrorBound bound;
  double relative_limit = 0;  // the contract's; 0: none
  double absolute_limit = 0;
  // An absolute limit holds while (|A||B|)_ij stays at or below this magnitude; 0: unconditional or
  // no absolute limit. With declared max_abs_a and max_abs_b the condition is met by declaration.
  double magnitude_limit = 0;
  std::optional<double> measured_relative;
  std::optional<double> measured_absolute;
};

// Certificate when the bound meets the contract, else CONTRACT_UNMET with the first limit missed,
// the figure reached and the nearest change that would help.
base::Result<Certificate> admit(const Contract& contract, const Path& path, const ErrorBound& bound,
                                int64_t k);

}  // namespace deepgemm::contract
