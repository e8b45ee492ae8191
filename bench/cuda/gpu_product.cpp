#include "gpu_product.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "deepgemm/deepgemm.h"
#include "intent/problem.hpp"

namespace deepgemm::bench {
namespace {

// Rows of a class have its arithmetic alone; a hook refuses the others. FP8 has what the planner
// takes: where mma.sync has no FP8 the operands are widened.
bool has_path(void* user, const deepgemm_candidate_t* candidate) {
  const auto& row_class = *static_cast<const std::string*>(user);
  return row_class == "fp8" || row_class == candidate->path;
}

// A plan that goes with the object.
struct Plan {
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { deepgemm_destroy_plan(&plan); }
  gemm_plan_t plan = {};
};

// Device memory that goes with the object.
struct Scratch {
  explicit Scratch(BenchGpu& owner) : gpu(owner) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (memory != nullptr) static_cast<void>(gpu.release(memory));
  }
  BenchGpu& gpu;
  void* memory = nullptr;
};

// Launches for about a millisecond, each set of operands as often.
int launches_of(const Operands& operands, const GpuRow& row) {
  constexpr double kRate = 3e14, kLeast = 1e-5, kWanted = 1e-3;
  const int wanted = static_cast<int>(kWanted / (row.flops / kRate + kLeast)) + 1;
  return (wanted + operands.sets() - 1) / operands.sets() * operands.sets();
}

void set_info(const gemm_plan_t& plan, GpuRow& row, double& bound_absolute) {
  deepgemm_plan_info_t info = {};
  deepgemm_get_plan_info(&plan, &info);
  row.path = info.path;
  row.family = info.family;
  row.config =
      fmt::format("{}x{}x{}", info.tiling.block_m, info.tiling.block_n, info.tiling.block_k);
  row.bound_relative = info.bound_relative;
  bound_absolute = info.bound_absolute;
}

// The launches of one product by the library and its peer.
class Contest {
 public:
  Contest(const BenchContext& context, const Product& product, const Operands& operands,
          GpuRow& row)
      : context_(context),
        product_(product),
        operands_(operands),
        row_(row),
        count_(launches_of(operands, row)),
        workspace_(context.gpu) {}

  // False: there is no plan.
  base::Result<bool> make_plan();
  // Checks a launch of ours and captures many.
  base::Result<void> prepare_ours(Operands& operands);
  // The same for the fastest of the algorithms that the library proposes.
  base::Result<void> prepare_peer(Operands& operands);
  base::Result<void> time();

 private:
  bool launch(int set) {
    return deepgemm_launch_plan(&plan_.plan, operands_.a(set), operands_.b(set),
                                operands_.c(set)) == DEEPGEMM_SUCCESS;
  }
  bool launch_peer(int algorithm, int set) {
    return context_.peer->launch(algorithm, operands_.a(set), operands_.b(set), operands_.c(set),
                                 workspace_.memory, context_.gpu.stream());
  }

  const BenchContext& context_;
  const Product& product_;
  const Operands& operands_;
  GpuRow& row_;
  const int count_;
  Scratch workspace_;
  Plan plan_;
  double bound_absolute_ = 0;
  std::optional<GpuGraph> ours_, peers_;
};

base::Result<bool> Contest::make_plan() {
  DEEPGEMM_TRY_ASSIGN(spec, intent::parse_line(row_.line));
  spec.intent.device = context_.device.c_str();
  std::string row_class = product_.row_class;
  deepgemm_hooks_t hooks = {};
  hooks.user = &row_class;
  hooks.admit_candidate = has_path;
  deepgemm_set_hooks(&hooks);
  const deepgemm_status_t made =
      deepgemm_create_plan(&plan_.plan, &spec.intent, product_.m, product_.n, product_.k);
  deepgemm_set_hooks(nullptr);
  if (made != DEEPGEMM_SUCCESS) {
    row_.refused = deepgemm_last_error();
    return false;
  }
  plan_.plan.stream = context_.gpu.stream();
  set_info(plan_.plan, row_, bound_absolute_);
  return true;
}

base::Result<void> Contest::prepare_ours(Operands& operands) {
  DEEPGEMM_TRY(operands.poison());
  if (!launch(0)) {
    row_.failed = deepgemm_last_error();
    return {};
  }
  DEEPGEMM_TRY(context_.gpu.wait());
  DEEPGEMM_TRY_ASSIGN(error, operands.check(row_.bound_relative, bound_absolute_, false));
  row_.error = error;
  auto graph = context_.gpu.capture(count_, [&](int i) { return launch(i); });
  if (graph.ok()) {
    ours_ = std::move(*graph);
  } else {
    row_.failed = fmt::format("{}: {}", graph.error().message, deepgemm_last_error());
  }
  return {};
}

base::Result<void> Contest::prepare_peer(Operands& operands) {
  if (context_.peer == nullptr) return {};
  const int algorithms = context_.peer->prepare(product_);
  if (algorithms == 0) return {};
  DEEPGEMM_TRY_ASSIGN(memory, context_.gpu.allocate(CublasLt::kWorkspace));
  workspace_.memory = memory;
  double best = 0;
  int fastest = -1;
  for (int algorithm = 0; algorithm < algorithms; ++algorithm) {
    auto graph =
        context_.gpu.capture(count_, [&](int i) { return launch_peer(algorithm, i); });
    if (!graph.ok()) continue;
    const GpuGraph* const graphs[] = {&*graph};
    DEEPGEMM_TRY_ASSIGN(times, context_.gpu.time(graphs, 0));
    if (fastest >= 0 && times[0].us >= best) continue;
    best = times[0].us;
    fastest = algorithm;
    peers_ = std::move(*graph);
  }
  if (fastest < 0 || row_.bound_relative == 0) return {};
  DEEPGEMM_TRY(operands.poison());
  if (!launch_peer(fastest, 0)) return {};
  DEEPGEMM_TRY(context_.gpu.wait());
  DEEPGEMM_TRY_ASSIGN(error, operands.check(row_.bound_relative, bound_absolute_,
                                            product_.row_class == "int8"));
  if (!(error.of_bound <= 1)) {
    row_.wrong_peers["cublaslt"] = error;
    peers_.reset();
  }
  return {};
}

base::Result<void> Contest::time() {
  std::vector<const GpuGraph*> graphs;
  for (const auto* each : {&ours_, &peers_}) {
    if (each->has_value()) graphs.push_back(&**each);
  }
  if (graphs.empty()) return {};
  DEEPGEMM_TRY_ASSIGN(times, context_.gpu.time(graphs, context_.seconds));
  if (ours_) row_.ours = times.front();
  if (peers_) row_.peers["cublaslt"] = times.back();
  return {};
}

}  // namespace

base::Result<GpuRow> measure_product(const BenchContext& context, const Product& product) {
  const auto m = static_cast<double>(product.m), n = static_cast<double>(product.n);
  const auto k = static_cast<double>(product.k);
  GpuRow row;
  row.product = product;
  row.line = line_of(product);
  row.flops = 2 * m * n * k;
  row.bytes = (m + n) * k * static_cast<double>(input_bytes(product.row_class)) +
              m * n * static_cast<double>(output_bytes(product.row_class));
  DEEPGEMM_TRY_ASSIGN(operands, Operands::make(context.gpu, product));
  Contest contest(context, product, *operands, row);
  DEEPGEMM_TRY_ASSIGN(planned, contest.make_plan());
  if (planned) DEEPGEMM_TRY(contest.prepare_ours(*operands));
  DEEPGEMM_TRY(contest.prepare_peer(*operands));
  DEEPGEMM_TRY(contest.time());
  return row;
}

}  // namespace deepgemm::bench
