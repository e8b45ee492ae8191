// A canonical problem line: what resolves is written as a line that reads back as the same problem.
#include <string>

#include "expect.hpp"
#include "intent/problem.hpp"

namespace {

using namespace deepgemm;

base::Result<intent::Problem> resolve_line(const std::string& line) {
  const auto spec = intent::parse_line(line);
  if (!spec.ok()) return spec.error();
  return intent::resolve(spec->intent, spec->m, spec->n, spec->k);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  const auto problem = resolve_line(line);
  if (!problem.ok()) {
    fuzz::expect(!problem.error().message.empty(), "refusals have a reason");
    return 0;
  }
  const std::string canonical = intent::format_line(*problem);
  const auto again = resolve_line(canonical);
  fuzz::expect(again.ok(), "the canonical line is accepted");
  fuzz::expect(*again == *problem, "the canonical line means the same problem");
  fuzz::expect(intent::format_line(*again) == canonical, "the canonical line is a fixed point");
  return 0;
}
