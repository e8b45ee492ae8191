// The report as JSON; docs/plan_report.md is its schema. Keys keep their order.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "schedule/outcome.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::schedule {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json config_json(const KernelConfig& c) {
  return {{"block", {c.block_m, c.block_n, c.block_k}},
          {"warp", {c.warp_m, c.warp_n, c.warp_k}},
          {"stages", c.stages},
          {"split_k", c.split_k},
          {"cluster", c.cluster}};
}

Json bound_json(const contract::ErrorBound& bound) {
  Json terms = Json::array();
  for (const contract::BoundTerm& term : bound.terms) {
    terms.push_back({{"what", term.what}, {"relative", number(term.relative)}});
  }
  return {{"relative", number(bound.relative)},
          {"absolute", number(bound.absolute)},
          {"basis", bound.basis == BOUND_BASIS_PROBABILISTIC ? "probabilistic" : "worst_case"},
          {"confidence", bound.confidence},
          {"terms", terms},
          {"conditions", bound.conditions}};
}

Json cost_json(const CostEstimate& cost) {
  return {{"us", number(cost.us)},
          {"compute_us", number(cost.compute_us)},
          {"memory_us", number(cost.memory_us)},
          {"launch_us", number(cost.launch_us)},
          {"repack_us", number(cost.repack_us)},
          {"energy_mj", cost.energy_mj > 0 ? Json(cost.energy_mj) : Json(nullptr)},
          {"flops", number(cost.flops)},
          {"bytes", number(cost.bytes)},
          {"waves", number(cost.waves)},
          {"bound_by", cost.bound_by}};
}

Json candidate_json(const Candidate& candidate) {
  Json json;
  json["path"] =
      candidate.whole_family ? Json(nullptr) : Json(contract::path_info(candidate.path).name);
  json["family"] = candidate.family->name;
  json["config"] = candidate.any_config ? Json(nullptr) : config_json(candidate.config);
  json["bound"] = candidate.bound ? number(candidate.bound->relative) : Json(nullptr);
  json["cost"] = candidate.cost ? cost_json(*candidate.cost) : Json(nullptr);
  json["score"] = candidate.score ? number(*candidate.score) : Json(nullptr);
  json["refusal"] = nullptr;
  if (candidate.refusal) {
    json["refusal"] = {{"check", candidate.refusal->check}, {"reason", candidate.refusal->reason}};
  }
  return json;
}

Json layout_json(const gemm_layout_t& layout) {
  return {{"physical", intent::physical_layout_name(layout.physical_layout)},
          {"shape", layout.logical_shape},
          {"strides", layout.strides}};
}

Json certificate_json(const contract::Certificate& certificate) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? number(*value) : Json(nullptr);
  };
  return {{"bound", bound_json(certificate.bound)},
          {"relative_limit", certificate.relative_limit},
          {"absolute_limit", certificate.absolute_limit},
          {"magnitude_limit", number(certificate.magnitude_limit)},
          {"measured_relative", optional(certificate.measured_relative)},
          {"measured_absolute", optional(certificate.measured_absolute)}};
}

Json choice_json(const Report& report) {
  const Choice& choice = *report.choice;
  Json json;
  json["path"] = contract::path_info(choice.path).name;
  json["family"] = choice.family->name;
  json["config"] = config_json(choice.config);
  json["m_bucket"] = choice.m_bucket;
  json["units"] = choice.threads;
  json["packed_b"] = choice.packed_b;
  json["layouts"] = {{"a", layout_json(choice.layout_a)},
                     {"b", layout_json(choice.layout_b)},
                     {"c", layout_json(choice.layout_c)}};
  json["cost"] = cost_json(choice.cost);
  json["why"] = compare_with_next(report);
  json["certificate"] = certificate_json(choice.certificate);
  json["notes"] = choice.notes;
  return json;
}

}  // namespace

std::string report_json(const Report& report) {
  Json json;
  json["schema"] = "deepgemm.plan/1";
  json["line"] = intent::format_line(report.problem);
  json["device"] = {{"name", report.device}, {"title", report.title}};
  json["choice"] = report.choice ? choice_json(report) : Json(nullptr);
  json["failure"] = nullptr;
  if (report.failure) {
    json["failure"] = {{"code", report.failure->code}, {"message", report.failure->message}};
  }
  json["candidates"] = Json::array();
  for (const Candidate& candidate : report.candidates) {
    json["candidates"].push_back(candidate_json(candidate));
  }
  // Names may come from the machine (a CPU's model): anything that is no UTF-8 is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace deepgemm::schedule
