// Planning alone, cold, for every profile: no cache, no device.
#include <benchmark/benchmark.h>

#include <string>

#include "schedule/planner.hpp"

namespace {

using namespace deepgemm;

void plan_cold(benchmark::State& state, const std::string& line, const std::string& device) {
  const auto spec = intent::parse_line(line);
  const schedule::DeviceProfile* profile = schedule::find_profile(device);
  if (!spec.ok() || profile == nullptr) {
    state.SkipWithError("the line or the profile is unknown");
    return;
  }
  for (auto _ : state) {
    const auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
    benchmark::DoNotOptimize(schedule::plan(*problem, *profile, {}, {}));
  }
}

const bool registered = [] {
  for (const char* line : {"nt m=1 n=4096 k=4096 a=fp16", "nt m=512 n=4096 k=4096 a=fp32 rel=0.001",
                           "nt m=1 n=4096 k=4096 a=fp16 b=int4_awq abs=0.002 outlier=fp16"}) {
    for (const schedule::DeviceProfile& profile : schedule::all_profiles()) {
      const std::string device = profile.name;
      benchmark::RegisterBenchmark(
          ("plan_cold/" + device + "/" + line).c_str(),
          [line, device](benchmark::State& state) { plan_cold(state, line, device); })
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
