// deepgemm bench: how long products take, against what the machine could do.
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/device.hpp"
#include "base/formats.hpp"
#include "build_config.hpp"
#include "deepgemm/problem_options.hpp"
#include "deepgemm/product.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/timing.hpp"
#include "deepgemm/verb.hpp"
#include "runtime/plan_handle.hpp"

namespace deepgemm::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kInputSets =
    3;  // launches rotate over them, so that caches do not keep the weights

struct Options {
  ProblemOptions problem;
  TimingLimits limits;
  bool json = false;
};

// What the machine could do.
struct Ceilings {
  schedule::DeviceProfile profile;
  double read_gbs = 0;  // measured
  bool noisy = false;   // other work disturbed the measurement
};

struct Row {
  std::string line, path, family, config;
  int64_t m = 0, n = 0, k = 0;
  Timing timing;
  double flops = 0, bytes = 0;
  double floor_us = 0;       // by the profile
  double read_floor_us = 0;  // by the measured reading rate
  bool noisy = false;

  double gflops() const { return flops / timing.median / 1e3; }
  double gbs() const { return bytes / timing.median / 1e3; }
};

// Operands with random content. Values are a block that repeats: their time does not depend on
// them, and large weights would take long to draw one by one.
void fill_random(gemm_precision_t precision, const Buffer& buffer, uint64_t seed) {
  constexpr int64_t kBlock = 1 << 16;
  contract::ReferenceProblem generated;
  generated.m = 1;
  generated.k = kBlock;
  contract::generate_inputs(contract::InputSet::kGaussian, seed, precision, precision, generated);
  const Buffer block(base::storage_bytes(precision, kBlock));
  for (int64_t i = 0; i < kBlock; ++i) {
    base::encode(precision, block.data(), i, generated.a[static_cast<size_t>(i)]);
  }
  const auto source = block.memory();
  const auto target = buffer.memory();
  for (size_t at = 0; at < target.size(); at += source.size()) {
    std::memcpy(target.data() + at, source.data(), std::min(source.size(), target.size() - at));
  }
}

base::Result<Buffer> random_matrix(const intent::Operand& operand, uint64_t seed) {
  DEEPGEMM_TRY_ASSIGN(buffer, matrix_buffer(operand.layout, operand.precision));
  fill_random(operand.precision, buffer, seed);
  return std::move(buffer);
}

base::Result<PackedWeights> random_weights(const intent::Problem& problem, const Plan& plan,
                                           uint64_t seed) {
  const Buffer dense(base::storage_bytes(PRECISION_FP16, problem.n * problem.k));
  fill_random(PRECISION_FP16, dense, seed);
  deepgemm_weight_tensors_t tensors = {};
  tensors.format = WEIGHT_FORMAT_DENSE;
  tensors.precision = PRECISION_FP16;
  tensors.in_features = problem.k;
  tensors.out_features = problem.n;
  tensors.weight = dense.data();
  return PackedWeights::pack(plan, tensors);
}

base::Result<Operands> random_operands(const intent::Problem& problem, const Plan& plan,
                                       uint64_t seed) {
  Operands operands;
  DEEPGEMM_TRY_ASSIGN(a, random_matrix(problem.a, 4 * seed));
  DEEPGEMM_TRY_ASSIGN(c, random_matrix(problem.c, 4 * seed + 1));
  operands.a = std::move(a);
  operands.c = std::move(c);
  if (plan.info().packed_b) {
    DEEPGEMM_TRY_ASSIGN(packed, random_weights(problem, plan, 4 * seed + 2));
    operands.packed = std::move(packed);
  } else {
    DEEPGEMM_TRY_ASSIGN(b, random_matrix(problem.b, 4 * seed + 2));
    operands.b = std::move(b);
  }
  const intent::Epilogue& epilogue = problem.epilogue;
  if (epilogue.bias) {
    operands.bias = Buffer(base::storage_bytes(epilogue.bias_precision, problem.n));
    fill_random(epilogue.bias_precision, operands.bias, 4 * seed + 3);
  }
  if (epilogue.residual) {
    const int64_t rows = problem.batch * problem.m;
    operands.residual = Buffer(
        base::storage_bytes(epilogue.residual_precision, rows * epilogue.residual_row_stride));
    fill_random(epilogue.residual_precision, operands.residual, 4 * seed + 3);
  }
  DEEPGEMM_TRY(operands.place_on(plan));
  return operands;
}

// Bytes that must be read and written at least once.
double least_bytes(const intent::Problem& problem, const Operands& operands) {
  const auto count = [&](int64_t rows, int64_t cols, gemm_precision_t precision) {
    return static_cast<double>(problem.batch) *
           static_cast<double>(base::storage_bytes(precision, rows * cols));
  };
  double bytes = count(problem.m, problem.k, problem.a.precision);
  bytes += operands.packed.get() != nullptr ? static_cast<double>(operands.packed.info().bytes)
                                            : count(problem.k, problem.n, problem.b.precision);
  const double output = count(problem.m, problem.output_columns(), problem.c.precision);
  return bytes + (problem.beta != 0 ? 2 : 1) * output;
}

// The profile's peak of the arithmetic that a path uses, in TFLOP/s.
double peak_of(const schedule::PeakRates& peak, const std::string& path) {
  const std::pair<const char*, double> rates[] = {
      {"fp64", peak.fp64}, {"fp32_acc64", peak.fp64}, {"tf32", peak.tf32}, {"fp16", peak.fp16},
      {"bf16", peak.bf16}, {"fp8", peak.fp8},         {"int8", peak.int8}};
  for (const auto& [name, rate] : rates) {
    if (path == name && rate > 0) return rate;
  }
  return peak.fp32;
}

std::string config_text(const gemm_tiling_policy_t& tiling) {
  return fmt::format("{}x{}x{}", tiling.block_m, tiling.block_n, tiling.block_k);
}

base::Result<Row> bench(const NamedProblem& named, const Options& options,
                        const Ceilings& ceilings) {
  DEEPGEMM_TRY_ASSIGN(plan, Plan::create(named));
  const intent::Problem& problem = named.problem;
  std::vector<Operands> sets;
  for (size_t i = 0; i < kInputSets; ++i) {
    DEEPGEMM_TRY_ASSIGN(operands, random_operands(problem, plan, i + 1));
    sets.push_back(std::move(operands));
  }
  const PressureMeter pressure;
  DEEPGEMM_TRY_ASSIGN(timing, time_launches(plan, options.limits, [&](int64_t run) {
                        return sets[static_cast<size_t>(run) % kInputSets].args();
                      }));
  Row row;
  row.line = named.line;
  row.path = plan.info().path;
  row.family = plan.info().family;
  row.config = config_text(plan.info().tiling);
  row.m = problem.m;
  row.n = problem.n;
  row.k = problem.k;
  row.timing = timing;
  row.noisy = pressure.share() > kNoisyPressure;
  row.flops = 2.0 * static_cast<double>(problem.batch) * static_cast<double>(problem.m) *
              static_cast<double>(problem.n) * static_cast<double>(problem.k);
  row.bytes = least_bytes(problem, sets.front());
  // Reading is measured on the CPU alone; deepgemm_gpu_report does it on GPUs.
  const runtime::Device& device = *plan.get()->handle->data().device;
  const schedule::DeviceProfile& profile = device.profile();
  const double read_gbs = device.shares_host_memory() ? ceilings.read_gbs : profile.bandwidth_gbs;
  const double compute_us = row.flops / peak_of(profile.peak, row.path) / 1e6;
  row.floor_us = std::max(compute_us, row.bytes / profile.bandwidth_gbs / 1e3);
  row.read_floor_us = std::max(compute_us, row.bytes / read_gbs / 1e3);
  return row;
}

// ---- Output
// --------------------------------------------------------------------------------------

// Classes of the figures that are compared between builds.
std::string class_of(const std::string& path) {
  if (path == "w4a16" || path == "w4a8") return "w4";
  if (path == "w8a16") return "w8";
  if (path == "fp8") return "fp8_block";
  for (const char* split : {"fp32_acc64", "3xtf32", "tf32_2xbf16", "3xbf16"}) {
    if (path == split) return "fp32";
  }
  return path;
}

Json row_json(const Row& row) {
  return {{"line", row.line},
          {"class", class_of(row.path)},
          {"m", row.m},
          {"n", row.n},
          {"k", row.k},
          {"us", row.timing.median},
          {"floor_us", row.floor_us},
          {"read_floor_us", row.read_floor_us},
          {"peers", Json::object()},
          {"family", row.family},
          {"config", row.config},
          {"spread", {{"p10", row.timing.p10}, {"p90", row.timing.p90}, {"runs", row.timing.runs}}},
          {"path", row.path},
          {"gflops", row.gflops()},
          {"gbs", row.gbs()},
          {"noisy", row.noisy}};
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
  return {
      {"machine",
       {{"cpu", device.model}, {"isa", cpu::isa_name(device.isa)}, {"threads", device.threads}}},
      {"date", utc_now()},
      {"versions",
       {{"deepgemm", DEEPGEMM_VERSION_STRING},
        {"compiler", build_config::kCompiler},
        {"build_type", build_config::kBuildType}}},
      {"ceilings",
       {{"read_gbs", ceilings.read_gbs},
        {"read_noisy", ceilings.noisy},
        {"nominal_gbs", ceilings.profile.bandwidth_gbs},
        {"nominal_fp32_tflops", ceilings.profile.peak.fp32},
        {"nominal_source", ceilings.profile.source}}},
      {"rows", Json::array()}};
}

void print_head(const Ceilings& ceilings) {
  const cpu::CpuDevice& device = cpu::cpu_device();
  print("{}, {}, {} threads\n", device.model, cpu::isa_name(device.isa), device.threads);
  print(
      "roofline: {:.3g} GFLOP/s and {:.3g} GB/s are nominal figures of the profile; reading was\n",
      1e3 * ceilings.profile.peak.fp32, ceilings.profile.bandwidth_gbs);
  print("measured at {:.3g} GB/s{}\n", ceilings.read_gbs, ceilings.noisy ? " (NOISY)" : "");
  print(
      "time is the median, spread p10 to p90; every launch reads another of {} input sets,\n"
      "which the caches hold when they are small\n\n",
      kInputSets);
  print("{:>9}  {:>19}  {:>8}  {:>7}  {:>8}  {}\n", "time", "spread", "GFLOP/s", "GB/s", "roofline",
        "path, problem");
}

void print_row(const Row& row) {
  print("{:>9}  {:>19}  {:>8.4g}  {:>7.3g}  {:>6.1f} %  {}{} {}\n", time_text(row.timing.median),
        time_text(row.timing.p10) + " - " + time_text(row.timing.p90), row.gflops(), row.gbs(),
        100 * row.floor_us / row.timing.median, row.noisy ? "NOISY " : "", row.path, row.line);
  (void)flush_output();
}

base::Result<ExitCode> run_bench(const Options& options) {
  DEEPGEMM_TRY_ASSIGN(problems, options.problem.problems());
  const PressureMeter pressure;
  Ceilings ceilings = {cpu::host_profile(), measure_read_bandwidth()};
  ceilings.noisy = pressure.share() > kNoisyPressure;
  Json report = head_json(ceilings);
  if (!options.json) print_head(ceilings);
  bool noisy = ceilings.noisy;
  Progress progress(static_cast<int64_t>(problems.size()));
  for (size_t i = 0; i < problems.size(); ++i) {
    progress.show(static_cast<int64_t>(i), problems[i].line);
    DEEPGEMM_TRY_ASSIGN(row, bench(problems[i], options, ceilings));
    progress.clear();
    noisy = noisy || row.noisy;
    if (options.json) {
      report["rows"].push_back(row_json(row));
    } else {
      print_row(row);
    }
  }
  if (options.json) print("{}\n", report.dump(2));
  if (noisy && !options.json) {
    print(
        "\nNOISY: other work waited for the CPUs in more than {:.0f} % of the time; repeat on an "
        "idle machine.\n",
        100 * kNoisyPressure);
  }
  return ExitCode::kOk;
}

}  // namespace

Verb add_bench(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "bench", "Time products: median, spread, rates and share of the roofline of this machine");
  options->problem.add_to(*command, ProblemOptions::Count::kMany);
  command->add_option("--seconds", options->limits.seconds, "time for each problem")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command->add_option("--min-runs", options->limits.min_runs, "launches at least")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "as JSON");
  return {command, [options] { return run_bench(*options); }};
}

}  // namespace deepgemm::cli
