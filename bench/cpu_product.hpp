// One product y = x W^T as the library and its peers are given it, and the library's own form.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "deepgemm/problem_options.hpp"
#include "deepgemm/product.hpp"

namespace deepgemm::bench {

// Operands as a model has them: activations [m][k] and weights [n][k], row-major, in several sets
// over which launches rotate, so that caches keep no more of them than they do in a model.
struct Inputs {
  int64_t m = 0, n = 0, k = 0;
  gemm_precision_t format = PRECISION_FP32;  // of activations and weights
  gemm_precision_t output = PRECISION_FP32;
  std::vector<cli::Buffer> activations, weights;  // one per set
  cli::Buffer scales;                             // INT8: FP32 factor of each row of the weights
};

// What weights in FP32 hold: the values of a BF16 checkpoint, which most models are, or any.
enum class Fp32Weights : uint8_t { kBf16Values, kAnyValues };

// Random values; the weights of no two sets are the same.
Inputs make_inputs(const intent::Problem& problem, size_t sets, Fp32Weights kind);

// Bytes of the weights of one set, without scales.
int64_t weight_bytes(const intent::Problem& problem);

// An implementation with everything prepared: weights packed, primitives made.
class Product {
 public:
  virtual ~Product() = default;
  // Computes with the operands of a set into output().
  virtual base::Result<void> launch(size_t set) = 0;
  virtual const void* output() const = 0;
  virtual std::string config() const = 0;
  // Kernel family of the library; of peers, the name of their implementation.
  virtual std::string family() const = 0;
};

// The library by its public interface. Weights are packed once where the plan takes packed ones,
// else they are read as they lie. `inputs` must outlive the product; INT4 weights are drawn here.
base::Result<std::unique_ptr<Product>> make_own(const cli::NamedProblem& problem,
                                                const Inputs& inputs);

// Root mean square of the difference of two outputs relative to that of the second; large when one
// of them is not finite.
double relative_difference(const Inputs& inputs, const void* one, const void* other);

}  // namespace deepgemm::bench
