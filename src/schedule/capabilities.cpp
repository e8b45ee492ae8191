#include "schedule/capabilities.hpp"

#include <fmt/format.h>

#include <iterator>

#include "base/formats.hpp"

namespace deepgemm::schedule {
namespace {

struct Formats {
  gemm_precision_t a, b;
};

constexpr Formats kCombinations[] = {
    {PRECISION_FP64, PRECISION_FP64},         {PRECISION_FP32, PRECISION_FP32},
    {PRECISION_FP16, PRECISION_FP16},         {PRECISION_BF16, PRECISION_BF16},
    {PRECISION_FP8_E4M3, PRECISION_FP8_E4M3}, {PRECISION_FP8_E5M2, PRECISION_FP8_E4M3},
    {PRECISION_INT8, PRECISION_INT8},         {PRECISION_FP16, PRECISION_INT8},
    {PRECISION_BF16, PRECISION_INT8},         {PRECISION_FP16, PRECISION_FP8_E4M3},
    {PRECISION_BF16, PRECISION_FP8_E4M3},     {PRECISION_FP32, PRECISION_INT4},
    {PRECISION_FP16, PRECISION_INT4},         {PRECISION_BF16, PRECISION_INT4},
    {PRECISION_INT8, PRECISION_INT4},         {PRECISION_FP8_E4M3, PRECISION_INT4},
};

std::string answer(const Formats& formats, int64_t m, const DeviceProfile& profile,
                   const PlannerOptions& options, Capability& capability) {
  constexpr int64_t kWidth = 4096;
  gemm_intent_t intent = {};
  intent.operation = GEMM_OP_NT;
  intent.numerical_contract.activation_precision = formats.a;
  intent.numerical_contract.weight_precision = formats.b;
  intent.numerical_contract.input_precision = base::is_int4(formats.b) ? formats.b : formats.a;
  const auto problem = intent::resolve(intent, m, kWidth, kWidth);
  if (!problem.ok()) {
    capability.refusal = problem.error().message;
    return {};
  }
  capability.c = problem->c.precision;
  const Report report = plan(*problem, profile, DeviceState{}, options);
  if (!report.choice) {
    capability.refusal = report.failure->message;
    return {};
  }
  return fmt::format("{} on {}", contract::path_info(report.choice->path).name,
                     report.choice->family->name);
}

}  // namespace

std::vector<Capability> capabilities(const DeviceProfile& profile, const PlannerOptions& options) {
  constexpr int64_t kDecode = 1, kPrefill = 4096;
  std::vector<Capability> table;
  for (const Formats& formats : kCombinations) {
    Capability capability;
    capability.a = formats.a;
    capability.b = formats.b;
    capability.decode = answer(formats, kDecode, profile, options, capability);
    capability.prefill = answer(formats, kPrefill, profile, options, capability);
    table.push_back(std::move(capability));
  }
  return table;
}

std::string capability_text(const std::vector<Capability>& table) {
  std::string text =
      fmt::format("{:<9} {:<9} {:<6} {:<20} {}\n", "A", "B", "C", "M = 1", "M = 4096");
  for (const Capability& row : table) {
    const auto name = [](gemm_precision_t p) { return base::find_format(p)->name; };
    const auto cell = [](const std::string& answer) { return answer.empty() ? "-" : answer; };
    fmt::format_to(std::back_inserter(text), "{:<9} {:<9} {:<6} {:<20} {}{}\n", name(row.a),
                   name(row.b), name(row.c), cell(row.decode), cell(row.prefill),
                   row.refusal.empty() ? "" : "  (" + row.refusal + ")");
  }
  return text;
}

}  // namespace deepgemm::schedule
