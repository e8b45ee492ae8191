#include "runtime/layouts.hpp"

#include <algorithm>

#include "base/formats.hpp"
#include "intent/problem.hpp"
#include "layout/matrix_layout.hpp"
#include "runtime/memory_range.hpp"

namespace deepgemm::runtime {
namespace {

base::Result<layout::MatrixLayout> resolve_alone(const gemm_layout_t& declared, const char* name,
                                                 bool is_output) {
  const int64_t* shape = declared.logical_shape;
  const int64_t batch = shape[0] == 0 ? 1 : shape[0];
  for (int i = 0; i < 3; ++i) {
    if (shape[i] >= 0) continue;
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}.logical_shape[{}]: {} is negative; sizes are 0 or more", name, i,
                            shape[i]);
  }
  return layout::resolve(declared, batch, shape[1], shape[2], name, is_output);
}

base::Result<void> check_precision(gemm_precision_t precision) {
  if (base::find_format(precision) != nullptr) return {};
  return base::make_error(
      DEEPGEMM_ERROR_INVALID_ARGUMENT,
      "precision: {} is not a format of stored elements; give PRECISION_FP64 ... "
      "PRECISION_INT8",
      static_cast<int>(precision));
}

}  // namespace

base::Result<size_t> layout_bytes(const gemm_layout_t& layout, gemm_precision_t precision) {
  DEEPGEMM_TRY(check_precision(precision));
  DEEPGEMM_TRY_ASSIGN(resolved, resolve_alone(layout, "layout", false));
  DEEPGEMM_TRY_ASSIGN(bytes, layout::buffer_bytes(resolved, precision));
  return static_cast<size_t>(bytes);
}

base::Result<void> convert_layout(void* destination, const gemm_layout_t& to, const void* source,
                                  const gemm_layout_t& from, gemm_precision_t precision) {
  DEEPGEMM_TRY(check_precision(precision));
  DEEPGEMM_TRY_ASSIGN(target, resolve_alone(to, "destination_layout", true));
  DEEPGEMM_TRY_ASSIGN(origin, resolve_alone(from, "source_layout", false));
  if (target.rows > 0 && target.cols > 0) {
    const char* missing = destination == nullptr ? "destination" : "source";
    if (destination == nullptr || source == nullptr) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, "{}: is NULL", missing);
    }
    DEEPGEMM_TRY_ASSIGN(written, matrix_range(destination, target, precision));
    DEEPGEMM_TRY_ASSIGN(read, matrix_range(source, origin, precision));
    if (may_overlap(written, read)) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "destination: overlaps source; give it memory of its own");
    }
  }
  return layout::convert(destination, target, source, origin, precision);
}

base::Result<size_t> operand_bytes(const gemm_intent_t& intent, deepgemm_operand_t operand,
                                   int64_t m, int64_t n, int64_t k) {
  DEEPGEMM_TRY_ASSIGN(problem, intent::resolve(intent, m, n, k));
  const intent::Operand* const operands[] = {&problem.a, &problem.b, &problem.c};
  const intent::Operand& chosen = *operands[operand];
  if (base::is_int4(chosen.precision)) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "operand: B is {} weights, which deepgemm_pack_weights stores itself",
                            base::find_format(chosen.precision)->name);
  }
  DEEPGEMM_TRY_ASSIGN(bytes, layout::buffer_bytes(chosen.layout, chosen.precision));
  if (chosen.physical != LAYOUT_ANY) return static_cast<size_t>(bytes);
  // The planner may choose blocked storage, whose edge tiles are full.
  gemm_layout_t blocked = {};
  blocked.physical_layout = LAYOUT_BLOCKED_16x16;
  const layout::MatrixLayout& plain = chosen.layout;
  DEEPGEMM_TRY_ASSIGN(
      tiles, layout::resolve(blocked, plain.batch, plain.rows, plain.cols, "operand", false));
  DEEPGEMM_TRY_ASSIGN(padded, layout::buffer_bytes(tiles, chosen.precision));
  return static_cast<size_t>(std::max(bytes, padded));
}

}  // namespace deepgemm::runtime
