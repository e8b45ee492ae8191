// What a launch passes to a kernel, by value. Plain types only: the host fills it in.
#pragma once

namespace deepgemm::kernel {

// Element (row, k) of A or (row, k) of B, where a row of B is a column of op(B), is `row * row_step
// + k * k_step` elements after the base of its batch. Blocked 16x16: `row_step` is the number of
// elements in a row of tiles and `k_step` is unused.
struct OperandArgument {
  const void* base;
  long long row_step;
  long long k_step;
  long long batch_step;
};

// FP32 factors: element [row / rows_each][group of k] at `base + index * row_step + group`. A
// row_step of 0 makes it one factor for all rows. A null base means 1.
struct ScaleArgument {
  const float* base;
  long long row_step;
  int rows_each;  // at least 1; 128 for the B side of 128x128 blocks
};

struct GemmArguments {
  OperandArgument a, b;
  ScaleArgument scale_a, scale_b;
  void* c;
  long long c_row_step, c_column_step, c_batch_step;
  const void* bias;      // one per column of op(B)
  const void* residual;  // row-major
  long long residual_row_step, residual_batch_step;
  double alpha, beta;
  unsigned long long seed;  // of stochastic rounding
  int m, n, k;
  int batch;
  int splits;  // parts of K, at least 1
  int raster;  // rows of tiles that are walked through together, at least 1
  // With splits > 1: room for the sums of all parts of all tiles, and one counter a tile, which is
  // zero before the first launch and again after each.
  void* partials;
  unsigned int* counters;
};

}  // namespace deepgemm::kernel
