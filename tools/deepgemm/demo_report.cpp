#include "deepgemm/demo_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "backend/cpu/device.hpp"
#include "deepgemm/terminal.hpp"

namespace deepgemm::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kWidth = 100;

constexpr const char* kIntroduction =
    "   Each linear is y = x W^T. A contract says how exact y must be. DeepGEMM takes the fastest "
    "arithmetic that provably keeps it and says what it refused and why. Then every element of y "
    "is compared with an exact reference, so that the promise is seen to be kept.";

// The columns of the tables.
constexpr std::pair<const char*, const char*> kWords[] = {
    {"bound",
     "error the arithmetic cannot exceed, known before it runs; a share of the element's "
     "sum of |x||w|"},
    {"measured", "largest error found, same measure; it must be below the bound"},
    {"W off",
     "how far the packed weights are from the model's, over the whole matrix (Frobenius "
     "norm)"},
    {"y off", "how far y is from the exact product of the model's weights, over the whole matrix"},
};

std::string item(const char* name, const std::string& text) {
  return wrapped(fmt::format("   {:<10}{}", name, text), kWidth, 13);
}

std::string verdict(bool kept) {
  return kept ? paint(Color::kGreen, "kept") : paint(Color::kRed, "BROKEN");
}

std::string percent(double value, int digits) {
  return fmt::format("{:.{}f} %", 100 * value, digits);
}

double share_of_bound(const LinearResult& linear) {
  return linear.verified.max_relative_error / linear.plan.bound_relative;
}

// ---- Refusals
// ------------------------------------------------------------------------------------

// Candidates refused for one reason.
struct RefusalGroup {
  std::string check, reason;
  std::vector<std::string> subjects;  // paths, or families where a device lacks them
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Reasons that differ in the name of the refused alone are told once: the name is left out, and of
// "path fp8 takes fp8 for both operands; A is fp32 and B is fp32" what is true of others too.
std::string common_reason(const std::string& check, std::string reason,
                          const std::string& subject) {
  if (check == "contract") return reason;
  if (check == "backend") return "kernels for NVIDIA GPUs, and this plan is for the CPU";
  const size_t rule = check == "path" ? reason.find(": ") : std::string::npos;
  if (rule != std::string::npos) return reason.substr(rule + 2);
  const size_t operands = reason.find("; ");
  if (reason.starts_with("path " + subject) && operands != std::string::npos) {
    return "made for other formats: " + reason.substr(operands + 2);
  }
  replace_all(reason, "rounded to " + subject, "rounded");
  return reason;
}

std::vector<RefusalGroup> refusal_groups(const Json& report) {
  std::vector<RefusalGroup> groups;
  for (const Json& candidate : report["candidates"]) {
    const Json& refusal = candidate["refusal"];
    if (refusal.is_null()) continue;
    const auto check = refusal["check"].get<std::string>();
    const auto subject =
        candidate[candidate["path"].is_null() ? "family" : "path"].get<std::string>();
    const std::string reason = common_reason(check, refusal["reason"].get<std::string>(), subject);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const RefusalGroup& group) {
      return group.check == check && group.reason == reason;
    });
    RefusalGroup& group = same != groups.end() ? *same : groups.emplace_back();
    group.check = check;
    group.reason = reason;
    if (std::count(group.subjects.begin(), group.subjects.end(), subject) == 0) {
      group.subjects.push_back(subject);
    }
  }
  // What the contract itself refused says most.
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return (a.check == "contract") > (b.check == "contract");
  });
  return groups;
}

// ---- One contract
// --------------------------------------------------------------------------------

std::string choice_text(const ContractResult& result) {
  const LinearResult& first = result.linears.front();
  std::vector<std::string> others;
  for (const LinearResult& linear : result.linears) {
    if (linear.path == first.path && linear.family == first.family) continue;
    others.push_back(fmt::format("{}: {} on {}", linear.name, linear.path, linear.family));
  }
  return fmt::format(
      "{} on {}{}", first.path, first.family,
      others.empty() ? " for every linear" : fmt::format("; {}", fmt::join(others, "; ")));
}

std::string bound_text(const Json& certificate) {
  std::vector<std::string> terms;
  for (const Json& term : certificate["bound"]["terms"]) {
    terms.push_back(
        fmt::format("{:.1e} {}", term["relative"].get<double>(), term["what"].get<std::string>()));
  }
  std::string text = fmt::format("{}", fmt::join(terms, " + "));
  const Json& magnitude = certificate["magnitude_limit"];
  if (magnitude.is_number() && magnitude.get<double>() > 0) {
    text += fmt::format("; keeps the absolute limit while sums of |x||w| stay below {:.3g}",
                        magnitude.get<double>());
  }
  return text;
}

std::string contract_text(int number, const ContractResult& result) {
  const Json& report = result.linears.front().report;
  std::string text =
      paint(Color::kBold, fmt::format("{}. {}", number, result.contract.title)) + "\n";
  text += wrapped(fmt::format("   {}", result.contract.meaning), kWidth, 3);
  text += item("declared", result.contract.fields);
  text += item("chosen", choice_text(result));
  text += item("why", report["choice"]["why"].get<std::string>());
  text +=
      item("bound", fmt::format("{} = {}", error_text(result.linears.front().plan.bound_relative),
                                bound_text(report["choice"]["certificate"])));
  const char* name = "refused";
  for (const RefusalGroup& group : refusal_groups(report)) {
    text += item(name, fmt::format("{}: {}", fmt::join(group.subjects, ", "), group.reason));
    name = "";
  }
  return text;
}

std::string dense_text(int number, const ContractResult& result, const DemoResults& demo) {
  Table table({"linear", "M x N x K", ">bound", ">measured", ">of bound", ">y off", ">time",
               ">GFLOP/s", "verdict"});
  for (size_t i = 0; i < result.linears.size(); ++i) {
    const LinearResult& linear = result.linears[i];
    const Linear& source = demo.sample.linears[i];
    table.add({linear.name, fmt::format("{} x {} x {}", source.tokens, source.out, source.in),
               error_text(linear.plan.bound_relative),
               error_text(linear.verified.max_relative_error), percent(share_of_bound(linear), 0),
               error_text(linear.output_error), time_text(linear.timing.median),
               fmt::format("{:.1f}", linear.gflops), verdict(linear.kept())});
  }
  return contract_text(number, result) + "\n" + table.text("   ") + "\n";
}

// A line that names the two halves of a table, above the bars that begin them.
std::string half_titles(const std::string& table) {
  const size_t first = table.find('|');
  const size_t second = table.find('|', first + 1);
  return fmt::format("{:<{}}|  {:<{}}|  {}\n", "", first, "all channels in 4 bits",
                     second - first - 3, "outlier channels in FP16");
}

std::string int4_text(int number, const ContractResult& without, const ContractResult& with) {
  Table table({"linear", ">abs. error", "|", ">W off", ">y off", ">time", "|", ">W off", ">y off",
               ">time", ">FP16", "verdict"});
  for (size_t i = 0; i < with.linears.size(); ++i) {
    const LinearResult& left = without.linears[i];
    const LinearResult& right = with.linears[i];
    table.add({right.name, error_text(right.verified.max_absolute_error), "|",
               percent(left.packed.relative_frobenius_error, 2), percent(left.output_error, 2),
               time_text(left.timing.median), "|",
               percent(right.packed.relative_frobenius_error, 2), percent(right.output_error, 2),
               time_text(right.timing.median), fmt::format("{}", right.packed.outlier_channels),
               verdict(left.kept() && right.kept())});
  }
  const double extra = with.weight_bytes() - without.weight_bytes();
  const std::string rows = table.text("   ");
  return contract_text(number, with) + "\n" + half_titles(rows) + rows +
         wrapped(fmt::format(
                     "   The channels in FP16 cost {} more and bring the worst y from {} off to "
                     "{}.",
                     bytes_text(extra), percent(without.worst_output_error(), 1),
                     percent(with.worst_output_error(), 1)),
                 kWidth, 3) +
         "\n";
}

// ---- The frame
// -----------------------------------------------------------------------------------

std::string head_text(const DemoResults& demo) {
  const cpu::CpuDevice& device = cpu::cpu_device();
  const LayerSample& sample = demo.sample;
  std::string text =
      paint(Color::kBold, "DeepGEMM demo: one decoder layer of a real model, three contracts") +
      "\n\n";
  text += item("model", fmt::format("{}, layer {} of {}; weights are FP16", sample.model,
                                    sample.layer, sample.layers_in_model));
  text += item("input", fmt::format("real activations of {} tokens: \"{:.50}...\"",
                                    sample.linears.front().tokens, sample.text));
  text += item("machine", fmt::format("{}, {}, {} threads; no GPU is used", device.model,
                                      cpu::isa_name(device.isa), device.threads));
  text += '\n';
  text += wrapped(kIntroduction, kWidth, 3);
  text += '\n';
  for (const auto& [name, meaning] : kWords) text += item(name, meaning);
  return text + "\n";
}

std::string summary_text(const DemoResults& demo) {
  Table table({"contract", ">weights", ">time of 7", ">worst error of bound", ">W off", ">y off",
               "verdict"});
  for (const ContractResult* result : demo.all()) {
    table.add({result->contract.name, bytes_text(result->weight_bytes()),
               time_text(result->total_us()), percent(result->worst_share_of_bound(), 0),
               error_text(result->worst_weight_error()), error_text(result->worst_output_error()),
               verdict(result->kept())});
  }
  return paint(Color::kBold, "SUMMARY OF THE LAYER") + "\n" + table.text("   ") + "\n" +
         (demo.kept() ? paint(Color::kGreen, "Every contract was kept.")
                      : paint(Color::kRed, "A CONTRACT WAS BROKEN.")) +
         "\n";
}

Json linear_json(const LinearResult& linear) {
  Json json = {{"linear", linear.name},
               {"line", linear.line},
               {"path", linear.path},
               {"family", linear.family},
               {"bound_relative", linear.plan.bound_relative},
               {"measured_relative", linear.verified.max_relative_error},
               {"measured_absolute", linear.verified.max_absolute_error},
               {"output_error", linear.output_error},
               {"us", linear.timing.median},
               {"spread", {{"p10", linear.timing.p10}, {"p90", linear.timing.p90}}},
               {"gflops", linear.gflops},
               {"weight_bytes", linear.weight_bytes},
               {"kept", linear.kept()}};
  if (linear.plan.packed_b) {
    json["weight_error"] = linear.packed.relative_frobenius_error;
    json["outlier_channels"] = linear.packed.outlier_channels;
  }
  return json;
}

}  // namespace

bool DemoResults::kept() const {
  const auto results = all();
  return std::all_of(results.begin(), results.end(), [](const auto* r) { return r->kept(); });
}

std::string demo_text(const DemoResults& demo) {
  return head_text(demo) + dense_text(1, demo.strict, demo) + dense_text(2, demo.half, demo) +
         int4_text(3, demo.int4, demo.outliers) + summary_text(demo);
}

std::string demo_json(const DemoResults& demo) {
  Json report = {{"sample", demo.sample.path},
                 {"model", demo.sample.model},
                 {"layer", demo.sample.layer},
                 {"kept", demo.kept()},
                 {"contracts", Json::array()}};
  for (const ContractResult* result : demo.all()) {
    Json linears = Json::array();
    for (const LinearResult& linear : result->linears) linears.push_back(linear_json(linear));
    report["contracts"].push_back({{"contract", result->contract.key},
                                   {"fields", result->contract.fields},
                                   {"kept", result->kept()},
                                   {"report", result->linears.front().report},
                                   {"linears", linears}});
  }
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace deepgemm::cli
