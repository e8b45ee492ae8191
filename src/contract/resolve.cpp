#include <algorithm>
#include <array>

#include "base/formats.hpp"
#include "base/raw_value.hpp"
#include "contract/contract.hpp"

namespace deepgemm::contract {
namespace {

using base::Error;
using base::make_error;
using base::Result;

constexpr auto kInvalid = DEEPGEMM_ERROR_INVALID_ARGUMENT;
constexpr std::array<double, 4> kFailureProbability = {1e-9, 1e-6, 1e-4, 1e-2};

const char* format_name(gemm_precision_t precision) { return base::find_format(precision)->name; }

bool is_quantised(gemm_precision_t precision) {
  return base::is_int4(precision) || base::is_fp8(precision) || precision == PRECISION_INT8;
}

Result<void> check_enum(const char* field, int value, int last) {
  if (value >= 0 && value <= last) return {};
  return make_error(kInvalid, "{} is {}: known values are 0 to {}", field, value, last);
}

Result<void> check_enums(const numerical_contract_t& c) {
  struct Field {
    const char* name;
    int value;
    int last;
  };
  const Field fields[] = {
      {"input_precision", base::raw_value(c.input_precision), PRECISION_INT4_GPTQ},
      {"output_precision", base::raw_value(c.output_precision), PRECISION_INT4_GPTQ},
      {"activation_precision", base::raw_value(c.activation_precision), PRECISION_INT4_GPTQ},
      {"weight_precision", base::raw_value(c.weight_precision), PRECISION_INT4_GPTQ},
      {"error_model", base::raw_value(c.error_model), ERROR_MODEL_ABSOLUTE_EPSILON},
      {"outlier_handling", base::raw_value(c.outlier_handling), OUTLIER_FP16_CHANNEL},
      {"dequant_strategy", base::raw_value(c.dequant_strategy), DEQUANT_STRATEGY_BLOCK_128},
      {"reproducibility", base::raw_value(c.reproducibility), REPRODUCIBILITY_BATCH_INVARIANT},
      {"bound_basis", base::raw_value(c.bound_basis), BOUND_BASIS_PROBABILISTIC},
  };
  for (const Field& field : fields) DEEPGEMM_TRY(check_enum(field.name, field.value, field.last));
  for (const int64_t reserved : c.reserved) {
    if (reserved != 0) {
      return make_error(kInvalid,
                        "numerical_contract.reserved holds {}: reserved fields must be zero; "
                        "zero-initialise the contract",
                        reserved);
    }
  }
  return {};
}

Result<void> check_numbers(const numerical_contract_t& c) {
  struct Field {
    const char* name;
    double value;
    double last;
    const char* rule;
  };
  constexpr double kMax = 1.7976931348623157e308;
  const Field fields[] = {
      {"max_relative_error", c.max_relative_error, kMax, "finite and not negative"},
      {"max_absolute_error", c.max_absolute_error, kMax, "finite and not negative"},
      {"max_abs_a", c.max_abs_a, kMax, "finite and not negative"},
      {"max_abs_b", c.max_abs_b, kMax, "finite and not negative"},
      {"outlier_fraction", c.outlier_fraction, 0.5, "between 0 and 0.5"},
      {"skip_tolerance", c.skip_tolerance, 1, "between 0 and 1"},
      {"confidence", c.confidence, 1, "between 0 and 1"},
  };
  for (const Field& field : fields) {
    // Written so that NaN fails.
    if (!(field.value >= 0 && field.value <= field.last)) {
      return make_error(kInvalid, "{} is {}: it must be {} (0: not given)", field.name, field.value,
                        field.rule);
    }
  }
  if (c.confidence >= 1) {
    return make_error(kInvalid,
                      "confidence is {}: a probabilistic bound needs a value below 1; ask for "
                      "certainty with bound_basis BOUND_BASIS_WORST_CASE",
                      c.confidence);
  }
  return {};
}

Result<void> fill_activations(const numerical_contract_t& c, Contract& contract) {
  const bool int4 = base::is_int4(contract.b);
  contract.a = c.activation_precision;
  if (contract.a == PRECISION_DEFAULT && !base::is_int4(c.input_precision))
    contract.a = c.input_precision;
  if (contract.a == PRECISION_DEFAULT && int4) {
    const bool from_output =
        c.output_precision == PRECISION_FP32 || c.output_precision == PRECISION_TF32 ||
        c.output_precision == PRECISION_FP16 || c.output_precision == PRECISION_BF16;
    contract.a = from_output ? c.output_precision : PRECISION_FP16;
  }
  if (contract.a == PRECISION_DEFAULT) contract.a = PRECISION_FP32;
  if (base::is_int4(contract.a)) {
    return make_error(kInvalid,
                      "activation_precision is {}: INT4 is for weights only; set it to FP16, BF16, "
                      "FP32, INT8 or FP8",
                      format_name(contract.a));
  }
  if (int4 && contract.a == PRECISION_FP64) {
    return make_error(kInvalid,
                      "activation_precision is fp64 with {} weights: INT4 weights take FP16, BF16, "
                      "FP32, INT8 or FP8 activations",
                      format_name(contract.b));
  }
  return {};
}

// Storage of A, B and C. TF32 is an arithmetic on FP32 storage.
Result<void> fill_precisions(const numerical_contract_t& c, Contract& contract) {
  contract.b = c.weight_precision != PRECISION_DEFAULT ? c.weight_precision : c.input_precision;
  if (contract.b == PRECISION_DEFAULT) contract.b = PRECISION_FP32;
  if (base::is_int4(c.input_precision) && !base::is_int4(contract.b)) {
    return make_error(kInvalid,
                      "input_precision is {} but weight_precision is {}: INT4 as input means INT4 "
                      "weights; leave weight_precision out, or give the activations' format as "
                      "input_precision",
                      format_name(c.input_precision), format_name(contract.b));
  }
  DEEPGEMM_TRY(fill_activations(c, contract));
  contract.output = c.output_precision;
  if (contract.output == PRECISION_DEFAULT) {
    const gemm_precision_t input =
        c.input_precision == PRECISION_DEFAULT ? contract.a : c.input_precision;
    contract.output = input == PRECISION_INT8                       ? PRECISION_FP32
                      : base::is_int4(input) || base::is_fp8(input) ? PRECISION_FP16
                                                                    : input;
  }
  if (base::find_format(contract.output)->is_integer) {
    return make_error(
        kInvalid,
        "output_precision is {}: an integer output needs an output scale, which is not "
        "built yet; use FP32, FP16, BF16 or FP8",
        format_name(contract.output));
  }
  contract.tf32_allowed = c.input_precision == PRECISION_TF32 || contract.a == PRECISION_TF32;
  for (gemm_precision_t* stored : {&contract.a, &contract.b, &contract.output}) {
    if (*stored == PRECISION_TF32) *stored = PRECISION_FP32;
  }
  return {};
}

Result<void> fill_limits(const numerical_contract_t& c, Contract& contract) {
  if (c.error_model == ERROR_MODEL_RELATIVE_EPSILON && c.max_relative_error == 0) {
    return make_error(
        kInvalid,
        "error_model is RELATIVE_EPSILON but max_relative_error is 0: give the limit, or "
        "use ERROR_MODEL_DEFAULT for a contract without one");
  }
  if (c.error_model == ERROR_MODEL_ABSOLUTE_EPSILON && c.max_absolute_error == 0) {
    return make_error(
        kInvalid,
        "error_model is ABSOLUTE_EPSILON but max_absolute_error is 0: give the limit, or "
        "use ERROR_MODEL_DEFAULT for a contract without one");
  }
  if (c.error_model != ERROR_MODEL_ABSOLUTE_EPSILON)
    contract.max_relative_error = c.max_relative_error;
  if (c.error_model != ERROR_MODEL_RELATIVE_EPSILON)
    contract.max_absolute_error = c.max_absolute_error;
  contract.native = contract.max_relative_error == 0 && contract.max_absolute_error == 0;
  return {};
}

Result<void> fill_basis(const numerical_contract_t& c, int reliability_level, Contract& contract) {
  if (reliability_level < 0 || reliability_level > 3) {
    return make_error(kInvalid, "reliability_level is {}: known levels are 0 to 3",
                      reliability_level);
  }
  if (c.bound_basis == BOUND_BASIS_WORST_CASE) {
    if (c.confidence != 0) {
      return make_error(kInvalid,
                        "confidence is {} but bound_basis is WORST_CASE, which always holds: leave "
                        "confidence out or use BOUND_BASIS_PROBABILISTIC",
                        c.confidence);
    }
    return {};
  }
  contract.confidence = c.confidence > 0
                            ? c.confidence
                            : 1 - kFailureProbability[static_cast<size_t>(reliability_level)];
  return {};
}

Result<void> fill_strategy(const numerical_contract_t& c, Contract& contract) {
  contract.dequant_strategy = c.dequant_strategy;
  const bool int4 = base::is_int4(contract.b);
  if (!is_quantised(contract.a) && !is_quantised(contract.b)) {
    if (c.dequant_strategy == DEQUANT_STRATEGY_DEFAULT) return {};
    return make_error(
        kInvalid,
        "dequant_strategy is given but neither A ({}) nor B ({}) is quantised: leave it "
        "out, or declare INT8, FP8 or INT4 operands",
        format_name(contract.a), format_name(contract.b));
  }
  if (int4 && c.dequant_strategy == DEQUANT_STRATEGY_BLOCK_128) {
    return make_error(
        kInvalid,
        "dequant_strategy BLOCK_128 with {} weights: INT4 scales lie along K only; use "
        "PER_GROUP with quantization_group_size 128",
        format_name(contract.b));
  }
  if (c.dequant_strategy == DEQUANT_STRATEGY_DEFAULT) {
    const bool int8 = contract.b == PRECISION_INT8 || (!int4 && contract.a == PRECISION_INT8);
    contract.dequant_strategy = int4   ? DEQUANT_STRATEGY_PER_GROUP
                                : int8 ? DEQUANT_STRATEGY_PER_CHANNEL
                                       : DEQUANT_STRATEGY_BLOCK_128;
  }
  return {};
}

// Groups longer than K are one group.
Result<void> fill_groups(const numerical_contract_t& c, int64_t k, Contract& contract) {
  constexpr std::array<int64_t, 6> kLegal = {-1, 16, 32, 64, 128, 256};
  const int64_t declared = c.quantization_group_size;
  const int64_t whole = std::max<int64_t>(k, 1);
  const bool known = declared == 0 || declared == k || std::ranges::count(kLegal, declared) > 0;
  if (!known) {
    return make_error(
        kInvalid,
        "quantization_group_size is {}: known sizes are -1 (whole K), 16, 32, 64, 128, "
        "256 and K ({})",
        declared, k);
  }
  switch (contract.dequant_strategy) {
    case DEQUANT_STRATEGY_DEFAULT:
      if (declared == 0) return {};
      return make_error(kInvalid,
                        "quantization_group_size is {} but no operand is quantised: leave it 0",
                        declared);
    case DEQUANT_STRATEGY_PER_GROUP: {
      const int64_t size = declared == 0 ? 128 : declared;
      contract.group_size = size == -1 ? whole : std::min(size, whole);
      return {};
    }
    case DEQUANT_STRATEGY_BLOCK_128:
      if (declared == 0 || declared == 128) {
        contract.group_size = 128;
        return {};
      }
      break;
    case DEQUANT_STRATEGY_PER_TENSOR:
    case DEQUANT_STRATEGY_PER_CHANNEL:
    case DEQUANT_STRATEGY_PER_CHANNEL_DYNAMIC:
      if (declared == 0 || declared == -1 || declared == k) {
        contract.group_size = whole;
        return {};
      }
      break;
  }
  return make_error(
      kInvalid,
      "quantization_group_size is {} but dequant_strategy {} fixes it: leave it 0, or "
      "use DEQUANT_STRATEGY_PER_GROUP",
      declared, static_cast<int>(contract.dequant_strategy));
}

Result<void> fill_outliers(const numerical_contract_t& c, Contract& contract) {
  contract.outlier_handling = c.outlier_handling;
  if (c.outlier_handling != OUTLIER_NONE && !base::is_int4(contract.b)) {
    return make_error(
        kInvalid,
        "outlier_handling is given but the weights are {}: it applies to INT4 weights "
        "only; use OUTLIER_NONE",
        format_name(contract.b));
  }
  if (c.outlier_handling == OUTLIER_FP16_CHANNEL) {
    contract.outlier_fraction = c.outlier_fraction > 0 ? c.outlier_fraction : 0.01;
  } else if (c.outlier_fraction > 0) {
    return make_error(
        kInvalid,
        "outlier_fraction is {} but no channel is kept in FP16: set outlier_handling to "
        "OUTLIER_FP16_CHANNEL or leave the fraction 0",
        c.outlier_fraction);
  }
  return {};
}

}  // namespace

Result<Contract> resolve(const numerical_contract_t& declared, int reliability_level, int64_t k) {
  if (k < 0) return make_error(kInvalid, "K is {}: it must not be negative", k);
  DEEPGEMM_TRY(check_enums(declared));
  DEEPGEMM_TRY(check_numbers(declared));
  Contract contract;
  DEEPGEMM_TRY(fill_precisions(declared, contract));
  DEEPGEMM_TRY(fill_limits(declared, contract));
  DEEPGEMM_TRY(fill_basis(declared, reliability_level, contract));
  DEEPGEMM_TRY(fill_strategy(declared, contract));
  DEEPGEMM_TRY(fill_groups(declared, k, contract));
  DEEPGEMM_TRY(fill_outliers(declared, contract));
  contract.safe_accumulation = declared.safe_accumulation;
  contract.reproducibility = declared.reproducibility;
  contract.max_abs_a = declared.max_abs_a;
  contract.max_abs_b = declared.max_abs_b;
  contract.skip_tolerance = declared.skip_tolerance;
  contract.seed = declared.seed;
  return contract;
}

}  // namespace deepgemm::contract
