#include "backend/cpu/plain_epilogue.hpp"

#include <type_traits>

#include "base/formats.hpp"

namespace deepgemm::cpu {
namespace {

std::optional<Target> target_of(gemm_precision_t precision) {
  switch (precision) {
    case PRECISION_FP32:
    case PRECISION_TF32:
      return Target::kFp32;
    case PRECISION_FP16:
      return Target::kFp16;
    case PRECISION_BF16:
      return Target::kBf16;
    default:
      return std::nullopt;
  }
}

bool is_plain(const ProductInput& input) {
  const intent::Problem& problem = input.executable.problem;
  const Operands& operands = input.operands;
  const layout::MatrixLayout& c = problem.c.layout;
  if (problem.epilogue.activation != GEMM_ACTIVATION_NONE || operands.bias != nullptr ||
      operands.residual != nullptr || operands.alpha == 0 || operands.beta != 0 || c.blocked ||
      c.col_stride != 1 || input.executable.stochastic_output) {
    return false;
  }
  // Sums that are exact beyond FP32 are rounded once, from FP64.
  const bool doubles = input.executable.multiplicand == Multiplicand::kDouble;
  return !doubles || (operands.alpha == 1 && problem.c.precision == PRECISION_FP32);
}

}  // namespace

PlainEpilogue::PlainEpilogue(const ProductInput& input) : in_(input) {
  if (is_plain(input)) target_ = target_of(input.executable.problem.c.precision);
}

const float* PlainEpilogue::column_factors(const Tile& tile, float* to) const {
  const PackedPanels* packed = in_.operands.packed_b;
  if (!in_.integers || (packed == nullptr && in_.scale_b.base == nullptr)) return nullptr;
  for (int64_t j = 0; j < tile.columns.columns; ++j) {
    const int64_t column = tile.columns.column + j;
    to[j] = packed != nullptr ? column_scale(*packed, column) : in_.scale_b.at(column, 0);
  }
  const int64_t whole = ceil_div(tile.columns.columns, kPanel) * kPanel;
  std::fill(to + tile.columns.columns, to + whole, 0.0F);
  return to;
}

template <class Sum>
void PlainEpilogue::finish_row(const Tile& tile, int64_t row, const Sum* sums,
                               const float* factors) const {
  const intent::Problem& problem = in_.executable.problem;
  const IsaKernels& kernels = *in_.executable.kernels;
  const int64_t place = layout::element_offset(problem.c.layout, tile.rows.batch,
                                               tile.rows.row + row, tile.columns.column);
  void* to =
      static_cast<uint8_t*>(in_.operands.c) + place * base::storage_bytes(problem.c.precision, 1);
  auto factor = static_cast<float>(in_.operands.alpha);
  if (in_.integers && in_.scale_a.base != nullptr) factor *= in_.scale_a.at(tile.rows.row + row, 0);
  if constexpr (std::is_same_v<Sum, float>) {
    kernels.finish_floats(sums, factors, factor, *target_, to, tile.columns.columns);
  } else if constexpr (std::is_same_v<Sum, double>) {
    kernels.finish_doubles(sums, factors, factor, *target_, to, tile.columns.columns);
  } else {
    kernels.finish_integers(sums, factors, factor, *target_, to, tile.columns.columns);
  }
}

template void PlainEpilogue::finish_row(const Tile&, int64_t, const float*, const float*) const;
template void PlainEpilogue::finish_row(const Tile&, int64_t, const double*, const float*) const;
template void PlainEpilogue::finish_row(const Tile&, int64_t, const int32_t*, const float*) const;

}  // namespace deepgemm::cpu
