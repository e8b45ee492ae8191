// The register-blocked product of a few rows of A and two vectors of columns.
#pragma once

#include "kernels/cpu/operands.hpp"
#include "kernels/cpu/vector.hpp"

namespace deepgemm::cpu {
namespace {

// kRows rows and two vectors of columns: sum[i][j] = a[i][0]*b[0][j] + ... + a[i][k-1]*b[k-1][j] in
// T, in ascending order with one chain an element, then acc[i*acc_stride + j] += sum[i][j]. The
// bits of an element are the same for every number of rows. a: element (i, p) at (p / kStripe) *
// a_step + i * kStripeStride + p % kStripe. b: element (p, j) at p * kPanel + j, aligned to 64
// bytes.
template <class T, int kRows>
void multiply(int64_t k, const T* a, int64_t a_step, const T* b, double* acc, int64_t acc_stride) {
  using Vector = typename VectorOf<T>::Type;
  constexpr int64_t kAhead = 12 * kPanel;
  Vector sum[kRows][2] = {};
  for (; k > 0; k -= kStripe, a += a_step) {
    const int64_t count = k < kStripe ? k : kStripe;
    for (int64_t p = 0; p < count; ++p, b += kPanel) {
      // B passes through the L1 cache, in which the rows of A stay.
      __builtin_prefetch(b + kAhead);
      __builtin_prefetch(b + kAhead + kLanes<T>);
      const Vector b0 = *reinterpret_cast<const Vector*>(b);
      const Vector b1 = *reinterpret_cast<const Vector*>(b + kLanes<T>);
      unrolled<kRows>([&](auto i) {
        const T value = a[i.kValue * kStripeStride + p];
        sum[i.kValue][0] += value * b0;
        sum[i.kValue][1] += value * b1;
      });
    }
  }
  unrolled<kRows>([&](auto i) {
    double* to = acc + i.kValue * acc_stride;
    add_to(to, sum[i.kValue][0]);
    add_to(to + kLanes<T>, sum[i.kValue][1]);
  });
}

}  // namespace
}  // namespace deepgemm::cpu
