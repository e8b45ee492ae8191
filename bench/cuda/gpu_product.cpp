#include "gpu_product.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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
         : row_class == "fp64" ? PRECISION_FP64
                               : PRECISION_FP32;
}
gemm_precision_t output_of(const std::string& row_class) {
  return row_class == "int8" ? PRECISION_FP32 : input_of(row_class);
}

// What the peer is asked for: it has no arithmetic between TF32 and FP32.
std::string peer_class(const std::string& row_class) {
  const bool split = row_class == "3xtf32" || row_class == "tf32_2xbf16";
  return split || row_class == "fp32_acc64" ? "fp32" : row_class;
}

// Rows of a class have its arithmetic alone; a hook refuses the others.
struct Wanted {
  const char* path;
};
bool has_path(void* user, const deepgemm_candidate_t* candidate) {
  return std::string(candidate->path) == static_cast<const Wanted*>(user)->path;
}

std::string fields_of(const std::string& row_class) {
  if (row_class == "tf32") return "a=tf32";
  if (row_class == "int8") return "a=int8 c=fp32 dequant=channel";
  if (row_class == "3xtf32" || row_class == "tf32_2xbf16") return "a=fp32 rel=0.01";
  return row_class == "fp32_acc64" ? "a=fp32" : "a=" + row_class;
}

std::string line_of(const PeerProduct& product) {
  return fmt::format("nt m={} n={} k={} {}", product.m, product.n, product.k,
                     fields_of(product.row_class));
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

  // Makes all of C NaN.
  base::Result<void> forget_c(int set) const { return copy_repeatedly(c(set), nans_, c_bytes()); }

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
  size_t c_bytes() const {
    return static_cast<size_t>(product_.m * product_.n) *
           static_cast<size_t>(output_bytes(product_.row_class));
  }
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
    const auto m = static_cast<size_t>(product_.m), n = static_cast<size_t>(product_.n);
    const auto k = static_cast<size_t>(product_.k);
    const size_t bytes = (m + n) * k * width;
    const size_t sets = std::clamp<size_t>(kBeyondCaches / bytes + 1, 3, 64);
    for (size_t set = 0; set < sets; ++set) {
      DEEPGEMM_TRY(add(a_, a_block_, m * k * width));
      DEEPGEMM_TRY(add(b_, b_block_, n * k * width));
      DEEPGEMM_TRY(add(c_, nans_, c_bytes()));
    }
    return {};
  }
  base::Result<void> add(std::vector<void*>& to, const std::vector<uint8_t>& block, size_t bytes) {
    DEEPGEMM_TRY_ASSIGN(memory, gpu_.allocate(bytes));
    to.push_back(memory);
    return copy_repeatedly(memory, block, bytes);
  }
  base::Result<void> copy_repeatedly(void* to, const std::vector<uint8_t>& block,
                                     size_t bytes) const {
    for (size_t at = 0; at < bytes; at += block.size()) {
      DEEPGEMM_TRY(gpu_.copy(static_cast<std::byte*>(to) + at, block.data(),
                             std::min(block.size(), bytes - at)));
    }
    return {};
  }

  BenchGpu& gpu_;
  const PeerProduct product_;
  std::vector<uint8_t> a_block_, b_block_;
  const std::vector<uint8_t> nans_ = std::vector<uint8_t>(kBlock, 0xff);  // in each format of C
  std::vector<void*> a_, b_, c_;
};

// A plan that goes with the object.
struct Plan {
  ~Plan() { deepgemm_destroy_plan(&plan); }
  gemm_plan_t plan = {};
};

// Element of C; the peer leaves products of integers as they are.
double element_of(const std::vector<uint8_t>& c, const std::string& row_class, bool ours,
                  int64_t index) {
  if (row_class != "int8" || ours) return base::decode(output_of(row_class), c.data(), index);
  int32_t value = 0;
  std::memcpy(&value, c.data() + static_cast<size_t>(index) * sizeof value, sizeof value);
  return value;
}

// Some elements of C against the exact product: the largest error as a share of the plan's bound.
base::Result<double> worst_error(BenchGpu& gpu, const Operands& operands,
                                 const PeerProduct& product, const deepgemm_plan_info_t& info,
                                 bool ours) {
  constexpr int kSamples = 100;
  std::vector<uint8_t> c(static_cast<size_t>(product.m * product.n) *
                         static_cast<size_t>(output_bytes(product.row_class)));
  DEEPGEMM_TRY(gpu.copy(c.data(), operands.c(0), c.size()));
  double worst = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    const int64_t row = sample * 7919 % product.m, column = sample * 104729 % product.n;
    const auto [value, magnitude] = operands.element(row, column);
    const double error =
        std::abs(element_of(c, product.row_class, ours, row * product.n + column) - value);
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

// The plan of the row's arithmetic, which a hook asks for; where there is none `row.refused` says
// why.
base::Result<void> make_plan(const BenchContext& context, const PeerProduct& product, Plan& owner,
                             GpuRow& row) {
  DEEPGEMM_TRY_ASSIGN(spec, intent::parse_line(row.line));
  spec.intent.device = context.device.c_str();
  const Wanted wanted = {product.row_class.c_str()};
  deepgemm_hooks_t hooks = {};
  hooks.user = const_cast<Wanted*>(&wanted);  // NOLINT: the hook reads it
  hooks.admit_candidate = has_path;
  deepgemm_set_hooks(&hooks);
  const deepgemm_status_t made =
      deepgemm_create_plan(&owner.plan, &spec.intent, product.m, product.n, product.k);
  deepgemm_set_hooks(nullptr);
  if (made != DEEPGEMM_SUCCESS) row.refused = deepgemm_last_error();
  owner.plan.stream = context.gpu.stream();
  return {};
}

// Launched once, and its result checked.
base::Result<void> check_ours(const BenchContext& context, const PeerProduct& product,
                              const Operands& operands, const BenchGpu::Launch& launch,
                              const Plan& owner, GpuRow& row) {
  if (!launch(0)) {
    return base::make_error(DEEPGEMM_ERROR_DEVICE, "{}: {}", row.line, deepgemm_last_error());
  }
  deepgemm_plan_info_t info = {};
  deepgemm_get_plan_info(&owner.plan, &info);
  row.path = info.path;
  row.family = info.family;
  row.config =
      fmt::format("{}x{}x{}", info.tiling.block_m, info.tiling.block_n, info.tiling.block_k);
  DEEPGEMM_TRY_ASSIGN(worst, worst_error(context.gpu, operands, product, info, true));
  row.worst_error = worst;
  return {};
}

// The fastest of the algorithms that the library proposes and whose result is right: within a few
// times our own bound, for its arithmetic may be another one of the same formats. -1: there is
// none.
base::Result<int> fastest_algorithm(const BenchContext& context, const PeerProduct& product,
                                    const Operands& operands, const Plan& owner,
                                    const std::function<BenchGpu::Launch(int)>& launch_with) {
  constexpr double kOtherArithmetic = 4;
  PeerProduct asked = product;
  asked.row_class = peer_class(product.row_class);
  deepgemm_plan_info_t info = {};
  deepgemm_get_plan_info(&owner.plan, &info);
  const int algorithms = context.peer->prepare(asked);
  double best = 0;
  int fastest = -1;
  for (int algorithm = 0; algorithm < algorithms; ++algorithm) {
    const BenchGpu::Launch launch = launch_with(algorithm);
    DEEPGEMM_TRY(operands.forget_c(0));
    if (!launch(0)) continue;
    DEEPGEMM_TRY_ASSIGN(worst, worst_error(context.gpu, operands, product, info, false));
    if (!(worst <= kOtherArithmetic)) continue;
    const auto tried = context.gpu.time(launches_of(operands, product), 0, launch);
    if (tried.ok() && (fastest < 0 || tried->us < best)) {
      best = tried->us;
      fastest = algorithm;
    }
  }
  return fastest;
}

// Plan and peer in turn.
base::Result<void> measure(const BenchContext& context, const PeerProduct& product,
                           const Operands& operands, GpuRow& row) {
  Plan owner;
  DEEPGEMM_TRY(make_plan(context, product, owner, row));
  if (!row.refused.empty()) return {};
  std::vector<BenchGpu::Launch> launches = {[&](int i) {
    return deepgemm_launch_plan(&owner.plan, operands.a(i), operands.b(i), operands.c(i)) ==
           DEEPGEMM_SUCCESS;
  }};
  DEEPGEMM_TRY(check_ours(context, product, operands, launches.front(), owner, row));
  DEEPGEMM_TRY_ASSIGN(workspace, context.gpu.allocate(CublasLt::kWorkspace));
  const auto launch_with = [&](int algorithm) -> BenchGpu::Launch {
    return [&, algorithm](int i) {
      return context.peer->launch(algorithm, operands.a(i), operands.b(i), operands.c(i), workspace,
                                  context.gpu.stream());
    };
  };
  if (context.peer != nullptr) {
    DEEPGEMM_TRY_ASSIGN(fastest, fastest_algorithm(context, product, operands, owner, launch_with));
    if (fastest >= 0) launches.push_back(launch_with(fastest));
  }
  DEEPGEMM_TRY_ASSIGN(times,
                      context.gpu.time(launches_of(operands, product), context.seconds, launches));
  row.us = times.front().us;
  row.spread = times.front().spread;
  if (times.size() > 1) row.peers["cublaslt"] = times.back().us;
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
  DEEPGEMM_TRY(measure(context, product, *operands, row));
  return row;
}

}  // namespace deepgemm::bench
