// A product to test: operands with guard zones, its launch, its FP64 reference.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/launch.hpp"
#include "contract/bound.hpp"
#include "contract/path.hpp"
#include "contract/verify.hpp"
#include "layout/quantized_weights.hpp"

namespace deepgemm::cpu {

// How a stored matrix lies in memory.
enum class Form {
  kRows,       // row-major, contiguous
  kColumns,    // column-major
  kPadded,     // row-major, three elements between rows
  kScattered,  // both strides above 1
  kReversed,   // rows from the last to the first
  kRepeated,   // one row for all (inputs only)
  kBlocked,    // tiles of 16 x 16
};

struct Case {
  gemm_operation_t operation = GEMM_OP_NN;
  int64_t m = 17, n = 33, k = 40, batch = 1;
  int64_t rows = -1;  // of the launch; -1: m
  gemm_precision_t a = PRECISION_FP32, b = PRECISION_FP32, c = PRECISION_FP32;
  contract::PathId path = contract::PathId::kFp32;
  Form form_a = Form::kRows, form_b = Form::kRows, form_c = Form::kRows;
  double alpha = 1, beta = 0;
  gemm_activation_t activation = GEMM_ACTIVATION_NONE;
  bool bias = false, residual = false;
  gemm_precision_t bias_precision = PRECISION_FP32, residual_precision = PRECISION_FP32;
  gemm_dequant_strategy_t strategy = DEQUANT_STRATEGY_DEFAULT;
  int64_t group_size = 0;
  bool scale_a = false, scale_b = false;
  std::optional<layout::QuantizedWeights> weights;  // packed and used as B
  int32_t block_m = 64, block_n = 64, block_k = 256;
  const char* family = "cpu_blocked";
  std::optional<Isa> isa;
  ThreadPool* pool = nullptr;
  bool exact = true;  // small integers and powers of two: every sum is exact
  uint64_t seed = 1;
  size_t misaligned = 0;  // bytes that every operand starts after an aligned address

  std::string text() const;
};

// Memory of one matrix between guard zones.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const layout::MatrixLayout& layout, gemm_precision_t precision, uint8_t fill,
         size_t misaligned);

  void* base() { return bytes_.data() + start_; }
  const void* base() const { return bytes_.data() + start_; }
  double get(int64_t batch, int64_t row, int64_t column) const;
  void set(int64_t batch, int64_t row, int64_t column, double value);
  // Bytes that belong to no element of the first `rows` rows and changed since `snapshot`.
  int64_t bytes_damaged(const Buffer& snapshot, int64_t rows) const;
  // Elements, gaps and guard zones equal to the bit; both buffers have the same layout.
  bool same_bytes(const Buffer& other) const;

 private:
  layout::MatrixLayout layout_;
  gemm_precision_t precision_ = PRECISION_FP32;
  std::vector<uint8_t> bytes_;
  size_t start_ = 0;
};

class Product {
 public:
  explicit Product(const Case& description);

  // Makes the executable and launches. Fails the test when the executable is refused.
  void launch();

  // C and the reference value rounded to its format agree, every element of every matrix.
  void expect_exact() const;
  // Errors stay within contract::error_bound for the path and the family's way of summing.
  void expect_within_bound() const;
  // Nothing but the elements of C in the launched rows was written.
  void expect_guards_untouched() const;

  int64_t rows() const { return case_.rows < 0 ? case_.m : case_.rows; }
  int64_t columns() const { return problem_.output_columns(); }
  double result(int64_t batch, int64_t row, int64_t column) const {
    return c_.get(batch, row, column);
  }
  const Buffer& c() const { return c_; }
  Buffer& a() { return a_; }
  Buffer& b() { return b_; }
  Buffer& c() { return c_; }
  intent::Problem& problem() { return problem_; }
  Operands operands();
  base::Result<std::shared_ptr<const Executable>> executable() const;

 private:
  void make_problem();
  void fill_operands();
  double draw(gemm_precision_t precision);
  float draw_scale();
  contract::ReferenceProblem reference_problem(int64_t batch) const;
  double scale_of(bool is_b, int64_t outer, int64_t k) const;
  contract::ErrorBound bound() const;

  Case case_;
  intent::Problem problem_;
  std::mt19937_64 random_;
  Buffer a_, b_, c_, c_before_, residual_, bias_;
  std::vector<float> scale_a_, scale_b_;
  std::shared_ptr<const PackedPanels> packed_;
};

// Launches, compares with the reference bit by bit or within the bound (then with inexact
// operands), and looks at the guard zones.
void expect_exact(const Case& description);
void expect_bounded(Case description);

// Random weights in canonical form. exact: scales are powers of two.
struct WeightCase {
  int64_t k = 40, n = 33;
  gemm_precision_t precision = PRECISION_INT4_AWQ;
  int64_t group_size = 16;
  int64_t block_n = 1;
  int64_t group_offset = 0;
  bool zeros = true;
  bool act_order = false;
  int outliers = 0;
  bool exact = true;
  uint64_t seed = 1;
};
layout::QuantizedWeights random_weights(const WeightCase& description);

// Instruction sets of this machine.
std::vector<Isa> runnable_isas();

}  // namespace deepgemm::cpu
