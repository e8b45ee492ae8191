// The tile instructions, one thin function each. Tiles are numbered 0 ... 7 and have rows of 64
// bytes: 16 rows in those of B, in others as many as configure_tiles() was given. Nothing else of
// the project contains assembly for CPUs.
//
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: TDPBF16PS treats
// subnormal operands, products and sums as zero, rounds to nearest, and adds even and odd channels
// of a row in two chains of 16; TDPBSSD is exact modulo 2^32.
#pragma once

#include <stdint.h>

#include "kernels/cpu/operands.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int kFirstTileOfB = 6;

// rows: 1 ... 16 of A and of sums.
inline void configure_tiles(int64_t rows) {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = static_cast<uint8_t>(tile < kFirstTileOfB ? rows : kTileRows);
  }
  asm volatile("ldtilecfg %0" ::"m"(config));
}

inline void release_tiles() { asm volatile("tilerelease"); }

template <int kTile>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

// Rows of 64 bytes, `stride` bytes apart.
template <int kTile>
inline void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
inline void store_tile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}

// sum[i][j] += a[i][2p] * b[p][j].low + a[i][2p+1] * b[p][j].high, in FP32.
template <int kSum, int kA, int kB>
inline void multiply_tiles_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

// The same with four signed bytes, in INT32.
template <int kSum, int kA, int kB>
inline void multiply_tiles_int8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace deepgemm::cpu
