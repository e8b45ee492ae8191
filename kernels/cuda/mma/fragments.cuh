// Fragments of A and B from tiles in shared memory, for one step of k (32 bytes of a row of
// either). ptx/mma.cuh describes the fragments.
#pragma once

#include "families/config.cuh"
#include "memory/tile.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

constexpr ptx::Multiplicand multiplicand(Math math, Format format) {
  switch (math) {
    case Math::kFp64:
      return ptx::Multiplicand::kFp64;
    case Math::kFp32Acc64:
      return ptx::Multiplicand::kFp32;
    case Math::kFp16:
      return ptx::Multiplicand::kFp16;
    case Math::kBf16:
      return ptx::Multiplicand::kBf16;
    case Math::kTf32:
    case Math::kTf32x3:
    case Math::kTf32Bf16:
      return ptx::Multiplicand::kTf32;
    case Math::kFp8:
      return format == Format::kE5m2 ? ptx::Multiplicand::kE5m2 : ptx::Multiplicand::kE4m3;
    default:
      return ptx::Multiplicand::kInt8;
  }
}

// A value in the format of the multiplier, rounded where it has more bits.
template <Math kMath>
PTX_FN u32 multiplicand_of(float value) {
  if constexpr (kMath == Math::kFp16)
    return ptx::float_to_fp16(value);
  else if constexpr (kMath == Math::kBf16)
    return ptx::float_to_bf16(value);
  else
    return ptx::bits_of(value);
}

// FP64: of rows lane / 4 and 8 more, the value lane % 4 of the step.
template <class Tile>
PTX_FN void load_doubles(u32 base, i32 row, i32 after, i32 step, u32 (&to)[4]) {
  const i32 lane = static_cast<i32>(ptx::lane());
  const i32 down = lane >> 2, along = lane & 3;
  PTX_UNROLL for (i32 part = 0; part < 2; ++part) {
    const u32 chunk =
        Tile::kAcross
            ? Tile::address(base, along, step * 4, row / 2 + (down >> 1), part * 4 + after / 2)
            : Tile::address(base, row + down, after + part * 8, along >> 1, step * 2);
    const i32 inside = (Tile::kAcross ? down & 1 : along & 1) * 8;
    const ptx::Words<8> value = ptx::load_shared<8>(chunk + static_cast<u32>(inside));
    to[2 * part] = value.word[0];
    to[2 * part + 1] = value.word[1];
  }
}

// 16 rows from `row` + `after` on, step `step` of the stage. `row` is a multiple of a power of two
// above `after`. kRowsOuter: the order of the four 8x8 parts that A wants (rows, then k); otherwise
// that of two neighbouring fragments of B (k, then rows).
template <class Tile, i32 kBytes, bool kRowsOuter>
PTX_FN void load_fragment(u32 base, i32 row, i32 after, i32 step, u32 (&to)[4]) {
  const i32 lane = static_cast<i32>(ptx::lane());
  const i32 part_row = kRowsOuter ? lane >> 3 & 1 : lane >> 4;
  const i32 part_k = kRowsOuter ? lane >> 4 : lane >> 3 & 1;
  if constexpr (kBytes == 8) {
    load_doubles<Tile>(base, row, after, step, to);
  } else if constexpr (!Tile::kAcross) {
    const i32 line = row + part_row * 8 + (lane & 7);
    ptx::load_matrices(to, Tile::address(base, line, after, part_k, step * 2));
  } else if constexpr (kBytes == 2) {
    const i32 line = part_k * 8 + (lane & 7);
    ptx::load_matrices_transposed(
        to, Tile::address(base, line, step * 16, row / 8 + part_row, after / 8));
  } else {
    static_assert(kBytes == 4);
    const u32 inside = static_cast<u32>((lane >> 2) % 4 * 4);
    PTX_UNROLL for (i32 part = 0; part < 4; ++part) {
      const i32 down = kRowsOuter ? part & 1 : part >> 1;
      const i32 along = kRowsOuter ? part >> 1 : part & 1;
      const u32 chunk = Tile::address(base, lane & 3, step * 8 + along * 4, row / 4 + (lane >> 4),
                                      down * 2 + after / 4);
      to[part] = ptx::load_shared<4>(chunk + inside).word[0];
    }
  }
}

inline constexpr u32 kTf32Bits = 0xFFFFE000;  // of FP32 those that TF32 has

PTX_FN void round_tf32(u32 (&values)[4]) {
  PTX_UNROLL for (i32 e = 0; e < 4; ++e) values[e] = ptx::float_to_tf32(ptx::float_of(values[e]));
}

// FP32 values on TF32 units: the rounded values in their place, and what they lack, rounded too.
PTX_FN void split_tf32(u32 (&values)[4], u32 (&small)[4]) {
  PTX_UNROLL for (i32 e = 0; e < 4; ++e) {
    const float value = ptx::float_of(values[e]);
    values[e] = ptx::float_to_tf32(value) & kTf32Bits;
    small[e] = ptx::float_to_tf32(value - ptx::float_of(values[e]));
  }
}

// FP32 values `at` and `at` + kApart of a fragment: cut to TF32 in their place; whole, and what the
// cut loses, as BF16 side by side. A product of BF16 may take its values of k in any order that
// both operands share.
template <i32 kApart>
PTX_FN void cut_tf32(u32 (&values)[4], i32 at, u32& whole, u32& lost) {
  const float first = ptx::float_of(values[at]), second = ptx::float_of(values[at + kApart]);
  whole = ptx::floats_to_bf16(first, second);
  values[at] &= kTf32Bits;
  values[at + kApart] &= kTf32Bits;
  lost = ptx::floats_to_bf16(first - ptx::float_of(values[at]),
                             second - ptx::float_of(values[at + kApart]));
}

}  // namespace deepgemm::kernel
