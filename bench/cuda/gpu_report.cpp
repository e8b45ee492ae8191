// deepgemm_gpu_report: products on a GPU beside cuBLASLt, in one process, as JSON.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "backend/cuda/profile.hpp"
#include "build_config.hpp"
#include "gpu_product.hpp"
#include "schedule/profile.hpp"

namespace deepgemm::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> classes;
  std::vector<int64_t> rows;
  std::string cublaslt;
  int device = 0;
  double seconds = 0.02;
  bool quick = false;
  bool host_only = false;
};

// Products of language models, and cubes for the classes that have no decoding.
std::vector<PeerProduct> products_of(const Options& options) {
  using Shape = std::pair<int64_t, int64_t>;
  const std::vector<Shape> layers = {{4096, 4096}, {6144, 4096}, {28672, 4096}, {4096, 14336},
                                     {8192, 8192}, {7168, 2048}, {2112, 7168},  {7168, 16384}};
  const std::vector<int64_t> all_rows = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};
  std::vector<PeerProduct> products;
  const auto wanted = [&](const std::string& row_class) {
    return options.classes.empty() ||
           std::count(options.classes.begin(), options.classes.end(), row_class) > 0;
  };
  for (const std::string row_class : {"bf16", "fp16", "int8"}) {
    if (!wanted(row_class)) continue;
    for (const auto& [n, k] : layers) {
      const bool more = row_class == "bf16" && !options.quick;
      if (!more && n * k != 4096 * 4096) continue;
      for (const int64_t m : options.rows.empty() ? all_rows : options.rows) {
        products.push_back({m, n, k, row_class});
      }
    }
  }
  for (const std::string row_class :
       {"tf32", "3xtf32", "tf32_2xbf16", "fp32", "fp32_acc64", "fp64"}) {
    if (!wanted(row_class)) continue;
    for (const int64_t m : {16, 256, 1024, 4096}) products.push_back({m, 4096, 4096, row_class});
  }
  return products;
}

double peak_of(const schedule::PeakRates& peak, const std::string& row_class) {
  if (row_class == "int8") return peak.int8;
  if (row_class == "tf32") return peak.tf32;
  if (row_class == "3xtf32") return peak.tf32 / 3;
  if (row_class == "tf32_2xbf16") return peak.tf32 / 2;
  if (row_class == "fp32") return peak.fp32;
  if (row_class == "fp32_acc64" || row_class == "fp64") return peak.fp64_tensor;
  return row_class == "fp16" ? peak.fp16 : peak.bf16;
}

base::Result<Json> row_json(const BenchContext& context, const GpuRow& row,
                            const schedule::DeviceProfile& profile) {
  Json json = {
      {"line", row.line}, {"class", row.row_class}, {"m", row.m}, {"n", row.n}, {"k", row.k}};
  if (!row.refused.empty()) {
    json["unsupported"] = row.refused;
    return json;
  }
  DEEPGEMM_TRY_ASSIGN(read, context.gpu.read_us(static_cast<size_t>(row.bytes), 0));
  const double compute = row.flops / peak_of(profile.peak, row.row_class) / 1e6;
  json["us"] = row.us;
  json["floor_us"] = std::max(compute, row.bytes / profile.bandwidth_gbs / 1e3);
  json["read_floor_us"] = std::max(compute, read);
  json["peers"] = row.peers;
  json["family"] = row.family;
  json["config"] = row.config;
  json["path"] = row.path;
  json["spread"] = row.spread;
  json["error_of_bound"] = row.worst_error;
  return json;
}

base::Result<Json> ceilings_json(const BenchContext& context) {
  Json read = Json::array();
  for (const size_t mib : {8, 32, 64, 128, 512, 1024}) {
    const size_t bytes = mib << 20;
    DEEPGEMM_TRY_ASSIGN(us, context.gpu.read_us(bytes, 0.01));
    read.push_back({{"mib", mib}, {"us", us}, {"gbs", static_cast<double>(bytes) / us / 1e3}});
  }
  DEEPGEMM_TRY_ASSIGN(bare, context.gpu.bare_launch_us());
  Json json = {{"read", read}, {"bare_launch_us", bare}};
  if (context.peer != nullptr) {
    DEEPGEMM_TRY_ASSIGN(large, measure_product(context, {8192, 8192, 8192, "bf16"}));
    if (large.peers.contains("cublaslt")) {
      json["bf16_tflops"] = large.flops / large.peers.at("cublaslt") / 1e6;
    }
  }
  return json;
}

// The host's time of a launch and of making a plan that is in memory.
base::Result<Json> host_json(const BenchContext& context) {
  gemm_intent_t intent = {};
  intent.operation = GEMM_OP_NT;
  intent.numerical_contract.input_precision = PRECISION_BF16;
  intent.device = context.device.c_str();
  gemm_plan_t plan = {};
  constexpr int64_t kSize = 64;
  const auto start = std::chrono::steady_clock::now();
  if (deepgemm_create_plan(&plan, &intent, kSize, kSize, kSize) != DEEPGEMM_SUCCESS) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, "{}", deepgemm_last_error());
  }
  const std::chrono::duration<double, std::micro> first = std::chrono::steady_clock::now() - start;
  plan.stream = context.gpu.stream();
  DEEPGEMM_TRY_ASSIGN(memory, context.gpu.allocate(3 * kSize * kSize * 2));
  auto* const operands = static_cast<std::byte*>(memory);
  bool fine = true;
  // Fewer than the driver queues: else the host would wait for the kernels.
  const double launch = host_us(300, [&] {
    fine = deepgemm_launch_plan(&plan, operands, operands + kSize * kSize * 2,
                                operands + 2 * kSize * kSize * 2) == DEEPGEMM_SUCCESS &&
           fine;
  });
  const double again = host_us(1000, [&] {
    gemm_plan_t other = {};
    fine = deepgemm_create_plan(&other, &intent, kSize, kSize, kSize) == DEEPGEMM_SUCCESS && fine;
    deepgemm_destroy_plan(&other);
  });
  deepgemm_destroy_plan(&plan);
  if (!fine) return base::make_error(DEEPGEMM_ERROR_DEVICE, "{}", deepgemm_last_error());
  return Json{{"first_plan_us", first.count()}, {"plan_us", again}, {"launch_us", launch}};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

base::Result<bool> run(const Options& options) {
  DEEPGEMM_TRY_ASSIGN(gpu, BenchGpu::open(options.device));
  if (options.host_only) {
    DEEPGEMM_TRY_ASSIGN(host, host_json({*gpu, nullptr, gpu->device().name(), 0}));
    std::printf("%s\n", host.dump(1).c_str());
    return true;
  }
  auto peer = CublasLt::open(options.cublaslt);
  if (!peer.ok()) std::fprintf(stderr, "gpu_report: %s\n", peer.error().message.c_str());
  const BenchContext context = {*gpu, peer.ok() ? peer->get() : nullptr, gpu->device().name(),
                                options.seconds};
  const schedule::DeviceProfile profile = cuda::device_profile(gpu->device().facts());
  Json report = {{"machine", {{"gpu", profile.title}, {"sms", profile.units}}},
                 {"date", utc_now()},
                 {"versions",
                  {{"deepgemm", DEEPGEMM_VERSION_STRING},
                   {"driver", gpu->device().driver().version},
                   {"cublaslt", peer.ok() ? (*peer)->version() : 0}}}};
  DEEPGEMM_TRY_ASSIGN(ceilings, ceilings_json(context));
  report["ceilings"] = ceilings;
  DEEPGEMM_TRY_ASSIGN(host, host_json(context));
  report["host"] = host;
  report["rows"] = Json::array();
  bool right = true;
  for (const PeerProduct& product : products_of(options)) {
    const auto row = measure_product(context, product);
    if (!row.ok()) {  // the others may still be measured
      std::fprintf(stderr, "gpu_report: %s\n", row.error().message.c_str());
      right = false;
      continue;
    }
    DEEPGEMM_TRY_ASSIGN(json, row_json(context, *row, profile));
    report["rows"].push_back(json);
    if (row->refused.empty() && !(row->worst_error <= 1)) {
      std::fprintf(stderr, "gpu_report: %s is WRONG: %g of its bound\n", row->line.c_str(),
                   row->worst_error);
      right = false;
    }
  }
  std::printf("%s\n", report.dump(1).c_str());
  return right;
}

}  // namespace
}  // namespace deepgemm::bench

int main(int argc, char** argv) {
  using namespace deepgemm::bench;
  CLI::App program("Times products on a GPU beside cuBLASLt and prints JSON");
  Options options;
  program
      .add_option("--class", options.classes, "bf16, fp16, int8, tf32, 3xtf32, tf32_2xbf16, ...")
      ->check(CLI::IsMember(
          {"bf16", "fp16", "int8", "tf32", "3xtf32", "tf32_2xbf16", "fp32", "fp32_acc64", "fp64"}));
  program.add_option("--m", options.rows, "these numbers of rows only");
  program.add_option("--cublaslt", options.cublaslt, "the library, where it is not found");
  program.add_option("--device", options.device, "number of the GPU")->capture_default_str();
  program.add_option("--seconds", options.seconds, "of replays for each implementation")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  program.add_flag("--host-only", options.host_only, "time the host's calls alone");
  program.add_flag("--quick", options.quick, "4096 x 4096 layers only");
  CLI11_PARSE(program, argc, argv);
  const auto right = run(options);
  if (!right.ok()) {
    std::fprintf(stderr, "gpu_report: %s\n", right.error().message.c_str());
    return 2;
  }
  return *right ? 0 : 1;
}
