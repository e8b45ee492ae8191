// Planning: problem + device profile + device state -> candidates, refusals, costs, choice. Pure:
// no device, no clock, no environment; the same input gives the same report.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "contract/contract.hpp"
#include "deepgemm/types.h"
#include "intent/problem.hpp"
#include "schedule/family.hpp"
#include "schedule/profile.hpp"

namespace deepgemm::schedule {

// Why a candidate is out: the first check that failed, from a fixed vocabulary (refusal.inc), and
// the values.
struct Refusal {
  std::string check;  // "architecture", "path", "contract", "alignment", "tiling_policy",
                      // "budget_latency", ...
  std::string reason;
};

struct CostEstimate {
  double us = 0;
  double compute_us = 0, memory_us = 0, launch_us = 0;
  double repack_us = 0;  // once, at packing; not part of us
  double energy_mj = 0;  // 0: unknown
  double flops = 0, bytes = 0;
  double waves = 0;      // work units over device units
  std::string bound_by;  // "memory", "compute", "launch"
};

struct Candidate {
  contract::PathId path = contract::PathId::kFp32;
  const Family* family = nullptr;
  bool whole_family = false;  // refused before its paths were looked at; `path` says nothing
  bool any_config = false;    // refused for every configuration; `config` says nothing
  KernelConfig config;
  std::optional<contract::ErrorBound> bound;  // absent when refused before it was computed
  std::optional<CostEstimate> cost;
  std::optional<double> score;  // what is minimised: cost.us, or the hook's figure
  std::optional<Refusal> refusal;
};

// What the backend needs to execute.
struct Choice {
  contract::PathId path = contract::PathId::kFp32;
  const Family* family = nullptr;
  KernelConfig config;
  contract::Certificate certificate;
  CostEstimate cost;
  int64_t m_bucket = 0;                                       // serves every M up to this
  int threads = 0;                                            // units granted (sm_partition)
  bool packed_b = false;                                      // B must be packed weights
  gemm_layout_t layout_a = {}, layout_b = {}, layout_c = {};  // chosen or declared
  std::vector<std::string> notes;  // fields not applicable, wishes not granted, crossovers, ...
};

bool same_kernel(const Choice& x, const Choice& y);
bool same_kernel(const Choice& choice, const Candidate& candidate);

struct Report {
  intent::Problem problem;
  std::string device;  // profile name
  std::string title;
  std::vector<Candidate> candidates;  // in order of listing
  std::optional<Choice> choice;
  std::optional<base::Error> failure;  // set when there is no choice
};

// What a backend says of a candidate: why it cannot execute it, or nothing. Pure. The candidate has
// path, family and configuration.
using KernelCheck =
    std::function<std::optional<std::string>(const intent::Problem&, const Candidate&)>;

struct PlannerOptions {
  bool hopper_opt = true;
  const deepgemm_hooks_t* hooks = nullptr;
  KernelCheck kernel_check = {};  // empty: everything of the catalogue counts as there
};

Report plan(const intent::Problem& problem, const DeviceProfile& profile, const DeviceState& state,
            const PlannerOptions& options);

// Upper end of the bucket that M falls in: 1, 2, 4, 8, 16, 32, 64, 128, 256, ... (0 -> 0 is in
// 1's).
int64_t m_bucket(int64_t m);

// The report for people and for programs; `json` follows docs/plan_report.md.
std::string report_text(const Report& report);
std::string report_json(const Report& report);

}  // namespace deepgemm::schedule
