// What follows the sums of a tile: scales, alpha, C0, bias, activation, residual, one rounding.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels.hpp"
#include "backend/cpu/launch.hpp"
#include "backend/cpu/operand_view.hpp"
#include "intent/problem.hpp"

namespace deepgemm::cpu {

// Columns of C that a tile covers and where their sums are. With SWIGLU sums of the gate start at 0
// and those of the up half at `up`.
struct TileColumns {
  int64_t column = 0, columns = 0;  // of C
  int64_t up = 0;
};

// Epilogue of one launch, in FP64: a value is rounded once, to the output format, to nearest unless
// round_stochastically() was called.
class Epilogue {
 public:
  Epilogue(const intent::Problem& problem, const Operands& operands,
           const Kernels<double>& kernels);

  // Factors that integer sums still lack: FP32 scales of rows and columns of the product. A view
  // without base, and no packed weights, mean 1.
  void set_integer_scales(const ScaleView& rows, const ScaleView& columns,
                          const PackedPanels* packed);

  // The plan rounds its output so (contract::ErrorBound::stochastic_output), by the contract's
  // seed.
  void round_stochastically() { stochastic_ = true; }

  // Turns the sums of one row into values of C and stores them. `sums` is overwritten; `scratch`
  // has room for tile.columns values.
  void finish_row(int64_t batch, int64_t row, const TileColumns& tile, double* sums,
                  double* scratch) const;

 private:
  void apply_integer_scales(int64_t row, int64_t column, int64_t columns, double* sums) const;
  void scale_sums(int64_t row, const TileColumns& tile, double* sums) const;
  void add_bias(int64_t column, int64_t columns, double* values, double* scratch) const;
  void add_residual(int64_t batch, int64_t row, const TileColumns& tile, double* values,
                    double* scratch) const;
  void add_old_content(int64_t batch, int64_t row, const TileColumns& tile, double* values,
                       double* scratch) const;
  void store(int64_t batch, int64_t row, const TileColumns& tile, const double* values) const;

  const intent::Problem& problem_;
  const Operands& operands_;
  const Kernels<double>& kernels_;
  bool integer_scales_ = false;
  bool stochastic_ = false;
  ScaleView row_scales_, column_scales_;
  const PackedPanels* packed_ = nullptr;
};

}  // namespace deepgemm::cpu
