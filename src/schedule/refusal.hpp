// The fixed vocabulary of refusals (refusal.inc).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "schedule/planner.hpp"

namespace deepgemm::schedule {

enum class Check : uint8_t {
#define DEEPGEMM_CHECK(enumerator, name, meaning) enumerator,
#include "schedule/refusal.inc"
#undef DEEPGEMM_CHECK
};

const char* check_name(Check check);
const char* check_meaning(Check check);

template <class... Args>
Refusal refuse(Check check, fmt::format_string<Args...> format, Args&&... args) {
  return {check_name(check), fmt::format(format, std::forward<Args>(args)...)};
}

inline bool refused_by(const Candidate& candidate, Check check) {
  return candidate.refusal.has_value() && candidate.refusal->check == check_name(check);
}

}  // namespace deepgemm::schedule
