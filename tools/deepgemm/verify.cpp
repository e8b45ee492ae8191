// deepgemm verify: results against the FP64 reference, on ordinary and on adversarial inputs.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/formats.hpp"
#include "contract/verify.hpp"
#include "deepgemm/problem_options.hpp"
#include "deepgemm/product.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

struct Options {
  ProblemOptions problem;
  std::vector<std::string> inputs;
  uint64_t seed = 1;
  int64_t damage_row = -1;
  double work = 1e9;  // multiplications of the reference, per input set
};

// A result differs in distribution when chance alone would make it so less often than this.
constexpr double kKsLevel = 1e-3;
// Where results are not this many times larger than the error allowed (cancellation), errors within
// the bound change their distribution, and the test says nothing.
constexpr double kKsMargin = 10;

// What a result is held against.
struct Limits {
  double relative = 0;
  double absolute = 0;
  double bound_relative = 0;
  double bound_absolute = 0;

  // The largest sum of |a||b| up to which the bound keeps an absolute limit.
  double magnitude() const {
    if (absolute == 0 || bound_relative == 0) return INFINITY;
    return std::max(absolute - bound_absolute, 0.0) / bound_relative;
  }
};

Limits limits_of(const intent::Problem& problem, const deepgemm_plan_info_t& info) {
  return {problem.contract.max_relative_error, problem.contract.max_absolute_error,
          info.bound_relative, info.bound_absolute};
}

// One input set of one problem.
struct Finding {
  contract::Comparison bound, contract;
  contract::KsTest ks;
  int64_t inexact = -1;  // elements that are not the rounded exact result; -1: not applicable
  double largest_magnitude = 0;
  double sum_of_values = 0, sum_of_allowed = 0;  // of finite elements
  bool absolute_applies = true;  // the magnitudes are within what the absolute limit is proven for

  bool ks_applies() const { return sum_of_values > kKsMargin * sum_of_allowed; }
  bool passed() const {
    return bound.passed() && contract.passed() && inexact <= 0 &&
           (ks.p_value >= kKsLevel || !ks_applies());
  }
};

// Rows to compare: all, or evenly spread ones when the reference would take too long.
std::vector<int64_t> rows_to_compare(const intent::Problem& problem, double work) {
  const double per_row =
      std::max<double>(static_cast<double>(problem.n) * static_cast<double>(problem.k), 1);
  const auto affordable = static_cast<int64_t>(std::clamp(work / per_row, 1.0, 1e9));
  const int64_t count = std::min(problem.m, affordable);
  std::vector<int64_t> rows(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    rows[static_cast<size_t>(i)] = count == 1 ? 0 : i * (problem.m - 1) / (count - 1);
  }
  return rows;
}

std::vector<double> pick_rows(const std::vector<double>& matrix, const std::vector<int64_t>& rows,
                              int64_t columns) {
  std::vector<double> picked;
  if (matrix.empty()) return picked;
  for (const int64_t row : rows) {
    const auto begin = matrix.begin() + row * columns;
    picked.insert(picked.end(), begin, begin + columns);
  }
  return picked;
}

contract::ReferenceProblem with_rows(const contract::ReferenceProblem& all,
                                     const std::vector<int64_t>& rows) {
  contract::ReferenceProblem some = all;
  some.m = static_cast<int64_t>(rows.size());
  some.a = pick_rows(all.a, rows, all.k);
  some.c0 = pick_rows(all.c0, rows, all.output_columns());
  some.residual = pick_rows(all.residual, rows, all.output_columns());
  return some;
}

// The testing aid: moves every element of a row by eight times what is allowed.
void damage(std::vector<double>& result, const contract::Reference& reference, const Limits& limits,
            const std::vector<int64_t>& rows, int64_t columns, int64_t row) {
  const auto at = std::find(rows.begin(), rows.end(), row);
  if (at == rows.end()) return;
  const auto begin = static_cast<size_t>((at - rows.begin()) * columns);
  const double relative = std::max(limits.relative, limits.bound_relative);
  const double absolute = std::max({limits.absolute, limits.bound_absolute, 1e-300});
  for (size_t i = begin; i < begin + static_cast<size_t>(columns); ++i) {
    result[i] += 8 * (relative * reference.magnitude[i] + absolute);
  }
}

// Small integers are exact in every arithmetic, so that the only rounding left is that of the
// output.
bool exactness_applies(const intent::Problem& problem, const deepgemm_plan_info_t& info,
                       contract::InputSet set) {
  return set == contract::InputSet::kExact && !info.packed_b && problem.alpha == 1 &&
         problem.beta == 0 && problem.contract.skip_tolerance == 0 && problem.contract.seed == 0 &&
         problem.epilogue.activation == GEMM_ACTIVATION_NONE && !problem.epilogue.bias &&
         !problem.epilogue.residual;
}

void add(contract::Comparison& total, const contract::Comparison& part) {
  total.elements += part.elements;
  total.nonfinite += part.nonfinite;
  total.outside += part.outside;
  total.max_relative = std::max(total.max_relative, part.max_relative);
  total.max_absolute = std::max(total.max_absolute, part.max_absolute);
  total.damaged_rows += part.damaged_rows;
  total.damaged_tiles += part.damaged_tiles;
}

class Verifier {
 public:
  Verifier(const NamedProblem& problem, const Plan& plan, const Options& options)
      : problem_(problem.problem),
        plan_(plan),
        options_(options),
        limits_(limits_of(problem_, plan.info())),
        rows_(rows_to_compare(problem_, options.work)) {}

  const std::vector<int64_t>& rows() const { return rows_; }
  const Limits& limits() const { return limits_; }

  base::Result<Finding> verify(contract::InputSet set) const {
    DEEPGEMM_TRY_ASSIGN(
        operands,
        store_operands(problem_, plan_,
                       generate_values(problem_, plan_.info().packed_b, set, options_.seed), {}));
    const gemm_launch_args_t args = operands.args();
    DEEPGEMM_CALL(deepgemm_launch_plan_args(plan_.get(), &args));
    DEEPGEMM_TRY(operands.c.fetch());  // in the order of the default stream
    Finding finding;
    if (exactness_applies(problem_, plan_.info(), set)) finding.inexact = 0;
    std::vector<double> all_results, all_expected;
    for (int64_t batch = 0; batch < problem_.batch; ++batch) {
      compare_matrix(operands, batch, finding, all_results, all_expected);
    }
    finding.ks = contract::kolmogorov_smirnov(std::move(all_results), std::move(all_expected));
    return finding;
  }

 private:
  void measure_sizes(const contract::Reference& reference, Finding& finding) const {
    for (size_t i = 0; i < reference.value.size(); ++i) {
      const double magnitude = reference.magnitude[i];
      if (!std::isfinite(magnitude) || !std::isfinite(reference.value[i])) continue;
      finding.largest_magnitude = std::max(finding.largest_magnitude, magnitude);
      finding.sum_of_values += std::abs(reference.value[i]);
      finding.sum_of_allowed += limits_.bound_relative * magnitude + limits_.bound_absolute;
    }
  }

  void compare_matrix(const Operands& operands, int64_t batch, Finding& finding,
                      std::vector<double>& all_results, std::vector<double>& all_expected) const {
    const int64_t columns = problem_.output_columns();
    const auto rows = static_cast<int64_t>(rows_.size());
    const contract::ReferenceProblem some =
        with_rows(operands.values[static_cast<size_t>(batch)], rows_);
    const contract::Reference reference = contract::compute_reference(some);
    std::vector<double> result = pick_rows(load_result(problem_, operands, batch), rows_, columns);
    if (batch == 0) damage(result, reference, limits_, rows_, columns, options_.damage_row);

    measure_sizes(reference, finding);
    const bool within = finding.largest_magnitude <= limits_.magnitude();
    finding.absolute_applies = finding.absolute_applies && within;
    const auto compare = [&](double relative, double absolute) {
      return contract::compare(result, reference, rows, columns, relative, absolute);
    };
    add(finding.bound, compare(limits_.bound_relative, limits_.bound_absolute));
    if (limits_.relative > 0) {
      add(finding.contract, compare(limits_.relative, limits_.bound_absolute));
    }
    if (limits_.absolute > 0 && within) add(finding.contract, compare(0, limits_.absolute));
    for (size_t i = 0; i < result.size(); ++i) {
      const double expected = base::round_to(problem_.c.precision, reference.value[i]);
      const bool same = result[i] == expected || (std::isnan(result[i]) && std::isnan(expected));
      if (finding.inexact >= 0 && !same) ++finding.inexact;
      all_expected.push_back(expected);
    }
    all_results.insert(all_results.end(), result.begin(), result.end());
  }

  const intent::Problem& problem_;
  const Plan& plan_;
  const Options& options_;
  Limits limits_;
  std::vector<int64_t> rows_;
};

std::string verdict_text(const Finding& finding) {
  if (finding.passed()) return paint(Color::kGreen, finding.absolute_applies ? "kept" : "kept *");
  const contract::Comparison& worse =
      finding.bound.outside > finding.contract.outside ? finding.bound : finding.contract;
  std::string text = "BROKEN";
  if (worse.outside > 0) {
    text += fmt::format(": {} outside, {} rows, {} tiles", worse.outside, worse.damaged_rows,
                        worse.damaged_tiles);
  } else if (finding.inexact > 0) {
    text += fmt::format(": {} elements not exact", finding.inexact);
  } else {
    text += ": other distribution";
  }
  return paint(Color::kRed, text);
}

void add_row(Table& table, contract::InputSet set, const Finding& finding, const Limits& limits) {
  const double share = finding.bound.max_relative / std::max(limits.bound_relative, 1e-300);
  const std::string p_value = fmt::format("{:.3g}", finding.ks.p_value);
  table.add({contract::input_set_name(set), fmt::format("{}", finding.bound.elements),
             error_text(finding.bound.max_relative), fmt::format("{:.1f} %", 100 * share),
             error_text(finding.bound.max_absolute),
             finding.inexact < 0    ? "-"
             : finding.inexact == 0 ? "yes"
                                    : "no",
             finding.ks_applies() ? p_value : fmt::format("({})", p_value), verdict_text(finding)});
}

base::Result<std::vector<contract::InputSet>> chosen_sets(const Options& options) {
  std::vector<contract::InputSet> sets;
  for (const contract::InputSet set : contract::all_input_sets()) {
    const auto& names = options.inputs;
    if (names.empty() ||
        std::count(names.begin(), names.end(), contract::input_set_name(set)) > 0) {
      sets.push_back(set);
    }
  }
  return sets;
}

void print_head(const NamedProblem& problem, const Plan& plan, const Verifier& verifier) {
  const Limits& limits = verifier.limits();
  print("{}\n", paint(Color::kBold, problem.line));
  print("path {} on {}, bound: relative {}, absolute {}", plan.info().path, plan.info().family,
        error_text(limits.bound_relative), error_text(limits.bound_absolute));
  print("; contract: relative {}, absolute {}\n",
        limits.relative > 0 ? error_text(limits.relative) : "none",
        limits.absolute > 0 ? error_text(limits.absolute) : "none");
  const auto rows = static_cast<int64_t>(verifier.rows().size());
  if (rows < problem.problem.m) {
    print("{} of {} rows are compared, evenly spread (--work raises this)\n", rows,
          problem.problem.m);
  }
}

// True when every input set is within the limits.
base::Result<bool> verify_problem(const NamedProblem& problem, const Options& options) {
  DEEPGEMM_TRY_ASSIGN(plan, Plan::create(problem));
  const Verifier verifier(problem, plan, options);
  const auto& rows = verifier.rows();
  if (options.damage_row >= 0 &&
      std::find(rows.begin(), rows.end(), options.damage_row) == rows.end()) {
    return usage_error(
        "--damage-row {}: not among the {} rows that are compared; name one in 0 ... {}"
        " or raise --work",
        options.damage_row, rows.size(), problem.problem.m - 1);
  }
  print_head(problem, plan, verifier);
  Table table({"inputs", ">elements", ">max relative", ">of bound", ">max absolute", "exact",
               ">KS p", "verdict"});
  DEEPGEMM_TRY_ASSIGN(sets, chosen_sets(options));
  Progress progress(static_cast<int64_t>(sets.size()));
  bool passed = true;
  bool conditional = false;
  bool ks_left_out = false;
  for (size_t i = 0; i < sets.size(); ++i) {
    progress.show(static_cast<int64_t>(i), contract::input_set_name(sets[i]));
    DEEPGEMM_TRY_ASSIGN(finding, verifier.verify(sets[i]));
    add_row(table, sets[i], finding, verifier.limits());
    passed = passed && finding.passed();
    conditional = conditional || !finding.absolute_applies;
    ks_left_out = ks_left_out || !finding.ks_applies();
  }
  progress.clear();
  write_output(table.text("  "));
  if (conditional) {
    print(
        "  * sums of |a||b| exceed {:.3g}, up to which the absolute limit is proven: judged by the "
        "bound alone\n",
        verifier.limits().magnitude());
  }
  if (ks_left_out) {
    print(
        "  KS p in brackets is not judged: results hardly exceed the error allowed, so that errors "
        "within\n  the bound change their distribution\n");
  }
  print("\n");
  return passed;
}

base::Result<ExitCode> run_verify(const Options& options) {
  DEEPGEMM_TRY_ASSIGN(problems, options.problem.problems());
  int64_t broken = 0;
  for (const NamedProblem& problem : problems) {
    DEEPGEMM_TRY_ASSIGN(passed, verify_problem(problem, options));
    if (!passed) ++broken;
  }
  if (broken == 0) {
    print("{}: {} of {} problems keep bound and contract on all inputs\n",
          paint(Color::kGreen, "PASSED"), problems.size(), problems.size());
    return ExitCode::kOk;
  }
  print("{}: {} of {} problems do not\n", paint(Color::kRed, "FAILED"), broken, problems.size());
  return ExitCode::kCheckFailed;
}

}  // namespace

Verb add_verify(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "verify",
      "Compare results with an FP64 reference: element by element, per row and 16x16 tile, "
      "in distribution (Kolmogorov-Smirnov), on ordinary and adversarial inputs");
  options->problem.add_to(*command, ProblemOptions::Count::kMany);
  std::vector<std::string> names;
  for (const contract::InputSet set : contract::all_input_sets()) {
    names.emplace_back(contract::input_set_name(set));
  }
  command->add_option("--inputs", options->inputs, "input sets to use; without it, all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names));
  command->add_option("--input-seed", options->seed, "seed of the inputs")->capture_default_str();
  command
      ->add_option("--work", options->work,
                   "multiplications that the reference may take per input set; fewer rows are "
                   "compared when all would take more")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--damage-row", options->damage_row,
                   "testing aid: move this row of the result by eight times what is allowed "
                   "before comparing; the verdict must then be BROKEN")
      ->check(CLI::NonNegativeNumber);
  return {command, [options] { return run_verify(*options); }};
}

}  // namespace deepgemm::cli
