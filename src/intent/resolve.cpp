#include <array>
#include <cmath>

#include "base/formats.hpp"
#include "base/raw_value.hpp"
#include "intent/problem.hpp"
#include "intent/words.hpp"

namespace deepgemm::intent {
namespace {

__extension__ using Wide = __int128;  // holds any product of two 63-bit values

constexpr int64_t kLargestWork = (int64_t{1} << 60) - 1;

template <class... Args>
base::Error invalid(fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

template <class Enum>
base::Result<void> check_enum(const char* field, const Enum& value, std::span<const Word> words) {
  const int number = base::raw_value(value);
  if (word_of(words, number) != nullptr) return {};
  return invalid("{} is {}, which is no value of its enumeration; give 0 ... {} ({}).", field,
                 number, words.back().value, list_words(words));
}

template <class T, size_t N>
base::Result<void> check_reserved(const char* field, const T (&values)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (values[i] == 0) continue;
    return invalid("{}[{}] is {}; reserved fields must be 0 (zero-initialise the struct).", field,
                   i, values[i]);
  }
  return {};
}

base::Result<void> check_enums(const gemm_intent_t& intent) {
  DEEPGEMM_TRY(check_enum("operation", intent.operation, operation_words()));
  DEEPGEMM_TRY(check_enum("role", intent.role, role_words()));
  DEEPGEMM_TRY(check_enum("epilogue.activation", intent.epilogue.activation, activation_words()));
  DEEPGEMM_TRY(
      check_enum("tiling_policy.l2_prefetch", intent.tiling_policy.l2_prefetch, prefetch_words()));
  DEEPGEMM_TRY(check_reserved("intent.reserved", intent.reserved));
  DEEPGEMM_TRY(check_reserved("tiling_policy.reserved", intent.tiling_policy.reserved));
  DEEPGEMM_TRY(check_reserved("epilogue.reserved", intent.epilogue.reserved));
  return check_reserved("numerical_contract.reserved", intent.numerical_contract.reserved);
}

// ---- Sizes
// ---------------------------------------------------------------------------------------

base::Result<void> check_sizes(int64_t batch, int64_t m, int64_t n, int64_t k) {
  struct Size {
    const char* name;
    int64_t value;
  };
  for (const Size& size : {Size{"M", m}, Size{"N", n}, Size{"K", k}}) {
    if (size.value >= 0) continue;
    return invalid("{} is {}; sizes are 0 or more: the nearest legal value is 0.", size.name,
                   size.value);
  }
  if (batch < 0) {
    return invalid("batch_count is {}; it is 1 or more, or 0 for 1: the nearest legal value is 0.",
                   batch);
  }
  Wide work = 1;
  for (const Size& size : {Size{"N", n}, Size{"K", k}, Size{"batch_count", batch}, Size{"M", m}}) {
    if (size.value == 0) continue;
    if (work * size.value > kLargestWork) {
      return invalid(
          "{} is {}; batch_count * M * N * K, zeros left out, must stay below 2^60, so that "
          "offsets in "
          "bytes fit 63 bits, and here M = {}, N = {}, K = {}, batch_count = {}: the nearest legal "
          "value "
          "of {} is {}.",
          size.name, size.value, m, n, k, batch, size.name,
          static_cast<int64_t>(kLargestWork / work));
    }
    work *= size.value;
  }
  return {};
}

base::Result<double> check_factor(const char* name, double value) {
  if (std::isfinite(value)) return value;
  return invalid("{} is {}; it must be finite: give 0 for its default.", name, value);
}

// ---- Groups
// --------------------------------------------------------------------------------------

base::Result<void> check_groups(const gemm_intent_t& intent) {
  const int kind = base::raw_value(intent.group_kind);
  if (kind < GEMM_GROUP_NONE || kind > GEMM_GROUP_K) {
    return invalid("group_kind is {}, which is no value of its enumeration; give 0 ... {}.", kind,
                   static_cast<int>(GEMM_GROUP_K));
  }
  if (kind == GEMM_GROUP_NONE && intent.group_count != 0) {
    return invalid("group_count is {}, but group_kind is GEMM_GROUP_NONE: give group_count 0.",
                   intent.group_count);
  }
  if (kind != GEMM_GROUP_NONE) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "group_kind is {}: grouped products are declared in the interface but not "
        "built yet. Make one plan and launch it once a group, with actual_m.",
        kind);
  }
  return {};
}

base::Result<void> check_outputs(const gemm_intent_t& intent, int64_t n) {
  const int32_t count = intent.output_count;
  if (count < 0 || count > 3) {
    return invalid(
        "output_count is {}; it is 0 or 1 for one output, or 3 for Q, K and V: the nearest "
        "legal value is {}.",
        count, count < 0 ? 0 : 3);
  }
  if (count > 1) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "output_count is {}: products with several outputs are declared in the "
        "interface but not built yet. Use one output of N = {} columns and split "
        "it by column, or one plan for each.",
        count, n);
  }
  for (int i = 0; i < 3; ++i) {
    const int64_t width = intent.output_widths[i];
    if (width == 0 || (count == 1 && i == 0 && width == n)) continue;
    return invalid("output_widths[{}] is {}, but there is one output of N = {} columns: give 0.", i,
                   width, n);
  }
  return {};
}

// ---- Tiling
// --------------------------------------------------------------------------------------

base::Result<void> check_tiling(const gemm_tiling_policy_t& tiling) {
  struct Edge {
    const char* axis;
    int32_t block, warp;
  };
  for (const Edge& edge :
       {Edge{"m", tiling.block_m, tiling.warp_m}, Edge{"n", tiling.block_n, tiling.warp_n},
        Edge{"k", tiling.block_k, tiling.warp_k}}) {
    if (edge.block < 0 || edge.warp < 0) {
      return invalid(
          "tiling_policy.{}_{} is {}; tiles are 1 or more, or 0 for a choice by the "
          "planner: the nearest legal value is 0.",
          edge.block < 0 ? "block" : "warp", edge.axis, edge.block < 0 ? edge.block : edge.warp);
    }
    if (edge.block == 0 || edge.warp == 0) continue;
    if (edge.warp > edge.block) {
      return invalid(
          "tiling_policy.warp_{0} is {1}, larger than block_{0}, which is {2}: the nearest "
          "legal value of warp_{0} is {2}.",
          edge.axis, edge.warp, edge.block);
    }
    if (edge.block % edge.warp != 0) {
      const int32_t below = edge.block / edge.warp * edge.warp;
      return invalid(
          "tiling_policy.block_{0} is {1}, which is no multiple of warp_{0}, {2}: the "
          "nearest legal values of block_{0} are {3} and {4}.",
          edge.axis, edge.block, edge.warp, below, int64_t{below} + edge.warp);
    }
  }
  if (tiling.sm_partition < SM_PARTITION_DYNAMIC) {
    return invalid(
        "tiling_policy.sm_partition is {}; it is a count of 1 or more, SM_PARTITION_ALL (0) "
        "or SM_PARTITION_DYNAMIC (-1): the nearest legal value is -1.",
        tiling.sm_partition);
  }
  return {};
}

// ---- Budget
// --------------------------------------------------------------------------------------

base::Result<Budget> resolve_budget(const compute_budget_t& declared) {
  struct Limit {
    const char* name;
    double value;
  };
  for (const Limit& limit : {Limit{"budget.max_latency_us", declared.max_latency_us},
                             Limit{"budget.energy_cap_mj", declared.energy_cap_mj}}) {
    if (std::isfinite(limit.value) && limit.value >= 0) continue;
    return invalid("{} is {}; it is above 0, or 0 for no limit: the nearest legal value is 0.",
                   limit.name, limit.value);
  }
  if (declared.reliability_level < 0 || declared.reliability_level > 3) {
    return invalid(
        "budget.reliability_level is {}; it is 0 (full precision) ... 3 (up to 1 % of "
        "elements may miss the tolerance): the nearest legal value is {}.",
        declared.reliability_level, declared.reliability_level < 0 ? 0 : 3);
  }
  return Budget{declared.max_latency_us, declared.energy_cap_mj, declared.reliability_level};
}

// ---- Epilogue
// ------------------------------------------------------------------------------------

base::Result<gemm_precision_t> epilogue_precision(const char* name,
                                                  const gemm_precision_t& declared,
                                                  gemm_precision_t output) {
  const int number = base::raw_value(declared);
  if (number == PRECISION_DEFAULT) {
    const base::FormatInfo* format = base::find_format(output);
    return format != nullptr && !format->is_integer ? output : PRECISION_FP32;
  }
  const char* known = word_of(precision_words(), number);
  const base::FormatInfo* format = known != nullptr ? base::find_format(known) : nullptr;
  if (format == nullptr || format->is_integer || number == PRECISION_TF32) {
    return invalid(
        "epilogue.{} is {}; it is stored as fp64, fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2: give "
        "PRECISION_DEFAULT (0) for that of C.",
        name, known != nullptr ? known : std::to_string(number));
  }
  return declared;
}

base::Result<Epilogue> resolve_epilogue(const gemm_epilogue_t& declared, gemm_precision_t output,
                                        int64_t m, int64_t n) {
  Epilogue epilogue;
  epilogue.activation = declared.activation;
  const bool pairs = declared.activation == GEMM_ACTIVATION_SWIGLU;
  if (pairs && n % 2 != 0) {
    return invalid(
        "N is {}; GEMM_ACTIVATION_SWIGLU pairs column j with column j + N/2, so N must be "
        "even: the nearest legal values are {} and {}.",
        n, n - 1, n + 1);
  }
  epilogue.bias = declared.bias;
  epilogue.residual = declared.residual;
  DEEPGEMM_TRY_ASSIGN(bias, epilogue_precision("bias_precision", declared.bias_precision, output));
  DEEPGEMM_TRY_ASSIGN(
      residual, epilogue_precision("residual_precision", declared.residual_precision, output));
  if (epilogue.bias) epilogue.bias_precision = bias;
  if (!epilogue.residual) {
    if (declared.residual_row_stride == 0) return epilogue;
    return invalid(
        "epilogue.residual_row_stride is {}, but epilogue.residual is false: give 0, or set "
        "epilogue.residual.",
        declared.residual_row_stride);
  }
  epilogue.residual_precision = residual;
  const int64_t columns = pairs ? n / 2 : n;
  const int64_t stride = declared.residual_row_stride == 0 ? columns : declared.residual_row_stride;
  if (stride < columns || static_cast<Wide>(stride) * m > kLargestWork) {
    return invalid(
        "epilogue.residual_row_stride is {}; it is at least the {} columns of C, and its "
        "product with M = {} must stay below 2^60: the nearest legal value is {}.",
        stride, columns, m, columns);
  }
  epilogue.residual_row_stride = stride;
  return epilogue;
}

// ---- Operands
// ------------------------------------------------------------------------------------

struct OperandSpec {
  const char* name;
  const gemm_layout_t* declared;
  gemm_precision_t precision;
  StoredShape shape;
  OperandWish wish;
  bool is_output;
};

base::Result<void> check_packed_layout(const OperandSpec& spec) {
  const gemm_layout_t& declared = *spec.declared;
  if (declared.physical_layout != LAYOUT_ANY) {
    return invalid(
        "layout_{}.physical_layout is {}, but INT4 weights have the form that "
        "deepgemm_pack_weights gives them: declare LAYOUT_ANY.",
        spec.name, physical_layout_name(declared.physical_layout));
  }
  for (int i = 0; i < 3; ++i) {
    if (declared.strides[i] == 0) continue;
    return invalid("layout_{}.strides[{}] is {}, but packed INT4 weights have no strides: give 0.",
                   spec.name, i, declared.strides[i]);
  }
  return {};
}

base::Result<Operand> resolve_operand(const OperandSpec& spec, int64_t batch) {
  DEEPGEMM_TRY_ASSIGN(stored, layout::resolve(*spec.declared, batch, spec.shape.rows,
                                              spec.shape.cols, spec.name, spec.is_output));
  if (base::is_int4(spec.precision)) DEEPGEMM_TRY(check_packed_layout(spec));
  const auto bytes = layout::buffer_bytes(stored, spec.precision);
  if (!bytes.ok()) {
    return invalid(
        "{} ({} x {} x {} elements) takes more than 2^63 bytes; give smaller sizes or "
        "strides. {}",
        spec.name, batch, spec.shape.rows, spec.shape.cols, bytes.error().message);
  }
  Operand operand;
  operand.precision = spec.precision;
  operand.layout = stored;
  operand.physical = spec.declared->physical_layout;
  operand.space = spec.declared->memory_space;
  operand.access = spec.declared->access_pattern;
  if (operand.space == MEM_SPACE_DEFAULT) operand.space = spec.wish.space;
  if (operand.access == ACCESS_PATTERN_DEFAULT) operand.access = spec.wish.access;
  return operand;
}

base::Result<void> check_formats(const contract::Contract& contract, int64_t batch) {
  if (base::is_int4(contract.a)) {
    return invalid(
        "A is stored as {}; only weights (B) may be INT4: give activation_precision "
        "PRECISION_FP16.",
        base::find_format(contract.a)->name);
  }
  if (base::is_int4(contract.output)) {
    return invalid(
        "C is stored as {}; the output may not be INT4: give output_precision "
        "PRECISION_FP16.",
        base::find_format(contract.output)->name);
  }
  if (base::is_int4(contract.b) && batch > 1) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "batch_count is {} and B is INT4: one packed operand holds one matrix. "
                            "Make a plan with batch_count 1 and launch it once a matrix.",
                            batch);
  }
  return {};
}

}  // namespace

bool Problem::requires_packed_b() const { return base::is_int4(b.precision); }

bool operator==(const Problem& left, const Problem& right) {
  const auto tiling = [](const Problem& p) {
    const gemm_tiling_policy_t& t = p.tiling;
    return std::array<int32_t, 8>{t.block_m, t.block_n, t.block_k,      t.warp_m,
                                  t.warp_n,  t.warp_k,  t.sm_partition, t.l2_prefetch};
  };
  const auto sizes = [](const Problem& p) {
    return std::array<int64_t, 4>{p.m, p.n, p.k, p.batch};
  };
  return left.operation == right.operation && left.role == right.role &&
         sizes(left) == sizes(right) && left.a == right.a && left.b == right.b &&
         left.c == right.c && left.alpha == right.alpha && left.beta == right.beta &&
         left.contract == right.contract && left.epilogue == right.epilogue &&
         left.budget == right.budget && tiling(left) == tiling(right);
}

RoleWishes role_wishes(gemm_role_t role) {
  constexpr OperandWish kOnce{MEM_SPACE_DEFAULT, ACCESS_PATTERN_STREAMING};
  constexpr OperandWish kReused{MEM_SPACE_DEFAULT, ACCESS_PATTERN_REUSED};
  constexpr OperandWish kResident{MEM_SPACE_L2_CACHE, ACCESS_PATTERN_REUSED};
  switch (role) {
    case GEMM_ROLE_DENSE_PROJECTION:
    case GEMM_ROLE_QKV_PROJECTION:
    case GEMM_ROLE_OUTPUT_PROJECTION:
    case GEMM_ROLE_MOE_EXPERT:
    case GEMM_ROLE_LM_HEAD:
      return {kReused, kOnce, {}};
    case GEMM_ROLE_ATTENTION_SCORES:
      return {kReused, kOnce, kReused};
    case GEMM_ROLE_MOE_GATE:
      return {{}, kResident, {}};
    case GEMM_ROLE_ROTARY_EMBEDDING:
      return {kOnce, kReused, kReused};
    case GEMM_ROLE_GENERIC:
      break;
  }
  return {};
}

StoredShape stored_shape_a(gemm_operation_t operation, int64_t m, int64_t k) {
  const bool transposed = operation == GEMM_OP_TN || operation == GEMM_OP_TT;
  return transposed ? StoredShape{k, m} : StoredShape{m, k};
}

StoredShape stored_shape_b(gemm_operation_t operation, int64_t n, int64_t k) {
  const bool transposed = operation == GEMM_OP_NT || operation == GEMM_OP_TT;
  return transposed ? StoredShape{n, k} : StoredShape{k, n};
}

base::Result<Problem> resolve(const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k) {
  DEEPGEMM_TRY(check_enums(intent));
  DEEPGEMM_TRY(check_sizes(intent.batch_count, m, n, k));
  DEEPGEMM_TRY(check_groups(intent));
  DEEPGEMM_TRY(check_outputs(intent, n));
  DEEPGEMM_TRY(check_tiling(intent.tiling_policy));
  DEEPGEMM_TRY_ASSIGN(alpha, check_factor("alpha", intent.alpha));
  DEEPGEMM_TRY_ASSIGN(beta, check_factor("beta", intent.beta));
  DEEPGEMM_TRY_ASSIGN(budget, resolve_budget(intent.budget));
  DEEPGEMM_TRY_ASSIGN(
      contract, contract::resolve(intent.numerical_contract, intent.budget.reliability_level, k));
  Problem problem;
  problem.operation = intent.operation;
  problem.role = intent.role;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.batch = intent.batch_count == 0 ? 1 : intent.batch_count;
  problem.alpha = alpha == 0 ? 1 : alpha;
  problem.beta = beta;
  problem.budget = budget;
  problem.contract = contract;
  problem.tiling = intent.tiling_policy;
  DEEPGEMM_TRY(check_formats(contract, problem.batch));
  DEEPGEMM_TRY_ASSIGN(epilogue, resolve_epilogue(intent.epilogue, contract.output, m, n));
  problem.epilogue = epilogue;

  const RoleWishes wishes = role_wishes(intent.role);
  DEEPGEMM_TRY_ASSIGN(a, resolve_operand({"A", &intent.layout_a, contract.a,
                                          stored_shape_a(intent.operation, m, k), wishes.a, false},
                                         problem.batch));
  DEEPGEMM_TRY_ASSIGN(b, resolve_operand({"B", &intent.layout_b, contract.b,
                                          stored_shape_b(intent.operation, n, k), wishes.b, false},
                                         problem.batch));
  DEEPGEMM_TRY_ASSIGN(
      c,
      resolve_operand(
          {"C", &intent.layout_c, contract.output, {m, problem.output_columns()}, wishes.c, true},
          problem.batch));
  problem.a = a;
  problem.b = b;
  problem.c = c;
  return problem;
}

}  // namespace deepgemm::intent
