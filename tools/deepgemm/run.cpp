// deepgemm run: one product, of matrices in files or of random ones.
#include <memory>

#include "base/formats.hpp"
#include "deepgemm/matrix_file.hpp"
#include "deepgemm/problem_options.hpp"
#include "deepgemm/product.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/timing.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

struct Options {
  ProblemOptions problem;
  std::string a, b, output;
  uint64_t seed = 1;
  bool verify = false;
};

// The matrices of a run; empty when their values are random.
struct Inputs {
  std::vector<double> a, b;  // op(A) [m][k] and op(B) [k][n]
};

// Operands are stored as the problem declares; a file of another format is converted only where
// that loses nothing.
base::Result<void> require_exact(const std::vector<double>& values, gemm_precision_t precision,
                                 const MatrixFile& file, const char* option) {
  for (const double value : values) {
    const bool same = base::round_to(precision, value) == value || value != value;
    if (same) continue;
    const char* name = base::find_format(precision)->name;
    return usage_error(
        "{} {}: {} is not representable in {}; declare {} as {}, or convert the file", option,
        file.name, value, name, option, base::find_format(file.precision)->name);
  }
  return {};
}

// Fills sizes and formats that the files imply, then checks what was declared against them.
base::Result<NamedProblem> problem_of_files(const Options& options, const MatrixFile& a,
                                            const MatrixFile& b) {
  ProblemOptions problem = options.problem;
  DEEPGEMM_TRY_ASSIGN(given, problem.lines());
  const std::string operation = given.empty() ? "nt" : given.front().substr(0, 2);
  const bool a_transposed = operation[0] == 't';
  const bool b_transposed = operation[1] == 't';
  const int64_t m = a_transposed ? a.cols : a.rows;
  const int64_t k = a_transposed ? a.rows : a.cols;
  const int64_t n = b_transposed ? b.rows : b.cols;
  const int64_t k_of_b = b_transposed ? b.cols : b.rows;
  if (k != k_of_b) {
    return usage_error(
        "--A {} is {} x {} and --B {} is {} x {}: for {} the inner sizes {} and {} must "
        "be equal; another --op may fit",
        a.name, a.rows, a.cols, b.name, b.rows, b.cols, operation, k, k_of_b);
  }
  problem.set_default("m", fmt::format("{}", m));
  problem.set_default("n", fmt::format("{}", n));
  problem.set_default("k", fmt::format("{}", k));
  problem.set_default("a", base::find_format(a.precision)->name);
  problem.set_default("b", base::find_format(b.precision)->name);
  DEEPGEMM_TRY_ASSIGN(problems, problem.problems());
  NamedProblem& named = problems.front();
  const intent::Epilogue& epilogue = named.problem.epilogue;
  if (named.problem.beta != 0 || epilogue.bias || epilogue.residual) {
    return usage_error(
        "beta, bias and residual need operands that no option names; leave them out");
  }
  if (named.problem.m != m || named.problem.n != n || named.problem.k != k ||
      named.problem.batch != 1) {
    return usage_error("the files give m={} n={} k={}, one matrix each; leave sizes out", m, n, k);
  }
  return std::move(named);
}

base::Result<Inputs> inputs_of_files(const NamedProblem& named, bool packed_b, const MatrixFile& a,
                                     const MatrixFile& b) {
  const intent::Problem& problem = named.problem;
  Inputs inputs = {a.values(), b.values()};
  DEEPGEMM_TRY(require_exact(inputs.a, problem.a.precision, a, "--a"));
  if (!packed_b) DEEPGEMM_TRY(require_exact(inputs.b, problem.b.precision, b, "--b"));
  const gemm_operation_t op = problem.operation;
  if (op == GEMM_OP_TN || op == GEMM_OP_TT) inputs.a = transposed(inputs.a, a.rows, a.cols);
  if (op == GEMM_OP_NT || op == GEMM_OP_TT) inputs.b = transposed(inputs.b, b.rows, b.cols);
  return inputs;
}

void print_packing(const deepgemm_packed_info_t& info) {
  print(
      "weights    packed to {} in groups of {}, {}; {} channels in FP16; relative error of the "
      "weights {:.2e}\n",
      base::find_format(info.precision)->name, info.group_size,
      bytes_text(static_cast<double>(info.bytes)), info.outlier_channels,
      info.relative_frobenius_error);
}

base::Result<ExitCode> print_verification(const Plan& plan, const gemm_launch_args_t& args) {
  deepgemm_verification_t result = {};
  DEEPGEMM_CALL(deepgemm_verify_plan(plan.get(), &args, &result));
  const bool kept = result.contract_kept && result.bound_kept;
  print(
      "verified   {} elements: relative error at most {}, bound {}; largest absolute error {}; {} "
      "outside, {} not finite, {} rows damaged\n",
      result.elements, error_text(result.max_relative_error), error_text(result.bound_relative),
      error_text(result.max_absolute_error), result.outside, result.nonfinite, result.damaged_rows);
  print("verdict    {}\n",
        kept ? paint(Color::kGreen, "contract kept") : paint(Color::kRed, "CONTRACT BROKEN"));
  return kept ? ExitCode::kOk : ExitCode::kCheckFailed;
}

base::Result<ExitCode> launch_and_report(const Options& options, const NamedProblem& named,
                                         const Plan& plan, Operands operands) {
  const gemm_launch_args_t args = operands.args();
  constexpr TimingLimits kLimits = {0.3, 3, 1000};
  // With beta each launch would add to the last one's result.
  const TimingLimits limits = named.problem.beta == 0 ? kLimits : TimingLimits{0, 0, 0};
  Timing timing;
  if (limits.max_runs > 0) {
    DEEPGEMM_TRY_ASSIGN(measured, time_launches(plan, limits, [&](int64_t) { return args; }));
    timing = measured;
  } else {
    DEEPGEMM_CALL(deepgemm_launch_plan_args(plan.get(), &args));
  }
  print("problem    {}\n", named.line);
  print("path       {} on {} ({})\n", plan.info().path, plan.info().family, plan.info().device);
  print("bound      relative {}, absolute {}\n", error_text(plan.info().bound_relative),
        error_text(plan.info().bound_absolute));
  if (plan.info().packed_b) print_packing(operands.packed.info());
  if (timing.runs > 0) {
    print("time       {} median of {} ({} - {}); predicted {}\n", time_text(timing.median),
          timing.runs, time_text(timing.p10), time_text(timing.p90),
          time_text(plan.info().predicted_us));
  }
  if (!options.output.empty()) {
    DEEPGEMM_TRY(operands.c.fetch());
    DEEPGEMM_TRY(save_matrix(options.output, named.problem.c.precision, named.problem.m,
                             named.problem.output_columns(),
                             load_result(named.problem, operands, 0)));
    print("output     {}\n", options.output);
  }
  return options.verify ? print_verification(plan, args) : ExitCode::kOk;
}

base::Result<ExitCode> run_files(const Options& options) {
  if (options.a.empty() || options.b.empty()) {
    return usage_error("--A and --B go together; name both files, or none for random matrices");
  }
  DEEPGEMM_TRY_ASSIGN(a, load_matrix(options.a));
  DEEPGEMM_TRY_ASSIGN(b, load_matrix(options.b));
  DEEPGEMM_TRY_ASSIGN(named, problem_of_files(options, a, b));
  DEEPGEMM_TRY_ASSIGN(plan, Plan::create(named));
  DEEPGEMM_TRY_ASSIGN(inputs, inputs_of_files(named, plan.info().packed_b, a, b));
  std::vector<contract::ReferenceProblem> values = {blank_values(named.problem)};
  values.front().a = std::move(inputs.a);
  values.front().b = std::move(inputs.b);
  DEEPGEMM_TRY_ASSIGN(operands, store_operands(named.problem, plan, std::move(values), {}));
  return launch_and_report(options, named, plan, std::move(operands));
}

base::Result<ExitCode> run_random(const Options& options) {
  DEEPGEMM_TRY_ASSIGN(problems, options.problem.problems());
  if (problems.size() > 1) {
    return usage_error("{} problems given; run takes one, bench and verify take many",
                       problems.size());
  }
  const NamedProblem& named = problems.front();
  DEEPGEMM_TRY_ASSIGN(plan, Plan::create(named));
  auto values = generate_values(named.problem, plan.info().packed_b, contract::InputSet::kGaussian,
                                options.seed);
  DEEPGEMM_TRY_ASSIGN(operands, store_operands(named.problem, plan, std::move(values), {}));
  return launch_and_report(options, named, plan, std::move(operands));
}

}  // namespace

Verb add_run(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "run", "Compute one product, of matrices in files or of random ones, and say how");
  options->problem.add_to(*command, ProblemOptions::Count::kOne);
  command->add_option("--A", options->a, "matrix A: <file>.safetensors:<tensor> or <file>.npy");
  command->add_option("--B", options->b, "matrix B; quantised when --b names a packed format");
  command->add_option("--output", options->output, "file for C: .npy or .safetensors");
  command->add_option("--input-seed", options->seed, "seed of random matrices")
      ->capture_default_str();
  command->add_flag("--verify", options->verify,
                    "compare with the FP64 reference; exit code 1 when "
                    "the contract is broken");
  return {command, [options] {
            return options->a.empty() && options->b.empty() ? run_random(*options)
                                                            : run_files(*options);
          }};
}

}  // namespace deepgemm::cli
