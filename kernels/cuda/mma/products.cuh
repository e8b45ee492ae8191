// Products of the fragments that a warp holds, in every way that FP32 operands can be multiplied.
#pragma once

#include "families/config.cuh"
#include "mma/fragments.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

// One step of k, 32 bytes of a row: kTilesM x 16 rows of A, kTilesN x 8 rows of B, two to a
// fragment.
template <i32 kTilesM, i32 kTilesN>
struct Fragments {
  u32 a[kTilesM][4];
  u32 b[kTilesN / 2][4];
};

// Sums are tiles of 16x8, row by row. In all functions the two columns of a fragment of B take
// turns, so that products of one sum are far enough apart, and small parts come before large ones.
template <Config C, class Sum, i32 kTilesM, i32 kTilesN>
struct Products {
  using Step = Fragments<kTilesM, kTilesN>;
  using Sums = Sum[kTilesM * kTilesN][4];
  static constexpr ptx::Multiplicand kA = multiplicand(C.math, C.a.format);
  static constexpr ptx::Multiplicand kB = multiplicand(C.math, C.b.format);

  PTX_FN static void add_step(Step& from, Sums& sums) {
    if constexpr (C.math == Math::kTf32x3) {
      add_tf32x3(from, sums);
    } else {
      if constexpr (C.math == Math::kTf32) {
        PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) round_tf32(from.a[i]);
        PTX_UNROLL for (i32 j = 0; j < kTilesN / 2; ++j) round_tf32(from.b[j]);
      }
      PTX_UNROLL for (i32 j = 0; j < kTilesN / 2; ++j) add_pair<kA, kB>(from.a, from.b[j], j, sums);
    }
  }

  // FP32 operands of two steps: cut to TF32, and the products of what that loses with the other
  // operand in BF16, which takes both steps at once.
  PTX_FN static void add_tf32_bf16(Step (&from)[2], Sums& sums) {
    u32 whole_a[kTilesM][4], lost_a[kTilesM][4];
    PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
      PTX_UNROLL for (i32 e = 0; e < 4; ++e) {
        cut_tf32<2>(from[e / 2].a[i], e % 2, whole_a[i][e], lost_a[i][e]);
      }
    }
    PTX_UNROLL for (i32 j = 0; j < kTilesN / 2; ++j) {
      u32 whole_b[4], lost_b[4];
      PTX_UNROLL for (i32 e = 0; e < 4; ++e) {
        cut_tf32<1>(from[e % 2].b[j], e / 2 * 2, whole_b[e], lost_b[e]);
      }
      constexpr auto kBf16 = ptx::Multiplicand::kBf16;
      add_pair<kBf16, kBf16>(lost_a, whole_b, j, sums);
      add_pair<kBf16, kBf16>(whole_a, lost_b, j, sums);
      add_pair<kA, kB>(from[0].a, from[0].b[j], j, sums);
      add_pair<kA, kB>(from[1].a, from[1].b[j], j, sums);
    }
  }

 private:
  template <ptx::Multiplicand kLeft, ptx::Multiplicand kRight>
  PTX_FN static void add_pair(const u32 (&a)[kTilesM][4], const u32 (&b)[4], i32 pair, Sums& sums) {
    PTX_UNROLL for (i32 side = 0; side < 2; ++side) {
      add_side<kLeft, kRight>(a, b, pair, side, sums);
    }
  }
  template <ptx::Multiplicand kLeft, ptx::Multiplicand kRight>
  PTX_FN static void add_side(const u32 (&a)[kTilesM][4], const u32 (&b)[4], i32 pair, i32 side,
                              Sums& sums) {
    PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) {
      ptx::multiply<kLeft, kRight>(sums[i * kTilesN + pair * 2 + side], a[i], b[side * 2],
                                   b[side * 2 + 1]);
    }
  }

  PTX_FN static void add_tf32x3(Step& from, Sums& sums) {
    u32 small_a[kTilesM][4];
    PTX_UNROLL for (i32 i = 0; i < kTilesM; ++i) split_tf32(from.a[i], small_a[i]);
    PTX_UNROLL for (i32 j = 0; j < kTilesN / 2; ++j) {
      u32 small_b[4];
      split_tf32(from.b[j], small_b);
      if constexpr (ptx::kArch >= 90) {
        add_pair<kA, kB>(small_a, from.b[j], j, sums);
        add_pair<kA, kB>(from.a, small_b, j, sums);
        add_pair<kA, kB>(from.a, from.b[j], j, sums);
      } else {  // rounding takes more registers there
        PTX_UNROLL for (i32 side = 0; side < 2; ++side) {
          add_side<kA, kB>(small_a, from.b[j], j, side, sums);
          add_side<kA, kB>(from.a, small_b, j, side, sums);
          add_side<kA, kB>(from.a, from.b[j], j, side, sums);
        }
      }
    }
  }
};

}  // namespace deepgemm::kernel
