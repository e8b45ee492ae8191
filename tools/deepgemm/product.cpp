#include "deepgemm/product.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "base/formats.hpp"
#include "deepgemm/verb.hpp"
#include "runtime/memory.hpp"
#include "runtime/plan_handle.hpp"

namespace deepgemm::cli {
namespace {

constexpr size_t kAlignment = 64;

bool transposed_a(const intent::Problem& problem) {
  return problem.operation == GEMM_OP_TN || problem.operation == GEMM_OP_TT;
}
bool transposed_b(const intent::Problem& problem) {
  return problem.operation == GEMM_OP_NT || problem.operation == GEMM_OP_TT;
}

// Calls body(element offset, index in the logical row-major matrix) for one matrix of the batch.
template <class Body>
void for_each_element(const layout::MatrixLayout& layout, int64_t batch, bool transposed,
                      const Body& body) {
  for (int64_t row = 0; row < layout.rows; ++row) {
    for (int64_t col = 0; col < layout.cols; ++col) {
      const int64_t logical = transposed ? col * layout.rows + row : row * layout.cols + col;
      body(layout::element_offset(layout, batch, row, col), static_cast<size_t>(logical));
    }
  }
}

void store_matrix(const intent::Operand& operand, int64_t batch, bool transposed,
                  const std::vector<double>& values, Buffer& buffer) {
  for_each_element(operand.layout, batch, transposed, [&](int64_t offset, size_t index) {
    base::encode(operand.precision, buffer.data(), offset, values[index]);
  });
}

// All bits set: NaN in every float format.
void fill_nan(const Buffer& buffer) { std::ranges::fill(buffer.memory(), std::byte{0xFF}); }

base::Result<PackedWeights> pack_values(const intent::Problem& problem, const Plan& plan,
                                        const std::vector<double>& b,
                                        std::span<const float> importance) {
  deepgemm_weight_tensors_t tensors = {};
  tensors.format = WEIGHT_FORMAT_DENSE;
  tensors.precision = PRECISION_FP64;
  tensors.transposed = true;
  tensors.in_features = problem.k;
  tensors.out_features = problem.n;
  tensors.weight = const_cast<double*>(b.data());  // only read when packing
  tensors.channel_importance = importance.empty() ? nullptr : importance.data();
  return PackedWeights::pack(plan, tensors);
}

base::Result<Buffer> store_vector(gemm_precision_t precision, const std::vector<double>& values) {
  const auto count = static_cast<int64_t>(values.size());
  Buffer buffer(base::storage_bytes(precision, count));
  for (int64_t i = 0; i < count; ++i) {
    base::encode(precision, buffer.data(), i, values[static_cast<size_t>(i)]);
  }
  return buffer;
}

// The residual has a row stride of its own and follows the batch contiguously.
Buffer store_residual(const intent::Problem& problem,
                      const std::vector<contract::ReferenceProblem>& values) {
  const int64_t columns = problem.output_columns();
  const int64_t stride = problem.epilogue.residual_row_stride;
  const gemm_precision_t precision = problem.epilogue.residual_precision;
  const int64_t rows = problem.batch * problem.m;
  Buffer buffer(base::storage_bytes(precision, rows > 0 ? (rows - 1) * stride + columns : 0));
  fill_nan(buffer);
  for (int64_t row = 0; row < rows; ++row) {
    const auto& source = values[static_cast<size_t>(row / problem.m)].residual;
    for (int64_t col = 0; col < columns; ++col) {
      base::encode(precision, buffer.data(), row * stride + col,
                   source[static_cast<size_t>(row % problem.m * columns + col)]);
    }
  }
  return buffer;
}

void make_finite(std::vector<double>& values) {
  std::replace_if(
      values.begin(), values.end(), [](double v) { return !std::isfinite(v); }, 1.0);
}

// Random values of an epilogue operand, by way of the generator of A.
std::vector<double> epilogue_values(int64_t count, gemm_precision_t precision, uint64_t seed) {
  contract::ReferenceProblem generated;
  generated.m = 1;
  generated.k = count;
  contract::generate_inputs(contract::InputSet::kGaussian, seed, precision, precision, generated);
  return std::move(generated.a);
}

}  // namespace

void Plan::Destroy::operator()(gemm_plan_t* plan) const {
  deepgemm_destroy_plan(plan);
  delete plan;
}

base::Result<Plan> Plan::create(const NamedProblem& problem) {
  Plan plan;
  plan.plan_.reset(new gemm_plan_t{});
  const gemm_intent_t intent = problem.bound_intent();
  DEEPGEMM_CALL(deepgemm_create_plan(plan.plan_.get(), &intent, problem.spec.m, problem.spec.n,
                                     problem.spec.k));
  DEEPGEMM_CALL(deepgemm_get_plan_info(plan.plan_.get(), &plan.info_));
  return plan;
}

base::Result<std::string> Plan::explain(deepgemm_explain_format_t format) const {
  size_t size = 0;
  (void)deepgemm_explain_plan(plan_.get(), format, nullptr, 0, &size);
  std::string text(size, '\0');
  DEEPGEMM_CALL(deepgemm_explain_plan(plan_.get(), format, text.data(), text.size(), &size));
  text.resize(size - 1);
  return text;
}

base::Result<std::string> explain_problem(const NamedProblem& problem,
                                          deepgemm_explain_format_t format) {
  const gemm_intent_t intent = problem.bound_intent();
  const auto& [m, n, k] = std::tie(problem.spec.m, problem.spec.n, problem.spec.k);
  size_t size = 0;
  const deepgemm_status_t status =
      deepgemm_explain_problem(&intent, m, n, k, format, nullptr, 0, &size);
  if (status != DEEPGEMM_ERROR_BUFFER_TOO_SMALL) DEEPGEMM_CALL(status);
  std::string text(size, '\0');
  DEEPGEMM_CALL(deepgemm_explain_problem(&intent, m, n, k, format, text.data(), size, &size));
  text.resize(size - 1);
  return text;
}

Buffer::Buffer(int64_t bytes, int64_t origin) : size_(bytes), origin_(origin) {
  const size_t rounded = (static_cast<size_t>(bytes) / kAlignment + 1) * kAlignment;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  if (memory_ == nullptr) throw std::bad_alloc();
}

base::Result<void> Buffer::place_on(const char* device) {
  DEEPGEMM_TRY_ASSIGN(found, runtime::find_device(device));
  if (found->shares_host_memory() || memory_ == nullptr) return {};
  const auto bytes = static_cast<size_t>(size_);
  DEEPGEMM_TRY_ASSIGN(memory, runtime::allocate(bytes, "operand", device));
  copy_.reset(static_cast<std::byte*>(memory));
  return runtime::copy(copy_.get(), memory_.get(), bytes);
}

base::Result<void> Buffer::fetch() const {
  if (copy_ == nullptr) return {};
  return runtime::copy(memory_.get(), copy_.get(), static_cast<size_t>(size_));
}

base::Result<Buffer> matrix_buffer(const layout::MatrixLayout& layout, gemm_precision_t precision) {
  DEEPGEMM_TRY_ASSIGN(bytes, layout::buffer_bytes(layout, precision));
  DEEPGEMM_TRY_ASSIGN(range, layout::extent(layout));
  return Buffer(bytes, -base::storage_bytes(precision, 1) * std::min<int64_t>(range.first, 0));
}

void PackedWeights::Destroy::operator()(deepgemm_packed_weights_t* packed) const {
  deepgemm_destroy_packed_weights(&packed);
}

base::Result<PackedWeights> PackedWeights::pack(const Plan& plan,
                                                const deepgemm_weight_tensors_t& tensors) {
  PackedWeights result;
  deepgemm_packed_weights_t* packed = nullptr;
  DEEPGEMM_CALL(deepgemm_pack_weights(&packed, plan.get(), &tensors));
  result.packed_.reset(packed);
  DEEPGEMM_CALL(deepgemm_get_packed_info(packed, &result.info_));
  return result;
}

base::Result<std::vector<double>> PackedWeights::values() const {
  std::vector<double> values(static_cast<size_t>(info_.in_features * info_.out_features));
  deepgemm_weight_tensors_t tensors = {};
  tensors.format = WEIGHT_FORMAT_DENSE;
  tensors.precision = PRECISION_FP64;
  tensors.transposed = true;
  tensors.in_features = info_.in_features;
  tensors.out_features = info_.out_features;
  tensors.weight = values.data();
  DEEPGEMM_CALL(deepgemm_unpack_weights(packed_.get(), &tensors));
  return values;
}

gemm_launch_args_t Operands::args() const {
  gemm_launch_args_t args = {};
  args.A = a.address();
  args.B = packed.get() != nullptr ? packed.get() : b.address();
  args.C = c.address();
  args.bias = bias.address();
  args.residual = residual.address();
  return args;
}

base::Result<void> Operands::place_on(const Plan& plan) {
  for (Buffer* buffer : {&a, &b, &c, &bias, &residual}) {
    DEEPGEMM_TRY(buffer->place_on(plan.info().device));
  }
  return {};
}

base::Result<Operands> store_operands(const intent::Problem& problem, const Plan& plan,
                                      std::vector<contract::ReferenceProblem> values,
                                      std::span<const float> importance) {
  Operands operands;
  DEEPGEMM_TRY_ASSIGN(a, matrix_buffer(problem.a.layout, problem.a.precision));
  DEEPGEMM_TRY_ASSIGN(c, matrix_buffer(problem.c.layout, problem.c.precision));
  fill_nan(c);
  if (plan.info().packed_b) {
    DEEPGEMM_TRY_ASSIGN(packed, pack_values(problem, plan, values.front().b, importance));
    operands.packed = std::move(packed);
    DEEPGEMM_TRY_ASSIGN(stored, operands.packed.values());
    values.front().b = std::move(stored);
  } else {
    DEEPGEMM_TRY_ASSIGN(b, matrix_buffer(problem.b.layout, problem.b.precision));
    operands.b = std::move(b);
  }
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    const contract::ReferenceProblem& matrix = values[static_cast<size_t>(batch)];
    store_matrix(problem.a, batch, transposed_a(problem), matrix.a, a);
    if (!plan.info().packed_b) {
      store_matrix(problem.b, batch, transposed_b(problem), matrix.b, operands.b);
    }
    if (problem.beta != 0) store_matrix(problem.c, batch, false, matrix.c0, c);
  }
  operands.a = std::move(a);
  operands.c = std::move(c);
  if (problem.epilogue.bias) {
    DEEPGEMM_TRY_ASSIGN(bias, store_vector(problem.epilogue.bias_precision, values.front().bias));
    operands.bias = std::move(bias);
  }
  if (problem.epilogue.residual) operands.residual = store_residual(problem, values);
  operands.values = std::move(values);
  DEEPGEMM_TRY(operands.place_on(plan));
  return operands;
}

contract::ReferenceProblem blank_values(const intent::Problem& problem) {
  contract::ReferenceProblem values;
  values.m = problem.m;
  values.n = problem.n;
  values.k = problem.k;
  values.alpha = problem.alpha;
  values.beta = problem.beta;
  values.activation = problem.epilogue.activation;
  values.output = problem.c.precision;
  return values;
}

std::vector<contract::ReferenceProblem> generate_values(const intent::Problem& problem,
                                                        bool packed_b, contract::InputSet set,
                                                        uint64_t seed) {
  const gemm_precision_t b_format =
      base::is_int4(problem.b.precision) ? PRECISION_FP16 : problem.b.precision;
  const int64_t outputs = problem.m * problem.output_columns();
  const std::vector<double> bias =
      problem.epilogue.bias ? epilogue_values(problem.n, problem.epilogue.bias_precision, seed + 1)
                            : std::vector<double>();
  std::vector<contract::ReferenceProblem> values(static_cast<size_t>(problem.batch),
                                                 blank_values(problem));
  for (contract::ReferenceProblem& matrix : values) {
    contract::generate_inputs(set, ++seed, problem.a.precision, b_format, matrix);
    if (packed_b) make_finite(matrix.b);
    matrix.bias = bias;
    if (problem.beta != 0) matrix.c0 = epilogue_values(outputs, problem.c.precision, seed + 2);
    if (problem.epilogue.residual) {
      matrix.residual = epilogue_values(outputs, problem.epilogue.residual_precision, seed + 3);
    }
  }
  return values;
}

std::vector<double> load_result(const intent::Problem& problem, const Operands& operands,
                                int64_t batch) {
  std::vector<double> values(static_cast<size_t>(problem.m * problem.output_columns()));
  for_each_element(problem.c.layout, batch, false, [&](int64_t offset, size_t index) {
    values[index] = base::decode(problem.c.precision, operands.c.data(), offset);
  });
  return values;
}

base::Result<Timing> time_launches(const Plan& plan, const TimingLimits& limits,
                                   const std::function<gemm_launch_args_t(int64_t run)>& args) {
  constexpr int64_t kTogether = 20;  // so that the wait for a GPU counts little
  const runtime::PlanData& data = plan.get()->handle->data();
  const int64_t launches = data.device->shares_host_memory() ? 1 : kTogether;
  DEEPGEMM_TRY_ASSIGN(timing, measure(limits, [&](int64_t run) -> base::Result<void> {
                        for (int64_t i = 0; i < launches; ++i) {
                          const gemm_launch_args_t given = args(run * launches + i);
                          DEEPGEMM_CALL(deepgemm_launch_plan_args(plan.get(), &given));
                        }
                        return data.executable->synchronize(plan.get()->stream);
                      }));
  for (double* time : {&timing.median, &timing.p10, &timing.p90}) {
    *time /= static_cast<double>(launches);
  }
  return timing;
}

}  // namespace deepgemm::cli
