// The part of the backend that is compiled once per instruction set: a table of plain functions.
//
// This header is included by files compiled for newer instruction sets than the rest of the
// program, so it declares data and function types only and includes no library header with inline
// functions.
#pragma once

#include <stdint.h>

namespace deepgemm::cpu {

// Formats that a widening loop exists for.
enum class Source : uint8_t { kFp64, kFp32, kFp16, kBf16, kE4m3, kE5m2, kInt8 };

// Packed A holds kStripe values of k for each row, rows kStripeStride apart: a constant, so that
// the micro-kernel addresses all rows from one register; not a power of two, so that the rows do
// not compete for one set of the L1 cache.
constexpr int64_t kStripe = 256;
constexpr int64_t kStripeStride = kStripe + 16;
constexpr int kMaxRows = 12;  // of a micro-kernel, over all instruction sets

// Functions for multiplicands of type T (float or double).
template <class T>
struct Kernels {
  int rows = 0;     // largest number of rows of `multiply`
  int columns = 0;  // columns of a panel of packed B: two vectors

  // multiply[r](k, a, a_step, b, acc, acc_stride), 1 <= r <= rows: for r rows and `columns` columns
  //   sum[i][j] = a[i][0]*b[0][j] + ... + a[i][k-1]*b[k-1][j]
  // in T, in ascending order with one chain per element (fused where the instruction set can), then
  //   acc[i*acc_stride + j] += sum[i][j]. The bits of an element are the same for every r.
  // a: element (i, p) at (p / kStripe) * a_step + i * kStripeStride + p % kStripe.
  // b: element (p, j) at p * columns + j, aligned to 64 bytes.
  using Multiply = void (*)(int64_t k, const T* a, int64_t a_step, const T* b, double* acc,
                            int64_t acc_stride);
  Multiply multiply[kMaxRows + 1] = {};

  // Rows of contiguous values to T; exact, but FP64 to float, which rounds to nearest. from_stride
  // counts bytes, to_stride elements; `from` may have any alignment.
  void (*widen)(Source source, const void* from, int64_t from_stride, T* to, int64_t to_stride,
                int64_t rows, int64_t columns) = nullptr;
  // to[i * to_stride + j] = from[j * from_stride + i] for i < rows, j < columns.
  void (*transpose)(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
                    int64_t columns) = nullptr;
  // values[i * stride + j] *= scales[j], rounded to T.
  void (*scale)(T* values, int64_t stride, const float* scales, int64_t rows,
                int64_t columns) = nullptr;
  // values[j] *= factor, rounded to T.
  void (*scale_all)(T* values, float factor, int64_t count) = nullptr;
  // Rows of a weight panel: to[i * to_stride + j] = (code - zeros[j]) * scales[j] for its 32
  // columns, rounded to T. Bytes a row: 32, or with 4-bit codes 16, of which byte j holds column j
  // in its low half and column j + 16 in its high half.
  using Dequantize = void (*)(const uint8_t* codes, const uint8_t* zeros, const float* scales,
                              T* to, int64_t to_stride, int64_t rows);
  Dequantize dequantize8 = nullptr;
  Dequantize dequantize4 = nullptr;
};

struct IsaKernels {
  Kernels<float> f32;
  Kernels<double> f64;
};

// Tables of the compiled instruction sets; avx2 and avx512 exist on x86-64 only.
extern const IsaKernels kGenericKernels;
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;

}  // namespace deepgemm::cpu
