// Kernels for x86-64 CPUs with tile units for BF16 and INT8, beside AVX-512.
#include "backend/cpu/kernels.hpp"

#define DEEPGEMM_VECTOR_BYTES 64
#include "kernels/cpu/amx_tile.hpp"

namespace deepgemm::cpu {
namespace {

template <WordFormat kFormat>
constexpr void list_expansions(AmxKernels& kernels) {
  constexpr int kIndex = static_cast<int>(kFormat);
  kernels.expand[kIndex] = expand<kFormat>;
  kernels.scaled[kIndex][0] = scaled_tile_product<kFormat, 1>;
  kernels.scaled[kIndex][1] = scaled_tile_product<kFormat, 2>;
  kernels.fused[kIndex][0] = fused_tile_product<kFormat, 1>;
  kernels.fused[kIndex][1] = fused_tile_product<kFormat, 2>;
}

constexpr AmxKernels make_amx_kernels() {
  AmxKernels kernels;
  kernels.configure = configure_tiles;
  kernels.release = release_tiles;
  kernels.bf16[0] = tile_product<false, 1>;
  kernels.bf16[1] = tile_product<false, 2>;
  kernels.int8[0] = tile_product<true, 1>;
  kernels.int8[1] = tile_product<true, 2>;
  list_expansions<WordFormat::kE4m3>(kernels);
  list_expansions<WordFormat::kE5m2>(kernels);
  list_expansions<WordFormat::kInt8>(kernels);
  list_expansions<WordFormat::kInt4>(kernels);
  kernels.narrow_to_bf16 = narrow_to_bf16;
  kernels.narrow_to_int8 = narrow_to_int8;
  kernels.pair_rows = pair_rows;
  kernels.quad_rows = quad_rows;
  return kernels;
}

}  // namespace

constinit const AmxKernels kAmxKernels = make_amx_kernels();

}  // namespace deepgemm::cpu
