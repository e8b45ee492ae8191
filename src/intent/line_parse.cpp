// Canonical line -> intent with sizes. The grammar is in docs/canonical_line.md.
#include <array>
#include <bitset>
#include <charconv>
#include <string_view>

#include "base/formats.hpp"
#include "intent/problem.hpp"
#include "intent/words.hpp"

namespace deepgemm::intent {
namespace {

template <class... Args>
base::Error malformed(fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_FORMAT, format, std::forward<Args>(args)...);
}

// What a token's value is read into, besides the intent.
struct Target {
  ProblemSpec spec;
  gemm_precision_t input = PRECISION_DEFAULT;
  bool has_value = false;  // the token had a '='

  numerical_contract_t& contract() { return spec.intent.numerical_contract; }
};

using Parse = base::Result<void> (*)(Target&, std::string_view key, std::string_view value);

template <class T>
base::Result<void> read_number(T& number, std::string_view key, std::string_view value) {
  const char* end = value.data() + value.size();
  const auto [stop, code] = std::from_chars(value.data(), end, number);
  if (code == std::errc() && stop == end) return {};
  return malformed("{}={}: {} is {}; give for instance {}=1.", key, value, value,
                   code == std::errc::result_out_of_range ? "too large" : "not a number", key);
}

template <class Enum>
base::Result<void> read_word(Enum& target, std::span<const Word> words, std::string_view key,
                             std::string_view value) {
  const Word* word = find_word(words, value);
  if (word == nullptr) {
    return malformed("{}={}: unknown value; the nearest is {}={}. Known: {}.", key, value, key,
                     nearest_word(words, value), list_words(words));
  }
  target = static_cast<Enum>(word->value);
  return {};
}

base::Result<void> read_tile(std::array<int32_t*, 3> edges, std::string_view key,
                             std::string_view value) {
  std::string_view rest = value;
  for (size_t i = 0; i < edges.size(); ++i) {
    const size_t end = rest.find('x');
    if ((end == std::string_view::npos) != (i == 2)) {
      return malformed("{}={}: three sizes are needed, for instance {}=64x128x32.", key, value,
                       key);
    }
    DEEPGEMM_TRY(read_number(*edges[i], key, rest.substr(0, end)));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return {};
}

base::Result<void> read_stride(int64_t& stride, std::string_view key, std::string_view text) {
  if (text == "*") {
    stride = GEMM_STRIDE_BROADCAST;
    return {};
  }
  return read_number(stride, key, text);
}

base::Result<void> read_strides(gemm_layout_t& layout, std::string_view key,
                                std::string_view value) {
  std::string_view rest = value;
  for (int i = 0; i < 3; ++i) {
    const size_t end = rest.find(',');
    if ((end == std::string_view::npos) != (i == 2)) {
      return malformed(
          "{}: strides '{}' need three numbers, batch, row and column, for instance "
          "{}=row:0,128,1.",
          key, value, key);
    }
    DEEPGEMM_TRY(read_stride(layout.strides[i], key, rest.substr(0, end)));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return {};
}

base::Result<void> read_layout_word(gemm_layout_t& layout, std::string_view key,
                                    std::string_view word) {
  if (const Word* space = find_word(memory_space_words(), word); space != nullptr) {
    layout.memory_space = static_cast<gemm_memory_space_t>(space->value);
    return {};
  }
  return read_word(layout.access_pattern, access_pattern_words(), key, word);
}

base::Result<void> read_layout(gemm_layout_t& layout, std::string_view key,
                               std::string_view value) {
  const size_t colon = value.find(':');
  if (colon != std::string_view::npos) {
    DEEPGEMM_TRY(read_strides(layout, key, value.substr(colon + 1)));
  }
  std::string_view words = value.substr(0, colon);
  size_t slash = words.find('/');
  DEEPGEMM_TRY(
      read_word(layout.physical_layout, physical_layout_words(), key, words.substr(0, slash)));
  while (slash != std::string_view::npos) {
    words = words.substr(slash + 1);
    slash = words.find('/');
    DEEPGEMM_TRY(read_layout_word(layout, key, words.substr(0, slash)));
  }
  return {};
}

base::Result<void> read_operand(bool& used, gemm_precision_t& precision, Target& target,
                                std::string_view key, std::string_view value) {
  used = true;
  return target.has_value ? read_word(precision, precision_words(), key, value)
                          : base::Result<void>{};
}

// ---- Keys
// ----------------------------------------------------------------------------------------

struct Key {
  const char* name;
  bool flag;  // may stand without "=value"
  Parse parse;
};

#define DEEPGEMM_NUMBER(field) \
  [](Target& t, std::string_view k, std::string_view v) { return read_number(t.field, k, v); }
#define DEEPGEMM_WORD(field, words)                       \
  [](Target& t, std::string_view k, std::string_view v) { \
    return read_word(t.field, words(), k, v);             \
  }
#define DEEPGEMM_LAYOUT(field) \
  [](Target& t, std::string_view k, std::string_view v) { return read_layout(t.field, k, v); }

base::Result<void> read_safe(Target& target, std::string_view key, std::string_view value) {
  if (target.has_value)
    return malformed("{}={}: {} stands alone, without a value.", key, value, key);
  target.contract().safe_accumulation = true;
  return {};
}

base::Result<void> read_basis(Target& target, std::string_view key, std::string_view value) {
  constexpr Word kBasis[] = {{BOUND_BASIS_WORST_CASE, "worst"},
                             {BOUND_BASIS_PROBABILISTIC, "probabilistic"}};
  return read_word(target.contract().bound_basis, kBasis, key, value);
}

base::Result<void> read_sm(Target& target, std::string_view key, std::string_view value) {
  int32_t& partition = target.spec.intent.tiling_policy.sm_partition;
  if (value != "all" && value != "dynamic") return read_number(partition, key, value);
  partition = value == "all" ? SM_PARTITION_ALL : SM_PARTITION_DYNAMIC;
  return {};
}

base::Result<void> read_tile_key(Target& target, std::string_view key, std::string_view value) {
  gemm_tiling_policy_t& t = target.spec.intent.tiling_policy;
  return key == "tile" ? read_tile({&t.block_m, &t.block_n, &t.block_k}, key, value)
                       : read_tile({&t.warp_m, &t.warp_n, &t.warp_k}, key, value);
}

base::Result<void> read_bias(Target& target, std::string_view key, std::string_view value) {
  gemm_epilogue_t& epilogue = target.spec.intent.epilogue;
  return read_operand(epilogue.bias, epilogue.bias_precision, target, key, value);
}

base::Result<void> read_residual(Target& target, std::string_view key, std::string_view value) {
  gemm_epilogue_t& epilogue = target.spec.intent.epilogue;
  return read_operand(epilogue.residual, epilogue.residual_precision, target, key, value);
}

base::Result<void> read_device(Target& target, std::string_view, std::string_view value) {
  target.spec.device = value;
  return {};
}

constexpr Key kKeys[] = {
    {"m", false, DEEPGEMM_NUMBER(spec.m)},
    {"n", false, DEEPGEMM_NUMBER(spec.n)},
    {"k", false, DEEPGEMM_NUMBER(spec.k)},
    {"batch", false, DEEPGEMM_NUMBER(spec.intent.batch_count)},
    {"a", false, DEEPGEMM_WORD(contract().activation_precision, precision_words)},
    {"b", false, DEEPGEMM_WORD(contract().weight_precision, precision_words)},
    {"c", false, DEEPGEMM_WORD(contract().output_precision, precision_words)},
    {"in", false, DEEPGEMM_WORD(input, precision_words)},
    {"role", false, DEEPGEMM_WORD(spec.intent.role, role_words)},
    {"alpha", false, DEEPGEMM_NUMBER(spec.intent.alpha)},
    {"beta", false, DEEPGEMM_NUMBER(spec.intent.beta)},
    {"rel", false, DEEPGEMM_NUMBER(contract().max_relative_error)},
    {"abs", false, DEEPGEMM_NUMBER(contract().max_absolute_error)},
    {"safe", true, read_safe},
    {"outlier", false, DEEPGEMM_WORD(contract().outlier_handling, outlier_words)},
    {"outlier_fraction", false, DEEPGEMM_NUMBER(contract().outlier_fraction)},
    {"dequant", false, DEEPGEMM_WORD(contract().dequant_strategy, dequant_words)},
    {"group", false, DEEPGEMM_NUMBER(contract().quantization_group_size)},
    {"repro", false, DEEPGEMM_WORD(contract().reproducibility, reproducibility_words)},
    {"basis", false, read_basis},
    {"confidence", false, DEEPGEMM_NUMBER(contract().confidence)},
    {"max_a", false, DEEPGEMM_NUMBER(contract().max_abs_a)},
    {"max_b", false, DEEPGEMM_NUMBER(contract().max_abs_b)},
    {"skip", false, DEEPGEMM_NUMBER(contract().skip_tolerance)},
    {"seed", false, DEEPGEMM_NUMBER(contract().seed)},
    {"act", false, DEEPGEMM_WORD(spec.intent.epilogue.activation, activation_words)},
    {"bias", true, read_bias},
    {"residual", true, read_residual},
    {"residual_stride", false, DEEPGEMM_NUMBER(spec.intent.epilogue.residual_row_stride)},
    {"latency_us", false, DEEPGEMM_NUMBER(spec.intent.budget.max_latency_us)},
    {"energy_mj", false, DEEPGEMM_NUMBER(spec.intent.budget.energy_cap_mj)},
    {"reliability", false, DEEPGEMM_NUMBER(spec.intent.budget.reliability_level)},
    {"tile", false, read_tile_key},
    {"warp", false, read_tile_key},
    {"sm", false, read_sm},
    {"prefetch", false, DEEPGEMM_WORD(spec.intent.tiling_policy.l2_prefetch, prefetch_words)},
    {"la", false, DEEPGEMM_LAYOUT(spec.intent.layout_a)},
    {"lb", false, DEEPGEMM_LAYOUT(spec.intent.layout_b)},
    {"lc", false, DEEPGEMM_LAYOUT(spec.intent.layout_c)},
    {"device", false, read_device},
};
constexpr size_t kKeyCount = std::size(kKeys);

#undef DEEPGEMM_NUMBER
#undef DEEPGEMM_WORD
#undef DEEPGEMM_LAYOUT

std::array<Word, kKeyCount> key_words() {
  std::array<Word, kKeyCount> words{};
  for (size_t i = 0; i < kKeyCount; ++i) words[i] = {static_cast<int>(i), kKeys[i].name};
  return words;
}

base::Result<void> read_token(Target& target, std::bitset<kKeyCount>& seen,
                              std::string_view token) {
  const size_t equals = token.find('=');
  const std::string_view name = token.substr(0, equals);
  const auto words = key_words();
  const Word* word = find_word(words, name);
  if (word == nullptr) {
    return malformed("'{}' is no field of a problem line; the nearest is '{}'. Known: {}.", token,
                     nearest_word(words, name), list_words(words));
  }
  const auto index = static_cast<size_t>(word->value);
  if (seen[index]) return malformed("'{}': {} is given twice; keep one.", token, name);
  seen[index] = true;
  target.has_value = equals != std::string_view::npos;
  if (!target.has_value && !kKeys[index].flag) {
    return malformed("'{}' has no value; write {}=<value>.", token, name);
  }
  const std::string_view value = target.has_value ? token.substr(equals + 1) : std::string_view();
  if (target.has_value && value.empty()) {
    return malformed("'{}' has no value after '='; give one.", token);
  }
  return kKeys[index].parse(target, name, value);
}

// a defaults to fp32, b to a; `in` to b for INT4 weights, else to a.
void finish_formats(Target& target, bool a_given) {
  numerical_contract_t& contract = target.contract();
  const bool int4 = base::is_int4(contract.weight_precision);
  const gemm_precision_t a = a_given ? contract.activation_precision : PRECISION_FP32;
  if (contract.weight_precision == PRECISION_DEFAULT) contract.weight_precision = a;
  if (a_given || !int4) contract.activation_precision = a;
  contract.input_precision = target.input != PRECISION_DEFAULT ? target.input
                             : int4                            ? contract.weight_precision
                                                               : a;
}

}  // namespace

base::Result<ProblemSpec> parse_line(const std::string& line) {
  constexpr std::string_view kSpaces = " \t\r\n";
  Target target;
  std::bitset<kKeyCount> seen;
  bool first = true;
  std::string_view rest = line;
  while (true) {
    const size_t begin = rest.find_first_not_of(kSpaces);
    if (begin == std::string_view::npos) break;
    rest = rest.substr(begin);
    const size_t end = rest.find_first_of(kSpaces);
    const std::string_view token = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
    if (first) {
      DEEPGEMM_TRY(read_word(target.spec.intent.operation, operation_words(), "operation", token));
      first = false;
      continue;
    }
    DEEPGEMM_TRY(read_token(target, seen, token));
  }
  if (first) {
    return malformed("the problem line is empty; give for instance 'nt m=1 n=4096 k=4096 a=fp16'.");
  }
  for (size_t i = 0; i < 3; ++i) {  // m, n and k head the table
    if (!seen[i]) return malformed("the problem line has no {0}=; add {0}=<size>.", kKeys[i].name);
  }
  constexpr size_t kFormatA = 4;
  finish_formats(target, seen[kFormatA]);
  return target.spec;
}

}  // namespace deepgemm::intent
