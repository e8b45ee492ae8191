#include "runtime/report.hpp"

#include <nlohmann/json.hpp>

namespace deepgemm::runtime {
namespace {

std::optional<Measured> measured_of(const deepgemm_plan& plan) {
  const std::lock_guard lock(plan.mutex);
  return plan.measured;
}

// The report with the measured error in its certificate.
schedule::Report with_measured(const deepgemm_plan& plan, const PlanData& data) {
  schedule::Report report = data.report;
  if (const auto measured = measured_of(plan)) {
    report.choice->certificate.measured_relative = measured->relative;
    report.choice->certificate.measured_absolute = measured->absolute;
  }
  return report;
}

}  // namespace

std::string explain_report(const schedule::Report& report, deepgemm_explain_format_t format) {
  return format == DEEPGEMM_EXPLAIN_JSON ? schedule::report_json(report)
                                         : schedule::report_text(report);
}

std::string explain_plan(const deepgemm_plan& plan, deepgemm_explain_format_t format) {
  const PlanData& data = plan.data();
  std::string text = explain_report(with_measured(plan, data), format);
  const bool launchable = data.executable != nullptr;
  const size_t workspace = data.workspace_bytes();
  const std::string note = launchable ? data.executable->note() : "";
  if (format == DEEPGEMM_EXPLAIN_JSON) {
    auto report = nlohmann::ordered_json::parse(text);
    report["run_time"] = {{"launchable", launchable}, {"workspace_bytes", workspace}};
    if (!note.empty()) report["run_time"]["kernel"] = note;
    return report.dump(2);
  }
  if (!text.empty() && text.back() != '\n') text += '\n';
  text +=
      launchable
          ? fmt::format("run time    launchable in this process, workspace {} bytes\n", workspace)
          : fmt::format("run time    not launchable in this process, which does not run on {}\n",
                        data.device->profile().name);
  if (!note.empty()) text += fmt::format("kernel      {}\n", note);
  return text;
}

}  // namespace deepgemm::runtime
