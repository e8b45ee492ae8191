#include "gpu_product.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/formats.hpp"
#include "intent/problem.hpp"

namespace deepgemm::bench {
namespace {

constexpr size_t kBlock = size_t{1} << 20;                // elements that repeat
constexpr size_t kBeyondCaches = size_t{3} * (60 << 20);  // bytes that pass between two uses

gemm_precision_t input_of(const std::string& row_class) {
  return row_class == "bf16"   ? PRECISION_BF16
         : row_class == "fp16" ? PRECISION_FP16
         : row_class == "int8" ? PRECISION_INT8
                               : PRECISION_FP32;
}

// Rows of a class have its arithmetic alone; a hook refuses the others.
struct Wanted {
  const char* path;
};
bool has_path(void* user, const deepgemm_candidate_t* candidate) {
  return std::string(candidate->path) == static_cast<const Wanted*>(user)->path;
}

std::string line_of(const PeerProduct& product) {
  const std::string fields = product.row_class == "tf32"     ? "a=tf32"
                             : product.row_class == "int8"   ? "a=int8 c=fp32 dequant=channel"
                             : product.row_class == "3xtf32" ? "a=fp32 rel=0.01"
                                                             : "a=" + product.row_class;
  return fmt::format("nt m={} n={} k={} {}", product.m, product.n, product.k, fields);
}

// Random elements that the host knows too, in copies enough to defeat caches.
class Operands {
 public:
  static base::Result<std::unique_ptr<Operands>> make(BenchGpu& gpu, const PeerProduct& product) {
    std::unique_ptr<Operands> made(new Operands(gpu, product));
    DEEPGEMM_TRY(made->fill());
    return made;
  }
  ~Operands() {
    for (const auto* list : {&a_, &b_, &c_}) {
      for (void* memory : *list) static_cast<void>(gpu_.release(memory));
    }
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  int sets() const { return static_cast<int>(a_.size()); }
  const void* a(int set) const { return a_[index(set)]; }
  const void* b(int set) const { return b_[index(set)]; }
  void* c(int set) const { return c_[index(set)]; }

  // The exact value of an element, and the sum of the magnitudes.
  std::pair<double, double> element(int64_t row, int64_t column) const {
    double sum = 0, magnitude = 0;
    for (int64_t x = 0; x < product_.k; ++x) {
      const double value =
          at(a_block_, row * product_.k + x) * at(b_block_, column * product_.k + x);
      sum += value;
      magnitude += std::abs(value);
    }
    return {sum, magnitude};
  }

 private:
  Operands(BenchGpu& gpu, const PeerProduct& product) : gpu_(gpu), product_(product) {}
  size_t index(int set) const { return static_cast<size_t>(set) % a_.size(); }
  double at(const std::vector<uint8_t>& block, int64_t element) const {
    return base::decode(input_of(product_.row_class), block.data(),
                        element % static_cast<int64_t>(kBlock));
  }

  base::Result<void> fill() {
    const gemm_precision_t precision = input_of(product_.row_class);
    const auto width = static_cast<size_t>(input_bytes(product_.row_class));
    std::mt19937 random(20261201);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (std::vector<uint8_t>* block : {&a_block_, &b_block_}) {
      block->resize(kBlock * width);
      for (size_t i = 0; i < kBlock; ++i) {
        const double value = uniform(random) * (precision == PRECISION_INT8 ? 127 : 1);
        base::encode(precision, block->data(), static_cast<int64_t>(i), value);
      }
    }
    const std::vector<uint8_t> nans(kBlock, 0xff);  // in each format of C
    const auto m = static_cast<size_t>(product_.m), n = static_cast<size_t>(product_.n);
    const auto k = static_cast<size_t>(product_.k);
    const size_t bytes = (m + n) * k * width;
    const size_t sets = std::clamp<size_t>(kBeyondCaches / bytes + 1, 3, 64);
    for (size_t set = 0; set < sets; ++set) {
      DEEPGEMM_TRY(add(a_, a_block_, m * k * width));
      DEEPGEMM_TRY(add(b_, b_block_, n * k * width));
      DEEPGEMM_TRY(add(c_, nans, m * n * 4));
    }
    return {};
  }
  base::Result<void> add(std::vector<void*>& to, const std::vector<uint8_t>& block, size_t bytes) {
    DEEPGEMM_TRY_ASSIGN(memory, gpu_.allocate(bytes));
    to.push_back(memory);
    for (size_t at = 0; at < bytes; at += block.size()) {
      DEEPGEMM_TRY(gpu_.copy(static_cast<std::byte*>(memory) + at, block.data(),
                             std::min(block.size(), bytes - at)));
    }
    return {};
  }

  BenchGpu& gpu_;
  const PeerProduct product_;
  std::vector<uint8_t> a_block_, b_block_;
  std::vector<void*> a_, b_, c_;
};

// A plan that goes with the object.
struct Plan {
  ~Plan() { deepgemm_destroy_plan(&plan); }
  gemm_plan_t plan = {};
};

// Some elements of C against the exact product: the largest error as a share of the bound.
base::Result<double> worst_error(BenchGpu& gpu, const Operands& operands,
                                 const PeerProduct& product, const deepgemm_plan_info_t& info) {
  constexpr int kSamples = 100;
  const bool half = output_bytes(product.row_class) == 2;
  const gemm_precision_t precision = half ? input_of(product.row_class) : PRECISION_FP32;
  std::vector<uint8_t> c(static_cast<size_t>(product.m * product.n) * (half ? 2 : 4));
  DEEPGEMM_TRY(gpu.copy(c.data(), operands.c(0), c.size()));
  double worst = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    const int64_t row = sample * 7919 % product.m, column = sample * 104729 % product.n;
    const auto [value, magnitude] = operands.element(row, column);
    const double error =
        std::abs(base::decode(precision, c.data(), row * product.n + column) - value);
    const double allowed = info.bound_relative * magnitude + info.bound_absolute;
    worst = std::max(worst, allowed > 0 ? error / allowed : error);
    if (std::isnan(error)) worst = HUGE_VAL;
  }
  return worst;
}

// Launches enough to be timed, each set of operands as often.
int launches_of(const Operands& operands, const PeerProduct& product) {
  const double flops = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                       static_cast<double>(product.k);
  const int wanted = static_cast<int>(1e-3 / (flops / 3e14 + 1e-5)) + 1;
  return (wanted + operands.sets() - 1) / operands.sets() * operands.sets();
}

base::Result<void> measure_ours(const BenchContext& context, const PeerProduct& product,
                                const Operands& operands, GpuRow& row) {
  DEEPGEMM_TRY_ASSIGN(spec, intent::parse_line(row.line));
  spec.intent.device = context.device.c_str();
  const Wanted wanted = {product.row_class.c_str()};
  deepgemm_hooks_t hooks = {};
  hooks.user = const_cast<Wanted*>(&wanted);  // NOLINT: the hook reads it
  hooks.admit_candidate = has_path;
  deepgemm_set_hooks(&hooks);
  Plan owner;
  const deepgemm_status_t made =
      deepgemm_create_plan(&owner.plan, &spec.intent, product.m, product.n, product.k);
  deepgemm_set_hooks(nullptr);
  if (made != DEEPGEMM_SUCCESS) {
    row.refused = deepgemm_last_error();
    return {};
  }
  owner.plan.stream = context.gpu.stream();
  const auto launch = [&](int i) {
    return deepgemm_launch_plan(&owner.plan, operands.a(i), operands.b(i), operands.c(i)) ==
           DEEPGEMM_SUCCESS;
  };
  if (!launch(0)) {
    return base::make_error(DEEPGEMM_ERROR_DEVICE, "{}: {}", row.line, deepgemm_last_error());
  }
  deepgemm_plan_info_t info = {};
  deepgemm_get_plan_info(&owner.plan, &info);
  row.path = info.path;
  row.family = info.family;
  row.config =
      fmt::format("{}x{}x{}", info.tiling.block_m, info.tiling.block_n, info.tiling.block_k);
  DEEPGEMM_TRY_ASSIGN(worst, worst_error(context.gpu, operands, product, info));
  row.worst_error = worst;
  DEEPGEMM_TRY_ASSIGN(time,
                      context.gpu.time(launches_of(operands, product), context.seconds, launch));
  row.us = time.us;
  row.spread = time.spread;
  return {};
}

// The fastest of the algorithms that the library proposes.
base::Result<void> measure_peer(const BenchContext& context, const PeerProduct& product,
                                const Operands& operands, GpuRow& row) {
  if (context.peer == nullptr) return {};
  PeerProduct asked = product;
  if (asked.row_class == "3xtf32") asked.row_class = "fp32";
  const int algorithms = context.peer->prepare(asked);
  if (algorithms == 0) return {};
  DEEPGEMM_TRY_ASSIGN(workspace, context.gpu.allocate(CublasLt::kWorkspace));
  const int count = launches_of(operands, product);
  double best = 0;
  int fastest = -1;
  const auto time = [&](int algorithm, double seconds) {
    return context.gpu.time(count, seconds, [&](int i) {
      return context.peer->launch(algorithm, operands.a(i), operands.b(i), operands.c(i), workspace,
                                  context.gpu.stream());
    });
  };
  for (int algorithm = 0; algorithm < algorithms; ++algorithm) {
    const auto tried = time(algorithm, 0);
    if (tried.ok() && (fastest < 0 || tried->us < best)) {
      best = tried->us;
      fastest = algorithm;
    }
  }
  if (fastest >= 0) {
    DEEPGEMM_TRY_ASSIGN(measured, time(fastest, context.seconds));
    row.peers["cublaslt"] = measured.us;
  }
  return context.gpu.release(workspace);
}

}  // namespace

base::Result<GpuRow> measure_product(const BenchContext& context, const PeerProduct& product) {
  GpuRow row;
  row.line = line_of(product);
  row.row_class = product.row_class;
  row.m = product.m;
  row.n = product.n;
  row.k = product.k;
  const double m = static_cast<double>(product.m), n = static_cast<double>(product.n);
  const double k = static_cast<double>(product.k);
  row.flops = 2 * m * n * k;
  row.bytes =
      (m + n) * k * input_bytes(product.row_class) + m * n * output_bytes(product.row_class);
  DEEPGEMM_TRY_ASSIGN(operands, Operands::make(context.gpu, product));
  DEEPGEMM_TRY(measure_ours(context, product, *operands, row));
  DEEPGEMM_TRY(measure_peer(context, product, *operands, row));
  return row;
}

}  // namespace deepgemm::bench
