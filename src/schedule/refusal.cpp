#include "schedule/refusal.hpp"

#include <iterator>

namespace deepgemm::schedule {
namespace {

struct Entry {
  const char* name;
  const char* meaning;
};

constexpr Entry kEntries[] = {
#define DEEPGEMM_CHECK(enumerator, name, meaning) {name, meaning},
#include "schedule/refusal.inc"
#undef DEEPGEMM_CHECK
};

}  // namespace

const char* check_name(Check check) { return kEntries[static_cast<size_t>(check)].name; }
const char* check_meaning(Check check) { return kEntries[static_cast<size_t>(check)].meaning; }

}  // namespace deepgemm::schedule
