// Problem -> canonical line. The grammar is in docs/canonical_line.md; line_parse.cpp reads it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/formats.hpp"
#include "intent/problem.hpp"
#include "intent/words.hpp"

namespace deepgemm::intent {
namespace {

// Appends " key=value". Doubles are written in the shortest form that reads back as the same value.
class LineWriter {
 public:
  explicit LineWriter(std::string head) : line_(std::move(head)) {}

  template <class T>
  void add(const char* key, const T& value) {
    fmt::format_to(std::back_inserter(line_), " {}={}", key, value);
  }
  template <class T>
  void add_unless(const char* key, const T& value, const T& standard) {
    if (!(value == standard)) add(key, value);
  }
  void add_word(const char* key, std::span<const Word> words, int value, int standard) {
    if (value != standard) add(key, word_of(words, value));
  }
  void flag(const char* key, bool on) {
    if (on) fmt::format_to(std::back_inserter(line_), " {}", key);
  }
  std::string take() { return std::move(line_); }

 private:
  std::string line_;
};

const char* format_name(gemm_precision_t precision) { return base::find_format(precision)->name; }

// The numbers as declared formats: TF32 as input format is written in=tf32 and stored as FP32.
numerical_contract_t declared_formats(const contract::Contract& contract) {
  numerical_contract_t declared = {};
  declared.activation_precision = contract.a;
  declared.weight_precision = contract.b;
  declared.input_precision = contract.tf32_allowed       ? PRECISION_TF32
                             : base::is_int4(contract.b) ? contract.b
                                                         : contract.a;
  return declared;
}

// What resolve() makes of a contract of which only formats, outlier handling and, where given, the
// strategy are declared.
contract::Contract standard_contract(const Problem& problem,
                                     gemm_dequant_strategy_t strategy = DEQUANT_STRATEGY_DEFAULT) {
  numerical_contract_t declared = declared_formats(problem.contract);
  declared.outlier_handling = problem.contract.outlier_handling;
  declared.dequant_strategy = strategy;
  const auto resolved = contract::resolve(declared, problem.budget.reliability_level, problem.k);
  return resolved.ok() ? *resolved : contract::Contract{};
}

void write_formats(LineWriter& line, const Problem& problem, const contract::Contract& standard) {
  const contract::Contract& contract = problem.contract;
  line.add("a", format_name(contract.a));
  if (contract.b != contract.a) line.add("b", format_name(contract.b));
  if (contract.output != standard.output) line.add("c", format_name(contract.output));
  if (contract.tf32_allowed) line.add("in", "tf32");
}

// Sizes that are not among the legal ones (and may exceed int32_t) are all of K.
int64_t declared_group(const Problem& problem) {
  const int64_t size = problem.contract.group_size;
  return size == std::max<int64_t>(problem.k, 1) ? -1 : size;
}

void write_contract(LineWriter& line, const Problem& problem, const contract::Contract& standard) {
  const contract::Contract& contract = problem.contract;
  line.add_unless("rel", contract.max_relative_error, standard.max_relative_error);
  line.add_unless("abs", contract.max_absolute_error, standard.max_absolute_error);
  line.flag("safe", contract.safe_accumulation);
  line.add_word("outlier", outlier_words(), contract.outlier_handling, OUTLIER_NONE);
  line.add_unless("outlier_fraction", contract.outlier_fraction, standard.outlier_fraction);
  line.add_word("dequant", dequant_words(), contract.dequant_strategy, standard.dequant_strategy);
  // The group that a line without group= means depends on the strategy, not only on the formats.
  const int64_t usual_group = standard_contract(problem, contract.dequant_strategy).group_size;
  if (contract.group_size != usual_group) line.add("group", declared_group(problem));
  line.add_word("repro", reproducibility_words(), contract.reproducibility,
                standard.reproducibility);
  if (contract.confidence == 0) {
    line.add("basis", "worst");
  } else {
    line.add_unless("confidence", contract.confidence, standard.confidence);
  }
  line.add_unless("max_a", contract.max_abs_a, standard.max_abs_a);
  line.add_unless("max_b", contract.max_abs_b, standard.max_abs_b);
  line.add_unless("skip", contract.skip_tolerance, standard.skip_tolerance);
  line.add_unless("seed", contract.seed, standard.seed);
}

void write_epilogue(LineWriter& line, const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  const base::FormatInfo& output = *base::find_format(problem.contract.output);
  const gemm_precision_t standard = output.is_integer ? PRECISION_FP32 : output.precision;
  line.add_word("act", activation_words(), epilogue.activation, GEMM_ACTIVATION_NONE);
  if (epilogue.bias && epilogue.bias_precision != standard) {
    line.add("bias", format_name(epilogue.bias_precision));
  } else {
    line.flag("bias", epilogue.bias);
  }
  if (!epilogue.residual) return;
  if (epilogue.residual_precision != standard) {
    line.add("residual", format_name(epilogue.residual_precision));
  } else {
    line.flag("residual", true);
  }
  line.add_unless("residual_stride", epilogue.residual_row_stride, problem.output_columns());
}

void write_tile(LineWriter& line, const char* key, int32_t m, int32_t n, int32_t k) {
  if (m != 0 || n != 0 || k != 0) line.add(key, fmt::format("{}x{}x{}", m, n, k));
}

void write_tiling(LineWriter& line, const gemm_tiling_policy_t& tiling) {
  write_tile(line, "tile", tiling.block_m, tiling.block_n, tiling.block_k);
  write_tile(line, "warp", tiling.warp_m, tiling.warp_n, tiling.warp_k);
  if (tiling.sm_partition == SM_PARTITION_DYNAMIC) {
    line.add("sm", "dynamic");
  } else if (tiling.sm_partition != SM_PARTITION_ALL) {
    line.add("sm", tiling.sm_partition);
  }
  line.add_word("prefetch", prefetch_words(), tiling.l2_prefetch, L2_PREFETCH_DEFAULT);
}

// "col", "row:8192,128,1", "any/l2/once": order, space and access in this order, then the strides.
void write_layout(LineWriter& line, const char* key, const Operand& operand,
                  const OperandWish& wish) {
  const layout::MatrixLayout& stored = operand.layout;
  gemm_layout_t plain = {};
  plain.physical_layout = operand.physical;
  const auto contiguous =
      layout::resolve(plain, stored.batch, stored.rows, stored.cols, key, false);
  std::string text = physical_layout_name(operand.physical);
  if (operand.space != wish.space) {
    text += fmt::format("/{}", word_of(memory_space_words(), operand.space));
  }
  if (operand.access != wish.access) {
    text += fmt::format("/{}", word_of(access_pattern_words(), operand.access));
  }
  if (!contiguous.ok() || !(*contiguous == stored)) {
    const auto stride = [](int64_t value) { return value == 0 ? "*" : std::to_string(value); };
    text += fmt::format(":{},{},{}", stride(stored.batch_stride), stride(stored.row_stride),
                        stride(stored.col_stride));
  }
  if (text != "any") line.add(key, text);
}

}  // namespace

std::string format_line(const Problem& problem) {
  const contract::Contract standard = standard_contract(problem);
  const RoleWishes wishes = role_wishes(problem.role);
  LineWriter line(operation_name(problem.operation));
  line.add("m", problem.m);
  line.add("n", problem.n);
  line.add("k", problem.k);
  line.add_unless("batch", problem.batch, int64_t{1});
  write_formats(line, problem, standard);
  line.add_word("role", role_words(), problem.role, GEMM_ROLE_GENERIC);
  line.add_unless("alpha", problem.alpha, 1.0);
  line.add_unless("beta", problem.beta, 0.0);
  write_contract(line, problem, standard);
  write_epilogue(line, problem);
  line.add_unless("latency_us", problem.budget.max_latency_us, 0.0);
  line.add_unless("energy_mj", problem.budget.energy_cap_mj, 0.0);
  line.add_unless("reliability", problem.budget.reliability_level, 0);
  write_tiling(line, problem.tiling);
  write_layout(line, "la", problem.a, wishes.a);
  write_layout(line, "lb", problem.b, wishes.b);
  write_layout(line, "lc", problem.c, wishes.c);
  return line.take();
}

}  // namespace deepgemm::intent
