// Random problems for the sweep: an intent with sizes, its operands in memory and their decoded
// values.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "contract/verify.hpp"
#include "deepgemm/deepgemm.h"
#include "layout/matrix_layout.hpp"

namespace deepgemm::property {

// Arithmetic and formats of a case, e.g. FP8 by FP8 with 1x128 and 128x128 scales.
struct Recipe {
  const char* name;
  gemm_precision_t input, activation, weight;
  std::vector<gemm_precision_t> outputs;
  double relative_limit;  // 0: native
  bool packed;            // B goes through deepgemm_pack_weights
  bool scaled;            // scales are given at launch
};
const std::vector<Recipe>& recipes();

// A matrix in memory with guard zones on both sides.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const layout::MatrixLayout& layout, gemm_precision_t precision);
  void* data() const;  // element (0,0,0) of the layout
  void fill(uint8_t byte);
  void store(int64_t batch, int64_t row, int64_t col, double value);
  double load(int64_t batch, int64_t row, int64_t col) const;
  bool guards_intact() const;
  // Every byte that belongs to no element still has the value of fill().
  bool gaps_intact(uint8_t byte) const;

 private:
  layout::MatrixLayout layout_;
  gemm_precision_t precision_ = PRECISION_FP32;
  std::shared_ptr<std::vector<uint8_t>> bytes_;
  int64_t base_ = 0;  // byte offset of element (0,0,0)
};

struct Case {
  const Recipe* recipe = nullptr;
  gemm_intent_t intent = {};
  int64_t m = 0, n = 0, k = 0, batch = 1;
  layout::MatrixLayout c_layout;
  Buffer a, b, c;
  std::vector<float> scale_a, scale_b;
  std::vector<uint8_t> bias, residual;                // contiguous, in output precision
  std::vector<double> dense_weights;                  // [n][k] for packed recipes
  std::vector<contract::ReferenceProblem> reference;  // per batch; b empty when packed

  int64_t output_columns() const { return reference.front().output_columns(); }
};

// The case of a seed: always the same.
Case make_case(uint64_t seed);

}  // namespace deepgemm::property
