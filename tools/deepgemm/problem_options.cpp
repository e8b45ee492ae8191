#include "deepgemm/problem_options.hpp"

#include <algorithm>

#include "base/files.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 24;
constexpr const char* kSizes = "Sizes";
constexpr const char* kFormats = "Formats and contract";
constexpr const char* kRest = "Further fields of the problem";

struct Field {
  const char* name;
  const char* group;
  const char* help;
};

constexpr Field kFields[] = {
    {"m", kSizes, "rows of op(A) and C"},
    {"n", kSizes, "columns of op(B) and C"},
    {"k", kSizes, "columns of op(A), rows of op(B)"},
    {"batch", kSizes, "number of equal products"},
    {"a", kFormats, "format of A: fp32, fp16, bf16, fp8_e4m3, int8, ..."},
    {"b", kFormats, "format of B; int4_awq, int4_gptq: packed weights"},
    {"c", kFormats, "format of C"},
    {"in", kFormats, "tf32: operands may be rounded to TF32"},
    {"rel", kFormats, "largest relative error"},
    {"abs", kFormats, "largest absolute error"},
    {"outlier", kFormats, "none, clamp99 or fp16 (channels kept in FP16)"},
    {"outlier_fraction", kFormats, "share of channels kept in FP16"},
    {"group", kFormats, "quantisation group along K; -1: all of K"},
    {"dequant", kFormats, "granularity of scales"},
    {"repro", kFormats, "none, run or batch (batch-invariant)"},
    {"basis", kFormats, "worst or probabilistic bound"},
    {"confidence", kFormats, "of a probabilistic bound"},
    {"max_a", kFormats, "largest |A| that you promise"},
    {"max_b", kFormats, "largest |B| that you promise"},
    {"skip", kFormats, "share of the error that tile skipping may use"},
    {"seed", kFormats, "of stochastic rounding"},
    {"role", kRest, "what the product is for: dense, qkv, lm_head, ..."},
    {"alpha", kRest, "factor of the product"},
    {"beta", kRest, "factor of the old C"},
    {"act", kRest, "relu, gelu, gelu_tanh, silu or swiglu"},
    {"residual_stride", kRest, "elements between rows of the residual"},
    {"latency_us", kRest, "budget of time"},
    {"energy_mj", kRest, "budget of energy"},
    {"reliability", kRest, "0 full precision ... 3"},
    {"tile", kRest, "block sizes, such as 64x128x32"},
    {"warp", kRest, "warp sizes, such as 16x16x16"},
    {"sm", kRest, "all, dynamic or a count"},
    {"prefetch", kRest, "none, moderate or aggressive"},
    {"la", kRest, "layout of A, such as col or row:0,128,1"},
    {"lb", kRest, "layout of B"},
    {"lc", kRest, "layout of C"},
    {"device", kRest, "cpu, or a profile to plan for, such as h200"},
};

constexpr Field kFlags[] = {
    {"safe", kFormats, "no inf or NaN where the exact result is finite"},
    {"bias", kRest, "add a value per column of C"},
    {"residual", kRest, "add a matrix of the shape of C"},
};

constexpr const char* kOperations[] = {"nn", "nt", "tn", "tt"};

bool is_operation(const std::string& word) {
  return std::find(std::begin(kOperations), std::end(kOperations), word) != std::end(kOperations);
}

std::string option_name(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  return "--" + field;
}

// Lines of a file, without empty ones and comments (# to the end of the line).
base::Result<std::vector<std::string>> read_lines(const std::string& path) {
  DEEPGEMM_TRY_ASSIGN(text, base::read_file(path, kMaxFileBytes));
  std::string_view rest = text;
  std::vector<std::string> lines;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) lines.emplace_back(line);
  }
  if (!lines.empty()) return lines;
  return base::make_error(DEEPGEMM_ERROR_FORMAT, "{} holds no problem line", path);
}

}  // namespace

gemm_intent_t NamedProblem::bound_intent() const {
  gemm_intent_t intent = spec.intent;
  intent.device = spec.device.empty() ? nullptr : spec.device.c_str();
  return intent;
}

base::Result<NamedProblem> parse_problem(const std::string& line) {
  NamedProblem named;
  auto spec = intent::parse_line(line);
  if (!spec.ok()) return usage_error("in \"{}\": {}", line, spec.error().message);
  named.spec = std::move(*spec);
  auto problem = intent::resolve(named.bound_intent(), named.spec.m, named.spec.n, named.spec.k);
  if (!problem.ok()) {
    return base::make_error(problem.error().code, "in \"{}\": {}", line, problem.error().message);
  }
  named.problem = std::move(*problem);
  named.line = intent::format_line(named.problem);
  return named;
}

void ProblemOptions::add_to(CLI::App& command, Count count) {
  command.add_option("line", words_,
                     count == Count::kOne
                         ? "problem as one line, quoted or not: nt m=1 n=4096 k=4096 a=fp16"
                         : "problem lines; each begins with nn, nt, tn or tt");
  if (count == Count::kMany) {
    command.add_option("--file", files_, "file of problem lines, # begins a comment; repeatable")
        ->allow_extra_args(false)
        ->group(kSizes);
  }
  command
      .add_option("--op", operation_,
                  "operation of a problem named by options: nn, nt (default), tn, tt")
      ->group(kSizes)
      ->check(
          CLI::IsMember(std::vector<std::string>(std::begin(kOperations), std::end(kOperations))));
  for (const Field& field : kFields) {
    command.add_option(option_name(field.name), fields_[field.name], field.help)
        ->group(field.group);
  }
  for (const Field& flag : kFlags) {
    command.add_flag(option_name(flag.name), flags_[flag.name], flag.help)->group(flag.group);
  }
}

void ProblemOptions::set_default(const std::string& field, const std::string& value) {
  if (!given(field)) fields_[field] = value;
}

bool ProblemOptions::given(const std::string& field) const {
  const auto names_field = [&](const std::string& word) {
    return (' ' + word).find(' ' + field + '=') != std::string::npos;
  };
  return !fields_.at(field).empty() || std::any_of(words_.begin(), words_.end(), names_field);
}

std::string ProblemOptions::field_text() const {
  std::string text;
  for (const Field& field : kFields) {
    const std::string& value = fields_.at(field.name);
    if (!value.empty()) text += fmt::format(" {}={}", field.name, value);
  }
  for (const Field& flag : kFlags) {
    if (flags_.at(flag.name)) text += fmt::format(" {}", flag.name);
  }
  return text;
}

base::Result<std::vector<std::string>> ProblemOptions::lines() const {
  std::vector<std::string> lines;
  for (const std::string& path : files_) {
    DEEPGEMM_TRY_ASSIGN(from_file, read_lines(path));
    lines.insert(lines.end(), from_file.begin(), from_file.end());
  }
  bool open = false;  // whether words still go to the last line
  for (const std::string& word : words_) {
    const bool whole = word.find(' ') != std::string::npos;
    if (whole || is_operation(word) || !open) {
      if (!is_operation(word.substr(0, word.find(' ')))) {
        return usage_error("'{}': a problem line begins with its operation: nn, nt, tn or tt",
                           word);
      }
      lines.push_back(word);
    } else {
      lines.back() += ' ' + word;
    }
    open = !whole;
  }
  const std::string fields = field_text();
  if (lines.empty() && (!fields.empty() || !operation_.empty())) {
    lines.push_back(operation_.empty() ? "nt" : operation_);
  } else if (!operation_.empty() && !lines.empty()) {
    return usage_error("--op {}: a line already begins with its operation; leave --op out",
                       operation_);
  }
  for (std::string& line : lines) line += fields;
  return lines;
}

base::Result<std::vector<NamedProblem>> ProblemOptions::problems() const {
  DEEPGEMM_TRY_ASSIGN(texts, lines());
  if (texts.empty()) {
    return usage_error(
        "no problem given; name one, for instance: nt m=1 n=4096 k=4096 a=fp16, or --m 1 --n 4096 "
        "--k 4096 --a fp16");
  }
  std::vector<NamedProblem> named;
  for (const std::string& text : texts) {
    DEEPGEMM_TRY_ASSIGN(problem, parse_problem(text));
    named.push_back(std::move(problem));
  }
  return named;
}

}  // namespace deepgemm::cli
