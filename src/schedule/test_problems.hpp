// Problems and profiles for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "schedule/planner.hpp"

namespace deepgemm::schedule {

inline intent::Problem problem_of(const std::string& line) {
  const auto spec = intent::parse_line(line);
  EXPECT_TRUE(spec.ok()) << line << ": " << (spec.ok() ? "" : spec.error().message);
  if (!spec.ok()) return {};
  const auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
  EXPECT_TRUE(problem.ok()) << line << ": " << (problem.ok() ? "" : problem.error().message);
  return problem.ok() ? *problem : intent::Problem{};
}

// A shipped profile, or "cpu": AVX-512 with two threads.
inline DeviceProfile profile_of(const std::string& name) {
  const DeviceProfile* profile = find_profile(name == "cpu" ? "cpu_avx512" : name);
  EXPECT_NE(profile, nullptr) << name;
  return profile != nullptr ? *profile : DeviceProfile{};
}

inline Report plan_of(const std::string& device, const std::string& line,
                      const PlannerOptions& options = {}, const DeviceState& state = {}) {
  return plan(problem_of(line), profile_of(device), state, options);
}

// "fp16 on sm90", or the name of the failure's code.
inline std::string outcome_of(const Report& report) {
  if (report.choice) {
    return std::string(contract::path_info(report.choice->path).name) + " on " +
           report.choice->family->name;
  }
  switch (report.failure->code) {
    case DEEPGEMM_ERROR_CONTRACT_UNMET:
      return "contract unmet";
    case DEEPGEMM_ERROR_BUDGET_INFEASIBLE:
      return "budget infeasible";
    case DEEPGEMM_ERROR_UNSUPPORTED:
      return "unsupported";
    case DEEPGEMM_ERROR_OUT_OF_MEMORY:
      return "out of memory";
    default:
      return "code " + std::to_string(report.failure->code);
  }
}

inline bool has_refusal(const Report& report, const std::string& family, const std::string& check) {
  for (const Candidate& candidate : report.candidates) {
    if (candidate.refusal && candidate.family->name == family &&
        candidate.refusal->check == check) {
      return true;
    }
  }
  return false;
}

inline bool has_note(const Report& report, const std::string& part) {
  if (!report.choice) return false;
  for (const std::string& note : report.choice->notes) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace deepgemm::schedule
