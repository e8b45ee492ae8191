#include "cpu_product.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "base/formats.hpp"
#include "deepgemm/verb.hpp"

// What the sources of tools/deepgemm/ leave to the program that they are linked into.
namespace deepgemm::cli {
base::Error library_error(deepgemm_status_t status) { return {status, deepgemm_last_error()}; }
}  // namespace deepgemm::cli

namespace deepgemm::bench {
namespace {

// Random values repeat after so many; prime, so that no two rows of a matrix are the same.
constexpr int64_t kPeriod = 65521;

void repeat(const cli::Buffer& source, const cli::Buffer& target) {
  const auto from = source.memory();
  const auto to = target.memory();
  for (size_t at = 0; at < to.size(); at += from.size()) {
    std::memcpy(to.data() + at, from.data(), std::min(from.size(), to.size() - at));
  }
}

// `values`: the format that holds all of them.
cli::Buffer random_matrix(gemm_precision_t precision, int64_t count, uint64_t seed,
                          gemm_precision_t values) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, precision == PRECISION_INT8 ? 30 : 1);
  cli::Buffer block(base::storage_bytes(precision, kPeriod));
  for (int64_t i = 0; i < kPeriod; ++i) {
    uint64_t code = 0;
    base::encode(values, &code, 0, normal(random));
    base::encode(precision, block.data(), i, base::decode(values, &code, 0));
  }
  cli::Buffer matrix(base::storage_bytes(precision, count));
  repeat(block, matrix);
  return matrix;
}

cli::Buffer random_words(int64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  cli::Buffer block(kPeriod * 8);
  for (int64_t i = 0; i < kPeriod; ++i) {
    const uint64_t word = random();
    std::memcpy(block.data() + 8 * i, &word, sizeof(word));
  }
  cli::Buffer buffer(bytes);
  repeat(block, buffer);
  return buffer;
}

bool has_int4_weights(const intent::Problem& problem) { return base::is_int4(problem.b.precision); }

deepgemm_weight_tensors_t blank_tensors(const intent::Problem& problem) {
  deepgemm_weight_tensors_t tensors = {};
  tensors.in_features = problem.k;
  tensors.out_features = problem.n;
  return tensors;
}

// Weights of an AWQ checkpoint: random quants and zero points, one scale for all groups.
base::Result<cli::PackedWeights> pack_awq(const cli::Plan& plan, const intent::Problem& problem,
                                          uint64_t seed) {
  const int64_t group = problem.contract.group_size;
  const int64_t groups = (problem.k + group - 1) / group;
  const cli::Buffer quants = random_words(problem.k * problem.n / 2, seed);
  const cli::Buffer zeros = random_words(groups * problem.n / 2, seed + 1);
  const cli::Buffer scales(base::storage_bytes(PRECISION_FP16, groups * problem.n));
  for (int64_t i = 0; i < groups * problem.n; ++i) {
    base::encode(PRECISION_FP16, scales.data(), i, 1.0 / 64);
  }
  deepgemm_weight_tensors_t tensors = blank_tensors(problem);
  tensors.format = WEIGHT_FORMAT_AWQ_GEMM;
  tensors.group_size = static_cast<int32_t>(group);
  tensors.weight = quants.data();
  tensors.zeros = zeros.data();
  tensors.scales = scales.data();
  return cli::PackedWeights::pack(plan, tensors);
}

base::Result<cli::PackedWeights> pack_plain(const cli::Plan& plan, const intent::Problem& problem,
                                            const Inputs& inputs, size_t set) {
  deepgemm_weight_tensors_t tensors = blank_tensors(problem);
  tensors.precision = inputs.format;
  tensors.weight = inputs.weights[set].data();
  if (inputs.format == PRECISION_INT8) {
    tensors.format = WEIGHT_FORMAT_INT8_CHANNEL;
    tensors.scales = inputs.scales.data();
    tensors.scale_precision = PRECISION_FP32;
  }
  return cli::PackedWeights::pack(plan, tensors);
}

class OwnProduct : public Product {
 public:
  OwnProduct(cli::Plan plan, const intent::Problem& problem, const Inputs& inputs)
      : plan_(std::move(plan)),
        inputs_(inputs),
        output_(base::storage_bytes(problem.c.precision, problem.m * problem.n)) {}

  base::Result<void> pack(const intent::Problem& problem) {
    for (size_t set = 0; set < inputs_.activations.size(); ++set) {
      auto packed = has_int4_weights(problem) ? pack_awq(plan_, problem, 2 * set + 1)
                                              : pack_plain(plan_, problem, inputs_, set);
      if (!packed.ok()) return packed.error();
      packed_.push_back(std::move(*packed));
    }
    return launch(0);  // a plan may refuse what its packing accepts
  }
  void use_plain_weights() { packed_.clear(); }
  bool needs_packed() const { return plan_.info().packed_b; }

  base::Result<void> launch(size_t set) override {
    gemm_launch_args_t args = {};
    args.A = inputs_.activations[set].data();
    args.C = output_.data();
    if (!packed_.empty()) {
      args.B = packed_[set].get();
    } else {
      args.B = inputs_.weights[set].data();
      args.scale_b = reinterpret_cast<const float*>(inputs_.scales.data());
    }
    DEEPGEMM_CALL(deepgemm_launch_plan_args(plan_.get(), &args));
    return {};
  }

  const void* output() const override { return output_.data(); }
  std::string family() const override { return plan_.info().family; }
  std::string config() const override {
    const gemm_tiling_policy_t& tiling = plan_.info().tiling;
    return fmt::format("{} {}x{}x{} {}", plan_.info().path, tiling.block_m, tiling.block_n,
                       tiling.block_k, packed_.empty() ? "plain" : "packed");
  }

 private:
  cli::Plan plan_;
  const Inputs& inputs_;
  std::vector<cli::PackedWeights> packed_;
  cli::Buffer output_;
};

}  // namespace

Inputs make_inputs(const intent::Problem& problem, size_t sets, Fp32Weights kind) {
  Inputs inputs;
  inputs.m = problem.m;
  inputs.n = problem.n;
  inputs.k = problem.k;
  inputs.format = problem.a.precision;
  inputs.output = problem.c.precision;
  for (size_t set = 0; set < sets; ++set) {
    const gemm_precision_t format = inputs.format;
    const bool narrow = format == PRECISION_FP32 && kind == Fp32Weights::kBf16Values;
    inputs.activations.push_back(random_matrix(format, problem.m * problem.k, 2 * set, format));
    inputs.weights.push_back(random_matrix(format, problem.n * problem.k, 2 * set + 1,
                                           narrow ? PRECISION_BF16 : format));
  }
  if (inputs.format == PRECISION_INT8) {
    inputs.scales = cli::Buffer(base::storage_bytes(PRECISION_FP32, problem.n));
    for (int64_t i = 0; i < problem.n; ++i) {
      base::encode(PRECISION_FP32, inputs.scales.data(), i, 1e-3 * static_cast<double>(1 + i % 7));
    }
  }
  return inputs;
}

int64_t weight_bytes(const intent::Problem& problem) {
  return base::storage_bytes(problem.b.precision, problem.n * problem.k);
}

base::Result<std::unique_ptr<Product>> make_own(const cli::NamedProblem& problem,
                                                const Inputs& inputs) {
  DEEPGEMM_TRY_ASSIGN(plan, cli::Plan::create(problem));
  auto own = std::make_unique<OwnProduct>(std::move(plan), problem.problem, inputs);
  const auto packed = own->pack(problem.problem);
  if (!packed.ok()) {
    if (own->needs_packed()) return packed.error();
    own->use_plain_weights();
    DEEPGEMM_TRY(own->launch(0));
  }
  return std::unique_ptr<Product>(std::move(own));
}

double relative_difference(const Inputs& inputs, const void* one, const void* other) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < inputs.m * inputs.n; ++i) {
    const double value = base::decode(inputs.output, other, i);
    difference += std::pow(base::decode(inputs.output, one, i) - value, 2);
    size += value * value;
  }
  const double ratio = std::sqrt(difference / std::max(size, 1e-300));
  return std::isfinite(ratio) ? ratio : 1e300;
}

}  // namespace deepgemm::bench
