#include "deepgemm/demo_measure.hpp"

#include <algorithm>
#include <cmath>

#include "deepgemm/product.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

double relative_distance(const std::vector<double>& values, const std::vector<double>& exact) {
  double distance = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    distance += (values[i] - exact[i]) * (values[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return size > 0 ? std::sqrt(distance / size) : 0;
}

template <class Figure>
double largest(const std::vector<LinearResult>& linears, const Figure& figure) {
  double result = 0;
  for (const LinearResult& linear : linears) result = std::max(result, figure(linear));
  return result;
}

base::Result<Operands> operands_of(const Linear& linear, const NamedProblem& named,
                                   const Plan& plan) {
  std::vector<contract::ReferenceProblem> values = {blank_values(named.problem)};
  values.front().a = linear.x;
  values.front().b = linear.w;
  return store_operands(named.problem, plan, std::move(values), linear.channel_importance);
}

}  // namespace

bool ContractResult::kept() const {
  return std::all_of(linears.begin(), linears.end(), [](const auto& l) { return l.kept(); });
}

double ContractResult::total_us() const {
  double total = 0;
  for (const LinearResult& linear : linears) total += linear.timing.median;
  return total;
}

double ContractResult::weight_bytes() const {
  double total = 0;
  for (const LinearResult& linear : linears) total += linear.weight_bytes;
  return total;
}

double ContractResult::worst_share_of_bound() const {
  return largest(linears, [](const LinearResult& l) {
    return l.plan.bound_relative > 0 ? l.verified.max_relative_error / l.plan.bound_relative : 0;
  });
}

double ContractResult::worst_output_error() const {
  return largest(linears, [](const LinearResult& l) { return l.output_error; });
}

double ContractResult::worst_weight_error() const {
  return largest(linears, [](const LinearResult& l) { return l.packed.relative_frobenius_error; });
}

base::Result<LinearResult> measure_linear(const Linear& linear, const DemoContract& contract) {
  const std::string line = fmt::format("nt m={} n={} k={} {} device=cpu", linear.tokens, linear.out,
                                       linear.in, contract.fields);
  DEEPGEMM_TRY_ASSIGN(named, parse_problem(line));
  DEEPGEMM_TRY_ASSIGN(plan, Plan::create(named));
  DEEPGEMM_TRY_ASSIGN(operands, operands_of(linear, named, plan));
  const gemm_launch_args_t args = operands.args();
  LinearResult result;
  result.name = linear.name;
  result.line = named.line;
  result.plan = plan.info();
  result.path = plan.info().path;
  result.family = plan.info().family;
  DEEPGEMM_CALL(deepgemm_verify_plan(plan.get(), &args, &result.verified));
  DEEPGEMM_TRY(operands.c.fetch());
  result.output_error = relative_distance(load_result(named.problem, operands, 0), linear.y);
  if (plan.info().packed_b) result.packed = operands.packed.info();
  result.weight_bytes = plan.info().packed_b ? static_cast<double>(result.packed.bytes)
                                             : static_cast<double>(operands.b.memory().size());
  constexpr TimingLimits kLimits = {0.03, 5, 500};
  DEEPGEMM_TRY_ASSIGN(timing, time_launches(plan, kLimits, [&](int64_t) { return args; }));
  result.timing = timing;
  result.gflops = 2.0 * static_cast<double>(linear.tokens) * static_cast<double>(linear.out) *
                  static_cast<double>(linear.in) / timing.median / 1e3;
  DEEPGEMM_TRY_ASSIGN(report, plan.explain(DEEPGEMM_EXPLAIN_JSON));
  result.report = nlohmann::ordered_json::parse(report);
  return result;
}

}  // namespace deepgemm::cli
