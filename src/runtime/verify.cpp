#include "runtime/verify.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/formats.hpp"
#include "contract/verify.hpp"
#include "layout/matrix_layout.hpp"
#include "layout/quantized_weights.hpp"
#include "runtime/host_operands.hpp"
#include "runtime/launch.hpp"
#include "runtime/packed_weights.hpp"

namespace deepgemm::runtime {
namespace {

// One matrix of a batch, read as rows x cols of op(X) in row-major order.
struct StoredMatrix {
  const void* data;
  gemm_precision_t precision;
  const layout::MatrixLayout& layout;
  int64_t batch;
  bool transposed;  // stored so
};

std::vector<double> decode(const StoredMatrix& stored, int64_t rows, int64_t cols) {
  std::vector<double> values(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t offset = stored.transposed
                                 ? layout::element_offset(stored.layout, stored.batch, j, i)
                                 : layout::element_offset(stored.layout, stored.batch, i, j);
      values[static_cast<size_t>(i * cols + j)] =
          base::decode(stored.precision, stored.data, offset);
    }
  }
  return values;
}

std::vector<double> decode_a(const intent::Problem& problem, const Operands& operands,
                             int64_t batch) {
  const layout::MatrixLayout layout = a_layout(problem, operands.m);
  const bool transposed = problem.operation == GEMM_OP_TN || problem.operation == GEMM_OP_TT;
  auto values =
      decode({operands.a, problem.a.precision, layout, batch, transposed}, operands.m, problem.k);
  if (operands.scale_a == nullptr) return values;
  const ScaleGrid grid = scale_grid_a(problem, operands.m);
  for (int64_t i = 0; i < operands.m; ++i) {
    for (int64_t j = 0; j < problem.k; ++j) {
      values[static_cast<size_t>(i * problem.k + j)] *=
          static_cast<double>(operands.scale_a[grid.index(i, j)]);
    }
  }
  return values;
}

std::vector<double> decode_dense_b(const intent::Problem& problem, const Operands& operands,
                                   int64_t batch) {
  const bool transposed = problem.operation == GEMM_OP_NT || problem.operation == GEMM_OP_TT;
  auto values = decode({operands.b, problem.b.precision, problem.b.layout, batch, transposed},
                       problem.k, problem.n);
  if (operands.scale_b == nullptr) return values;
  const ScaleGrid grid = scale_grid_b(problem);
  for (int64_t i = 0; i < problem.k; ++i) {
    for (int64_t j = 0; j < problem.n; ++j) {
      values[static_cast<size_t>(i * problem.n + j)] *=
          static_cast<double>(operands.scale_b[grid.index(j, i)]);
    }
  }
  return values;
}

std::vector<double> decode_packed_b(const cpu::PackedPanels& panels) {
  const layout::QuantizedWeights weights = cpu::unpack(panels);
  std::vector<double> values(static_cast<size_t>(weights.k * weights.n));
  for (int64_t i = 0; i < weights.k; ++i) {
    for (int64_t j = 0; j < weights.n; ++j) {
      values[static_cast<size_t>(i * weights.n + j)] = layout::weight_value(weights, i, j);
    }
  }
  return values;
}

std::vector<double> decode_c(const intent::Problem& problem, const Operands& operands,
                             int64_t batch) {
  const layout::MatrixLayout layout = c_layout(problem, operands.m);
  return decode({operands.c, problem.c.precision, layout, batch, false}, operands.m,
                problem.output_columns());
}

contract::ReferenceProblem reference_problem(const intent::Problem& problem,
                                             const Operands& operands, int64_t batch,
                                             std::vector<double> c0) {
  contract::ReferenceProblem reference;
  reference.m = operands.m;
  reference.n = problem.n;
  reference.k = problem.k;
  reference.alpha = operands.alpha;
  reference.beta = operands.beta;
  reference.activation = problem.epilogue.activation;
  reference.output = problem.c.precision;
  if (operands.alpha != 0) {  // else they are not read, and may be null
    reference.a = decode_a(problem, operands, batch);
    reference.b = operands.packed_b != nullptr ? decode_packed_b(*operands.packed_b)
                                               : decode_dense_b(problem, operands, batch);
  }
  reference.c0 = std::move(c0);
  if (problem.epilogue.bias) {
    for (int64_t j = 0; j < problem.n; ++j) {
      reference.bias.push_back(base::decode(problem.epilogue.bias_precision, operands.bias, j));
    }
  }
  if (problem.epilogue.residual) {
    const layout::MatrixLayout layout = residual_layout(problem, operands.m);
    reference.residual =
        decode({operands.residual, problem.epilogue.residual_precision, layout, batch, false},
               operands.m, problem.output_columns());
  }
  return reference;
}

// What the contract allows for each element; the certificate's bound where it states no limit. The
// floor of underflow comes on top of a relative limit, as in admission.
std::vector<double> allowed_errors(const contract::Certificate& certificate,
                                   const std::vector<double>& magnitudes) {
  const contract::ErrorBound& bound = certificate.bound;
  const bool limited = certificate.relative_limit > 0 || certificate.absolute_limit > 0;
  std::vector<double> allowed;
  allowed.reserve(magnitudes.size());
  for (const double magnitude : magnitudes) {
    double error = std::numeric_limits<double>::infinity();
    if (!limited) error = bound.relative * magnitude + bound.absolute;
    if (certificate.relative_limit > 0) {
      error = certificate.relative_limit * magnitude + bound.absolute;
    }
    if (certificate.absolute_limit > 0) error = std::min(error, certificate.absolute_limit);
    allowed.push_back(error);
  }
  return allowed;
}

// Adds the comparison of one matrix of the batch to the result.
void compare_matrix(const contract::Certificate& certificate, const std::vector<double>& result,
                    const contract::Reference& reference, int64_t rows, int64_t columns,
                    int64_t first_row, deepgemm_verification_t& total) {
  const contract::ErrorBound& bound = certificate.bound;
  const contract::Comparison measured =
      contract::compare(result, reference, rows, columns, bound.relative, bound.absolute);
  // Against the contract: relative 1 to a magnitude that is the allowed error itself.
  const contract::Reference allowed = {
      reference.value, allowed_errors(certificate, reference.magnitude), reference.output};
  const contract::Comparison judged = contract::compare(result, allowed, rows, columns, 1, 0);
  if (total.elements == 0 || measured.max_relative > total.max_relative_error) {
    total.worst_row = first_row + measured.worst_row;
    total.worst_column = measured.worst_column;
  }
  total.elements += judged.elements;
  total.nonfinite += judged.nonfinite;
  total.outside += judged.outside;
  total.damaged_rows += judged.damaged_rows;
  total.max_relative_error = std::max(total.max_relative_error, measured.max_relative);
  total.max_absolute_error = std::max(total.max_absolute_error, measured.max_absolute);
  total.contract_kept = total.contract_kept && judged.passed();
  total.bound_kept = total.bound_kept && measured.passed();
}

}  // namespace

base::Result<deepgemm_verification_t> verify_plan(deepgemm_plan& plan,
                                                  const gemm_launch_args_t& args,
                                                  deepgemm_stream_t stream) {
  const PlanData& data = plan.data();
  const intent::Problem& problem = data.problem();
  DEEPGEMM_TRY(require_launchable(data));
  DEEPGEMM_TRY_ASSIGN(given, check_operands(data, args));
  const bool empty = given.m == 0 || problem.output_columns() == 0;
  const int64_t batches = empty ? 0 : problem.batch;
  if (args.stream != nullptr) stream = args.stream;
  DEEPGEMM_TRY(data.executable->synchronize(stream));  // earlier work may write the operands
  DEEPGEMM_TRY_ASSIGN(host, HostOperands::of(data, given));
  const Operands& operands = host.operands();
  std::vector<std::vector<double>> c0(static_cast<size_t>(batches));
  if (operands.beta != 0) {
    for (int64_t i = 0; i < batches; ++i) {
      c0[static_cast<size_t>(i)] = decode_c(problem, operands, i);
    }
  }
  DEEPGEMM_TRY(launch(data, args, stream));
  DEEPGEMM_TRY(data.executable->synchronize(stream));
  DEEPGEMM_TRY(host.refresh_c());

  const contract::Certificate& certificate = data.choice().certificate;
  deepgemm_verification_t total = {};
  total.bound_relative = certificate.bound.relative;
  total.worst_row = -1;
  total.worst_column = -1;
  total.contract_kept = true;
  total.bound_kept = true;
  for (int64_t i = 0; i < batches; ++i) {
    const contract::Reference reference = contract::compute_reference(
        reference_problem(problem, operands, i, std::move(c0[static_cast<size_t>(i)])));
    compare_matrix(certificate, decode_c(problem, operands, i), reference, operands.m,
                   problem.output_columns(), i * operands.m, total);
  }
  const std::lock_guard lock(plan.mutex);
  plan.measured = Measured{total.max_relative_error, total.max_absolute_error};
  return total;
}

}  // namespace deepgemm::runtime
