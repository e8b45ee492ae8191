// Stochastic rounding: the numbers and the rule of src/contract/stochastic.hpp.
#pragma once

#include "families/config.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

// Philox4x32-10 (Salmon, Moraes, Dror & Shaw, SC 2011).
PTX_FN void philox(u32 (&counter)[4], u64 seed) {
  constexpr u32 kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr u32 kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  u32 key0 = static_cast<u32>(seed), key1 = static_cast<u32>(seed >> 32);
  PTX_UNROLL for (i32 round = 0; round < 10; ++round) {
    const u64 product0 = static_cast<u64>(kMultiplier0) * counter[0];
    const u64 product1 = static_cast<u64>(kMultiplier1) * counter[2];
    counter[0] = static_cast<u32>(product1 >> 32) ^ counter[1] ^ key0;
    counter[1] = static_cast<u32>(product1);
    counter[2] = static_cast<u32>(product0 >> 32) ^ counter[3] ^ key1;
    counter[3] = static_cast<u32>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

// Which element is rounded.
struct Place {
  u64 seed;
  i32 batch, row;
};

// 64 bits for each of the columns 2 * pair and 2 * pair + 1. Batch, row and pair have 32 bits at
// most, so that the upper halves of the counter's indices are zero.
PTX_FN void random_pair(const Place& place, i32 pair, u64 (&to)[2]) {
  u32 counter[4] = {static_cast<u32>(pair), static_cast<u32>(place.row),
                    static_cast<u32>(place.batch), 0};
  philox(counter, place.seed);
  to[0] = static_cast<u64>(counter[1]) << 32 | counter[0];
  to[1] = static_cast<u64>(counter[3]) << 32 | counter[2];
}

struct RoundingTarget {
  i32 dropped;            // bits of a double's significand that a normal value of the format lacks
  i32 smallest_exponent;  // of the smallest normal value
  double smallest;        // positive value
  double largest;
};

constexpr RoundingTarget rounding_target(Format format) {
  switch (format) {
    case Format::kFp16:
      return {42, -14, 0x1p-24, 65504};
    case Format::kBf16:
      return {45, -126, 0x1p-133, 0x1.FEp127};
    case Format::kE4m3:
      return {49, -6, 0x1p-9, 448};
    default:
      return {50, -14, 0x1p-16, 57344};
  }
}

// The value of the format that `value` becomes; outside its range, `value` as it is.
template <Format kFormat>
PTX_FN double round_stochastically(double value, u64 random) {
  constexpr RoundingTarget kTarget = rounding_target(kFormat);
  const u64 bits = ptx::bits_of(value);
  const u64 sign = bits & (u64{1} << 63);
  const double magnitude = ptx::double_of(bits ^ sign);
  if (!(magnitude < kTarget.largest)) return value;
  if (magnitude < kTarget.smallest) {  // the neighbours are zero and the smallest value
    const double draw = static_cast<double>(random >> 11) * 0x1p-53;
    const double rounded = draw * kTarget.smallest < magnitude ? kTarget.smallest : 0.0;
    return ptx::double_of(ptx::bits_of(rounded) | sign);
  }
  constexpr i32 kBias = 1023;
  const i32 exponent = static_cast<i32>(bits >> 52 & 0x7FF) - kBias;
  const i32 below = kTarget.smallest_exponent - exponent;
  const i32 dropped = kTarget.dropped + (below > 0 ? below : 0);
  const u64 mask = (u64{1} << dropped) - 1;
  return ptx::double_of((bits + (random & mask)) & ~mask);
}

// Columns first_column ... of a row; first_column is even.
template <Format kFormat, i32 kCount, class Value>
PTX_FN void round_row(const Place& place, i32 first_column, Value (&values)[kCount]) {
  static_assert(kCount % 2 == 0);
  PTX_UNROLL for (i32 i = 0; i < kCount; i += 2) {
    u64 random[2];
    random_pair(place, (first_column + i) / 2, random);
    PTX_UNROLL for (i32 j = 0; j < 2; ++j) {
      values[i + j] = static_cast<Value>(
          round_stochastically<kFormat>(static_cast<double>(values[i + j]), random[j]));
    }
  }
}

}  // namespace deepgemm::kernel
