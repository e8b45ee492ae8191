// Times the library and its peers at the products of bench/shapes and prints JSON. One process has
// one count of threads; scripts/cpu_report sets the environment and puts the results together.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/cpu/device.hpp"
#include "base/formats.hpp"
#include "build_config.hpp"
#include "ceilings.hpp"
#include "cpu_peers.hpp"
#include "cpu_timing.hpp"
#include "deepgemm/version.h"

namespace deepgemm::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> files;
  std::vector<std::string> classes;  // empty: all
  TurnLimits limits;
  Fp32Weights fp32_weights = Fp32Weights::kBf16Values;
  int64_t memory_bytes = int64_t{4} << 30;
};

struct Ceilings {
  double read_gbs = 0;
  double fp32_gflops = 0;  // of all threads
  bool noisy = false;      // other work disturbed the measurement
  schedule::DeviceProfile profile;
};

// A line of a shape file.
struct Entry {
  std::string shapes;  // name of the file, such as llama3_8b_decode
  std::string row_class;
  cli::NamedProblem problem;
};

// The products of a set of weights that does not fit the caches must find them in memory, as in a
// model; beyond this M the time is arithmetic.
constexpr int64_t kLargestStreamedM = 32;
constexpr int64_t kFewestSets = 3;
constexpr int64_t kMostSets = 16;
constexpr int64_t kRotatedBytes = int64_t{64} << 20;  // more sets than the fewest up to here
constexpr int64_t kCacheFactor = 3;          // what passes through L3 between two uses of a matrix
constexpr double kLargestDifference = 0.01;  // two roundings to BF16 differ by less
constexpr int kTries = 3;                    // of a row that other work disturbed

// fp32, bf16, int8, or w4 for BF16 activations and INT4 weights; empty for what has no peer.
std::string class_of(const intent::Problem& problem) {
  const intent::Epilogue& epilogue = problem.epilogue;
  const bool plain = problem.operation == GEMM_OP_NT && problem.batch == 1 &&
                     epilogue.activation == GEMM_ACTIVATION_NONE && !epilogue.bias &&
                     !epilogue.residual;
  if (!plain) return "";
  const gemm_precision_t a = problem.a.precision;
  if (a == PRECISION_BF16 && base::is_int4(problem.b.precision)) return "w4";
  if (problem.b.precision != a) return "";
  if (a == PRECISION_FP32) return "fp32";
  if (a == PRECISION_BF16) return "bf16";
  return a == PRECISION_INT8 ? "int8" : "";
}

base::Result<std::vector<Entry>> read_entries(const Options& options) {
  std::vector<Entry> entries;
  for (const std::string& path : options.files) {
    std::ifstream file(path);
    if (!file) return base::make_error(DEEPGEMM_ERROR_IO, "{}: cannot be read", path);
    for (std::string line; std::getline(file, line);) {
      line.resize(std::min(line.find('#'), line.size()));
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      DEEPGEMM_TRY_ASSIGN(problem, cli::parse_problem(line + " device=cpu"));
      const std::string row_class = class_of(problem.problem);
      const bool wanted = options.classes.empty() ||
                          std::ranges::find(options.classes, row_class) != options.classes.end();
      if (row_class.empty() || !wanted) continue;
      entries.push_back({std::filesystem::path(path).stem(), row_class, std::move(problem)});
    }
  }
  return entries;
}

bool is_streamed(const intent::Problem& problem) {
  const cpu::CpuDevice& device = cpu::cpu_device();
  return problem.m <= kLargestStreamedM &&
         weight_bytes(problem) > std::max<int64_t>(device.l2_bytes, 1);
}

// Sets and eviction for a row; `copies` of the weights are held for each set.
TurnLimits limits_for(const intent::Problem& problem, int64_t bytes, const Options& options,
                      int64_t copies) {
  TurnLimits limits = options.limits;
  const int64_t wanted_sets = std::clamp(kRotatedBytes / bytes, kFewestSets, kMostSets);
  limits.sets = static_cast<size_t>(
      std::clamp<int64_t>(options.memory_bytes / copies / bytes, 1, wanted_sets));
  if (is_streamed(problem)) {
    const int64_t wanted = kCacheFactor * cpu::cpu_device().l3_bytes;
    const int64_t rotated = static_cast<int64_t>(limits.sets - 1) * weight_bytes(problem);
    limits.evict_bytes = std::max<int64_t>(wanted - rotated, 0);
  }
  return limits;
}

// The products of a row: the library's first.
struct Contest {
  Inputs inputs;
  std::unique_ptr<Product> own;
  std::map<std::string, std::unique_ptr<Product>> peers;
  TurnLimits limits;
};

// INT4 weights have no peer but the library's own BF16 product of the same sizes.
base::Result<std::unique_ptr<Contest>> make_contest(const Entry& entry, const Options& options) {
  constexpr int64_t kCopies = 4;  // as given, packed by the library, two forms of a peer
  const intent::Problem& problem = entry.problem.problem;
  const bool int4 = entry.row_class == "w4";
  auto contest = std::make_unique<Contest>();
  const int64_t stored = base::storage_bytes(problem.a.precision, problem.n * problem.k);
  contest->limits = limits_for(problem, stored, options, kCopies);
  contest->inputs = make_inputs(problem, contest->limits.sets, options.fp32_weights);
  DEEPGEMM_TRY_ASSIGN(own, make_own(entry.problem, contest->inputs));
  contest->own = std::move(own);
  if (int4) {
    DEEPGEMM_TRY_ASSIGN(same, cli::parse_problem(fmt::format("nt m={} n={} k={} a=bf16 device=cpu",
                                                             problem.m, problem.n, problem.k)));
    DEEPGEMM_TRY_ASSIGN(bf16, make_own(same, contest->inputs));
    contest->peers["own_bf16"] = std::move(bf16);
    return contest;
  }
  DEEPGEMM_TRY_ASSIGN(peers, make_peers(contest->inputs));
  contest->peers = std::move(peers);
  return contest;
}

// A time says nothing when what was computed is something else.
base::Result<void> check_agreement(const Entry& entry, Contest& contest) {
  if (entry.row_class == "w4") return {};
  DEEPGEMM_TRY(contest.own->launch(0));
  for (const auto& [name, peer] : contest.peers) {
    DEEPGEMM_TRY(peer->launch(0));
    const double difference =
        relative_difference(contest.inputs, contest.own->output(), peer->output());
    if (difference > kLargestDifference) {
      return base::make_error(DEEPGEMM_ERROR_INTERNAL,
                              "{}: result differs from that of {} by {:.3g} (root mean square)",
                              entry.problem.line, name, difference);
    }
  }
  return {};
}

// ---- Output

double floor_us(const Entry& entry, double bytes_us, const Ceilings& ceilings) {
  const intent::Problem& problem = entry.problem.problem;
  const double flops = 2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                       static_cast<double>(problem.k);
  const schedule::PeakRates& peak = ceilings.profile.peak;
  double gflops = ceilings.fp32_gflops;
  if (entry.row_class == "int8") gflops = std::max(gflops, 1e3 * peak.int8);
  if (entry.row_class == "bf16" || entry.row_class == "w4") {
    gflops = std::max(gflops, 1e3 * peak.bf16);
  }
  return std::max(bytes_us, flops / gflops / 1e3);
}

// Bytes that must be read or written at least once; INT4 has a scale and a zero point for a group.
double least_bytes(const intent::Problem& problem, Fp32Weights kind) {
  double bytes = static_cast<double>(weight_bytes(problem));
  if (problem.b.precision == PRECISION_FP32 && kind == Fp32Weights::kBf16Values) bytes /= 2;
  if (base::is_int4(problem.b.precision)) {
    const double groups = static_cast<double>(problem.n * problem.k) /
                          static_cast<double>(problem.contract.group_size);
    bytes += 2.5 * groups;
  }
  bytes += static_cast<double>(base::storage_bytes(problem.a.precision, problem.m * problem.k));
  return bytes +
         static_cast<double>(base::storage_bytes(problem.c.precision, problem.m * problem.n));
}

Json spread_json(const cli::Timing& timing) {
  return {{"p10", timing.p10}, {"p90", timing.p90}, {"runs", timing.runs}};
}

Json row_json(const Entry& entry, const Contest& contest, const std::vector<cli::Timing>& timings,
              double pressure, Fp32Weights kind, const Ceilings& ceilings) {
  const intent::Problem& problem = entry.problem.problem;
  Json peers = Json::object();
  Json details = Json::object();
  size_t at = 1;
  for (const auto& [name, peer] : contest.peers) {
    peers[name] = timings[at].median;
    details[name] = {{"family", peer->family()},
                     {"config", peer->config()},
                     {"spread", spread_json(timings[at])}};
    ++at;
  }
  const double bytes = least_bytes(problem, kind);
  return {{"line", entry.problem.line},
          {"class", entry.row_class},
          {"m", problem.m},
          {"n", problem.n},
          {"k", problem.k},
          {"us", timings[0].median},
          {"floor_us", floor_us(entry, bytes / ceilings.profile.bandwidth_gbs / 1e3, ceilings)},
          {"read_floor_us", floor_us(entry, bytes / ceilings.read_gbs / 1e3, ceilings)},
          {"peers", peers},
          {"family", contest.own->family()},
          {"config", contest.own->config()},
          {"spread", spread_json(timings[0])},
          {"peer_details", details},
          {"threads", cpu::cpu_device().threads},
          {"shapes", entry.shapes},
          {"bytes", bytes},
          {"streamed", is_streamed(problem)},
          {"noisy", pressure > cli::kNoisyPressure}};
}

base::Result<Json> time_entry(const Entry& entry, const Options& options,
                              const Ceilings& ceilings) {
  DEEPGEMM_TRY_ASSIGN(contest, make_contest(entry, options));
  DEEPGEMM_TRY(check_agreement(entry, *contest));
  std::vector<Product*> products = {contest->own.get()};
  for (const auto& [name, peer] : contest->peers) products.push_back(peer.get());
  Json row;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const cli::PressureMeter pressure;
    DEEPGEMM_TRY_ASSIGN(timings, measure_in_turns(products, contest->limits));
    row = row_json(entry, *contest, timings, pressure.share(), options.fp32_weights, ceilings);
    if (!row["noisy"].get<bool>()) break;
  }
  return row;
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json head_json(const Ceilings& ceilings) {
  const cpu::CpuDevice& device = cpu::cpu_device();
  Json versions = {{"deepgemm", DEEPGEMM_VERSION_STRING},
                   {"compiler", build_config::kCompiler},
                   {"build_type", build_config::kBuildType}};
  for (const auto& [name, version] : peer_versions()) versions[name] = version;
  return {{"machine",
           {{"cpu", device.model},
            {"isa", cpu::isa_name(device.isa)},
            {"features", device.features},
            {"cores", device.cores_online},
            {"l2_bytes", device.l2_bytes},
            {"l3_bytes", device.l3_bytes}}},
          {"date", utc_now()},
          {"versions", versions},
          {"ceilings",
           {{"threads", device.threads},
            {"read_gbs", ceilings.read_gbs},
            {"fp32_gflops", ceilings.fp32_gflops},
            {"noisy", ceilings.noisy},
            {"nominal_gbs", ceilings.profile.bandwidth_gbs},
            {"nominal_source", ceilings.profile.source}}},
          {"rows", Json::array()}};
}

Ceilings measure_ceilings(int threads) {
  Ceilings ceilings;
  ceilings.profile = cpu::host_profile();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const cli::PressureMeter pressure;
    ceilings.read_gbs = std::max(ceilings.read_gbs, measure_read_gbs(threads));
    ceilings.fp32_gflops = std::max(ceilings.fp32_gflops, threads * measure_fma_gflops());
    ceilings.noisy = pressure.share() > cli::kNoisyPressure;
    if (!ceilings.noisy) break;
  }
  return ceilings;
}

base::Result<void> report(const Options& options) {
  const int threads = cpu::cpu_device().threads;
  const char* omp = std::getenv("OMP_NUM_THREADS");
  if (omp == nullptr || std::to_string(threads) != omp) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "OMP_NUM_THREADS is {}, but must be {} as DEEPGEMM_NUM_THREADS says; "
                            "scripts/cpu_report sets both",
                            omp == nullptr ? "not set" : omp, threads);
  }
  set_peer_threads(threads);
  DEEPGEMM_TRY_ASSIGN(entries, read_entries(options));
  const Ceilings ceilings = measure_ceilings(threads);
  Json result = head_json(ceilings);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const auto row = time_entry(entry, options, ceilings);
    const std::string told =
        row.ok() ? fmt::format("{:10.1f} us {}", (*row)["us"].get<double>(), (*row)["peers"].dump())
                 : row.error().message;
    std::fputs(
        fmt::format("{:3}/{} {} | {}\n", i + 1, entries.size(), entry.problem.line, told).c_str(),
        stderr);
    if (!row.ok()) return row.error();
    result["rows"].push_back(*row);
  }
  std::puts(result.dump(1).c_str());
  return {};
}

int run_program(int argc, char** argv) {
  Options options;
  CLI::App program("Times the library and its peers; see scripts/cpu_report.",
                   "deepgemm_cpu_report");
  program.add_option("files", options.files, "files of problem lines")->required();
  program.add_option("--class", options.classes, "fp32, bf16, int8 or w4; repeatable");
  program.add_option("--seconds", options.limits.seconds, "of launches, for each implementation")
      ->capture_default_str();
  bool any_values = false;
  program.add_flag("--any-fp32-weights", any_values,
                   "FP32 weights that do not hold the values of a BF16 checkpoint");
  CLI11_PARSE(program, argc, argv);
  if (any_values) options.fp32_weights = Fp32Weights::kAnyValues;
  const auto done = report(options);
  if (!done.ok()) {
    std::fputs(fmt::format("deepgemm_cpu_report: {}\n", done.error().message).c_str(), stderr);
  }
  return done.ok() ? 0 : 1;
}

}  // namespace
}  // namespace deepgemm::bench

int main(int argc, char** argv) {
  try {
    return deepgemm::bench::run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("deepgemm_cpu_report: {}\n", error.what()).c_str(), stderr);
    return 1;
  }
}
