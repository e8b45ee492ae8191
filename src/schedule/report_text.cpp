#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "base/formats.hpp"
#include "schedule/outcome.hpp"
#include "schedule/planner.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

const char* path_name(contract::PathId path) { return contract::path_info(path).name; }

// Columns as wide as their widest cell, two spaces between them.
std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const size_t width = i + 1 < row.size() ? widths[i] : 0;
      fmt::format_to(std::back_inserter(line), " {:<{}}", row[i], width);
    }
    text += line + "\n";
  }
  return text;
}

// "1 - 1e-09" reads better than 0.999999999.
std::string confidence_text(double confidence) {
  return confidence >= 1 ? "1" : fmt::format("1 - {:.3g}", 1 - confidence);
}

std::string contract_text(const contract::Contract& contract) {
  std::string text;
  if (contract.native) {
    text = contract.tf32_allowed ? "native: operands may be rounded to tf32, sums at least FP32"
                                 : "native: operands are not rounded, sums at least FP32";
  }
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (contract.max_relative_error > 0) {
    add(fmt::format("relative error {:.3g}", contract.max_relative_error));
  }
  if (contract.max_absolute_error > 0) {
    add(fmt::format("absolute error {:.3g}", contract.max_absolute_error));
  }
  add(contract.confidence > 0
          ? fmt::format("confidence {} per element", confidence_text(contract.confidence))
          : std::string("worst case"));
  if (contract.safe_accumulation) add("safe accumulation");
  if (contract.reproducibility == REPRODUCIBILITY_RUN_TO_RUN) add("run-to-run reproducible");
  if (contract.reproducibility == REPRODUCIBILITY_BATCH_INVARIANT) add("batch-invariant");
  return text;
}

std::string bound_text(const contract::ErrorBound& bound) {
  return fmt::format("{:.3g}", bound.relative);
}

std::string certificate_text(const contract::Certificate& certificate) {
  const contract::ErrorBound& bound = certificate.bound;
  std::string text = fmt::format("error <= {:.3g} * (|alpha| |A||B| + |beta C|) + {:.3g}, ",
                                 bound.relative, bound.absolute);
  text += bound.basis == BOUND_BASIS_PROBABILISTIC
              ? fmt::format("probabilistic, confidence {}", confidence_text(bound.confidence))
              : std::string("worst case");
  if (certificate.magnitude_limit > 0) {
    text += fmt::format("; the absolute limit holds while |A||B| <= {:.3g}",
                        certificate.magnitude_limit);
  }
  text += certificate.measured_relative
              ? fmt::format("; measured {:.3g}", *certificate.measured_relative)
              : std::string("; not measured yet");
  return text;
}

const char* layout_name(const gemm_layout_t& layout) {
  return intent::physical_layout_name(layout.physical_layout);
}

std::string energy_text(const CostEstimate& cost) {
  return cost.energy_mj > 0 ? fmt::format(", {:.3g} mJ", cost.energy_mj) : ", energy unknown";
}

std::string choice_section(const Report& report) {
  const Choice& choice = *report.choice;
  const CostEstimate& cost = choice.cost;
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<12}{}\n", name, value);
  };
  line("chosen",
       fmt::format("{} on {} {}, for M up to {}, {} {}", path_name(choice.path),
                   choice.family->name, config_name(choice.config), choice.m_bucket, choice.threads,
                   choice.family->backend == Backend::kCpu ? "threads" : "SMs"));
  line("",
       fmt::format("{}; {}", contract::path_info(choice.path).description, choice.family->design));
  line("predicted",
       fmt::format("{:.4g} us{}; bound by {}: compute {:.3g} us, memory {:.3g} us, launch {:.3g} "
                   "us, {:.3g} waves",
                   cost.us, energy_text(cost), cost.bound_by, cost.compute_us, cost.memory_us,
                   cost.launch_us, cost.waves));
  line("why", compare_with_next(report));
  line("certificate", certificate_text(choice.certificate));
  for (const contract::BoundTerm& term : choice.certificate.bound.terms) {
    line("", fmt::format("{:.3g}  {}", term.relative, term.what));
  }
  for (const std::string& condition : choice.certificate.bound.conditions) {
    line("", "provided " + condition);
  }
  line("layouts", fmt::format("A {}, B {}, C {}", layout_name(choice.layout_a),
                              choice.packed_b ? "packed" : layout_name(choice.layout_b),
                              layout_name(choice.layout_c)));
  return text;
}

// The best configuration of each path and family that passes every check, best first.
std::vector<const Candidate*> admissible(const Report& report) {
  std::vector<const Candidate*> best;
  for (const Candidate& candidate : report.candidates) {
    if (candidate.refusal) continue;
    const auto same = std::ranges::find_if(best, [&](const Candidate* other) {
      return other->family == candidate.family && other->path == candidate.path;
    });
    if (same == best.end()) {
      best.push_back(&candidate);
    } else if (*candidate.score < *(*same)->score) {
      *same = &candidate;
    }
  }
  std::ranges::stable_sort(best, {}, [](const Candidate* c) { return *c->score; });
  return best;
}

std::string candidate_section(const Report& report) {
  const auto best = admissible(report);
  if (best.empty()) return {};
  std::vector<std::vector<std::string>> rows = {
      {"path", "family", "configuration", "bound", "us", "score", "mJ", "bound by"}};
  for (const Candidate* candidate : best) {
    const CostEstimate& cost = *candidate->cost;
    rows.push_back({path_name(candidate->path), candidate->family->name,
                    config_name(candidate->config), bound_text(*candidate->bound),
                    fmt::format("{:.4g}", cost.us), fmt::format("{:.4g}", *candidate->score),
                    cost.energy_mj > 0 ? fmt::format("{:.3g}", cost.energy_mj) : "-",
                    cost.bound_by});
  }
  return fmt::format(
             "\ncandidates (best configuration of each path and family; us for M = {}, score for "
             "the bucket)\n",
             report.problem.m) +
         format_table(rows);
}

// Candidates that fail the same check for the same reason share a line.
struct RefusalGroup {
  const Refusal* refusal;
  std::vector<std::string> families;
  std::vector<std::string> subjects;  // paths, or path and configuration
};

// Which paths a family lacks, and which tiles are too large, is told in one line a family.
bool is_missing_path(const Refusal& refusal) { return refusal.check == "path"; }
bool groups_by_family(const Refusal& refusal) {
  return is_missing_path(refusal) || refusal.check == "shared_memory";
}

void add_once(std::vector<std::string>& list, std::string text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

std::vector<RefusalGroup> refusal_groups(const Report& report) {
  std::vector<RefusalGroup> groups;
  for (const Candidate& candidate : report.candidates) {
    if (!candidate.refusal) continue;
    const Refusal& refusal = *candidate.refusal;
    const auto same = std::ranges::find_if(groups, [&](const RefusalGroup& group) {
      return group.refusal->check == refusal.check &&
             (groups_by_family(refusal) ? group.families.front() == candidate.family->name
                                        : group.refusal->reason == refusal.reason);
    });
    RefusalGroup& group =
        same != groups.end() ? *same : groups.emplace_back(RefusalGroup{&refusal, {}, {}});
    add_once(group.families, candidate.family->name);
    std::string subject = candidate.whole_family ? "all" : path_name(candidate.path);
    if (!candidate.any_config) subject += " " + config_name(candidate.config);
    add_once(group.subjects, std::move(subject));
  }
  return groups;
}

std::string group_subjects(const RefusalGroup& group) {
  constexpr size_t kShown = 4;  // the JSON report has all of them
  const size_t shown = is_missing_path(*group.refusal) ? group.subjects.size()
                                                       : std::min(kShown, group.subjects.size());
  std::string text = fmt::format(
      "{}", fmt::join(group.subjects.begin(),
                      group.subjects.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < group.subjects.size()) {
    text += fmt::format(" and {} more", group.subjects.size() - shown);
  }
  return text;
}

std::string refusal_section(const Report& report) {
  std::vector<std::vector<std::string>> rows;
  for (const RefusalGroup& group : refusal_groups(report)) {
    const bool several = is_missing_path(*group.refusal) && group.subjects.size() > 1;
    rows.push_back({fmt::format("{}", fmt::join(group.families, ", ")), group.refusal->check,
                    fmt::format("{}: {}", group_subjects(group),
                                several ? "no kernels for these paths" : group.refusal->reason)});
  }
  if (rows.empty()) return {};
  return "\nrefused (first check that failed)\n" + format_table(rows);
}

}  // namespace

std::string report_text(const Report& report) {
  std::string text = intent::format_line(report.problem) + "\n";
  fmt::format_to(std::back_inserter(text), "{:<12}{} ({})\n", "device", report.device,
                 report.title);
  fmt::format_to(std::back_inserter(text), "{:<12}{}\n", "contract",
                 contract_text(report.problem.contract));
  if (report.choice) {
    text += choice_section(report);
  } else if (report.failure) {
    fmt::format_to(std::back_inserter(text), "{:<12}{}\n", "no plan", report.failure->message);
  }
  text += candidate_section(report);
  text += refusal_section(report);
  if (report.choice && !report.choice->notes.empty()) {
    text += "\nnotes\n";
    for (const std::string& note : report.choice->notes) text += "  " + note + "\n";
  }
  return text;
}

}  // namespace deepgemm::schedule
