// deepgemm plan, deepgemm explain: what would be done for a problem, and why.
#include <memory>

#include "deepgemm/problem_options.hpp"
#include "deepgemm/product.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

struct Options {
  ProblemOptions problem;
  bool json = false;
};

base::Result<ExitCode> run_plan(const Options& options) {
  DEEPGEMM_TRY_ASSIGN(problems, options.problem.problems());
  if (problems.size() > 1) {
    return usage_error("{} problems given; plan takes one, quoted or not", problems.size());
  }
  const auto format = options.json ? DEEPGEMM_EXPLAIN_JSON : DEEPGEMM_EXPLAIN_TEXT;
  const base::Result<Plan> plan = Plan::create(problems.front());
  // Without a plan the report still says what was tried and why it was refused.
  DEEPGEMM_TRY_ASSIGN(
      report, plan.ok() ? plan->explain(format) : explain_problem(problems.front(), format));
  print("{}{}", report, report.ends_with('\n') ? "" : "\n");
  if (!plan.ok()) return plan.error();
  return ExitCode::kOk;
}

}  // namespace

Verb add_plan(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "plan",
      "Show what would be done for a problem: path, family, error bound, time, and what was "
      "refused and why. Needs no such device: --device h200 plans for an H200");
  command->alias("explain");
  options->problem.add_to(*command, ProblemOptions::Count::kOne);
  command->add_flag("--json", options->json, "the report as JSON (docs/plan_report.md)");
  return {command, [options] { return run_plan(*options); }};
}

}  // namespace deepgemm::cli
