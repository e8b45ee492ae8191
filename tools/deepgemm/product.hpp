// A product to launch: a plan, its operands in memory, and the values they stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "contract/verify.hpp"
#include "deepgemm/deepgemm.h"
#include "deepgemm/problem_options.hpp"
#include "deepgemm/timing.hpp"
#include "layout/matrix_layout.hpp"

namespace deepgemm::cli {

// A plan that is destroyed with this object.
class Plan {
 public:
  static base::Result<Plan> create(const NamedProblem& problem);

  const gemm_plan_t* get() const { return plan_.get(); }
  const deepgemm_plan_info_t& info() const { return info_; }
  // The library's report of the plan.
  base::Result<std::string> explain(deepgemm_explain_format_t format) const;

 private:
  struct Destroy {
    void operator()(gemm_plan_t* plan) const;
  };
  std::unique_ptr<gemm_plan_t, Destroy> plan_;
  deepgemm_plan_info_t info_ = {};
};

// The report without a plan. Also when nothing is admissible.
base::Result<std::string> explain_problem(const NamedProblem& problem,
                                          deepgemm_explain_format_t format);

// Memory of the host, aligned to a cache line, and a copy on the device where that has its own.
class Buffer {
 public:
  Buffer() = default;
  // `origin`: where data() points, in bytes from the start; not 0 where strides are negative.
  explicit Buffer(int64_t bytes, int64_t origin = 0);
  std::byte* data() const { return memory_.get() + origin_; }
  // What a launch takes.
  void* address() const { return copy_ != nullptr ? copy_.get() + origin_ : data(); }
  std::span<std::byte> memory() const { return {memory_.get(), static_cast<size_t>(size_)}; }

  // Makes the copy on the device, unless that shares the host's memory. OUT_OF_MEMORY.
  base::Result<void> place_on(const char* device);
  // Brings the copy back to the host.
  base::Result<void> fetch() const;

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  struct FreeCopy {
    void operator()(std::byte* data) const { deepgemm_free(data); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::unique_ptr<std::byte, FreeCopy> copy_;
  int64_t size_ = 0;
  int64_t origin_ = 0;
};

// Memory for an operand stored as `layout` says.
base::Result<Buffer> matrix_buffer(const layout::MatrixLayout& layout, gemm_precision_t precision);

// Weights that are destroyed with this object.
class PackedWeights {
 public:
  static base::Result<PackedWeights> pack(const Plan& plan,
                                          const deepgemm_weight_tensors_t& tensors);

  const void* get() const { return packed_.get(); }
  const deepgemm_packed_info_t& info() const { return info_; }
  // The values that the plan multiplies with, [K][N].
  base::Result<std::vector<double>> values() const;

 private:
  struct Destroy {
    void operator()(deepgemm_packed_weights_t* packed) const;
  };
  std::unique_ptr<deepgemm_packed_weights_t, Destroy> packed_;
  deepgemm_packed_info_t info_ = {};
};

// Operands of one launch, stored as the problem declares. `values` has one entry per matrix of the
// batch and holds what is stored, that is after rounding and packing; C0 is in `values` and in C.
struct Operands {
  Buffer a, b, c, bias, residual;
  PackedWeights packed;
  std::vector<contract::ReferenceProblem> values;

  gemm_launch_args_t args() const;
  // Copies all to the plan's device, unless that shares the host's memory.
  base::Result<void> place_on(const Plan& plan);
};

// Stores values[i].a, b and, where the problem has them, c0, bias and residual. Packs B when the
// plan asks for it; values[i].b becomes what the packed weights hold. `importance` (one per channel
// of K, or empty) chooses outlier channels. C is filled with NaN where C0 is not read.
base::Result<Operands> store_operands(const intent::Problem& problem, const Plan& plan,
                                      std::vector<contract::ReferenceProblem> values,
                                      std::span<const float> importance);

// What `problem` says of one matrix of its batch, without any values.
contract::ReferenceProblem blank_values(const intent::Problem& problem);

// Values of an input set, also for bias, residual and C0; deterministic by seed. Weights to be
// packed are finite in every set.
std::vector<contract::ReferenceProblem> generate_values(const intent::Problem& problem,
                                                        bool packed_b, contract::InputSet set,
                                                        uint64_t seed);

// C of matrix `batch`, [m][output columns]. After operands.c.fetch().
std::vector<double> load_result(const intent::Problem& problem, const Operands& operands,
                                int64_t batch);

// Times launches with the operands that `args(run)` gives. On a GPU a run is several launches one
// after the other, and the wait for them.
base::Result<Timing> time_launches(const Plan& plan, const TimingLimits& limits,
                                   const std::function<gemm_launch_args_t(int64_t run)>& args);

}  // namespace deepgemm::cli
