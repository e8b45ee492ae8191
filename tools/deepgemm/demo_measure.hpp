// What the demo measures: every linear of a layer under one contract.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "deepgemm/deepgemm.h"
#include "deepgemm/layer_sample.hpp"
#include "deepgemm/timing.hpp"

namespace deepgemm::cli {

// A contract as declared to the library, and in words.
struct DemoContract {
  const char* key;   // for --json
  const char* name;  // in the summary
  const char* title;
  const char* meaning;  // one sentence for a newcomer
  const char* fields;   // of the canonical line, after the sizes
};

// One linear under one contract.
struct LinearResult {
  std::string name, line, path, family;
  nlohmann::ordered_json report;  // the plan's report
  deepgemm_plan_info_t plan = {};
  deepgemm_verification_t verified = {};  // arithmetic: against the product of the stored operands
  deepgemm_packed_info_t packed = {};     // representation: packed weights against the file's
  double weight_bytes = 0;
  double output_error = 0;  // |y - exact| / |exact| (Frobenius), exact: of the file's weights
  Timing timing;
  double gflops = 0;

  bool kept() const { return verified.contract_kept && verified.bound_kept; }
};

struct ContractResult {
  DemoContract contract;
  std::vector<LinearResult> linears;

  bool kept() const;
  double total_us() const;
  double weight_bytes() const;
  // Largest over the linears.
  double worst_share_of_bound() const;
  double worst_output_error() const;
  double worst_weight_error() const;
};

base::Result<LinearResult> measure_linear(const Linear& linear, const DemoContract& contract);

}  // namespace deepgemm::cli
