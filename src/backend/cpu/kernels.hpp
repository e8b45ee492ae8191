// The part of the backend that is compiled once per instruction set: a table of plain functions.
//
// This header is included by files compiled for newer instruction sets than the rest of the
// program, so it declares data and function types only and includes no library header with inline
// functions.
#pragma once

#include <stdint.h>

#include "kernels/cpu/operands.hpp"

namespace deepgemm::cpu {

// Formats that a widening loop exists for.
enum class Source : uint8_t { kFp64, kFp32, kFp16, kBf16, kE4m3, kE5m2, kInt8 };

constexpr int kMaxRows = 12;  // of a micro-kernel, over all instruction sets

// Functions for multiplicands of type T (float or double).
template <class T>
struct Kernels {
  int rows = 0;     // largest number of rows of `multiply`
  int columns = 0;  // of one call of `multiply`: two vectors

  // multiply[r], 1 <= r <= rows: r rows and `columns` columns of a panel, see
  // kernels/cpu/fma_tile.hpp.
  using Multiply = void (*)(int64_t k, const T* a, int64_t a_step, const T* b, double* acc,
                            int64_t acc_stride);
  Multiply multiply[kMaxRows + 1] = {};

  // Channels of a panel of packed weights, as rows of kPanel values: see kernels/cpu/words.hpp.
  using LoadWords = void (*)(const uint32_t* words, int64_t first, int64_t count,
                             const GroupLanes* lanes, T* to);
  LoadWords load_words[kWordFormats] = {};

  // Rows of contiguous values to T; exact, but FP64 to float, which rounds to nearest. from_stride
  // counts bytes, to_stride elements; `from` may have any alignment.
  void (*widen)(Source source, const void* from, int64_t from_stride, T* to, int64_t to_stride,
                int64_t rows, int64_t columns) = nullptr;
  // to[i * to_stride + j] = from[j * from_stride + i] for i < rows, j < columns; `from` may have
  // any alignment.
  void (*transpose)(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
                    int64_t columns) = nullptr;
  // values[i * stride + j] *= scales[j], rounded to T.
  void (*scale)(T* values, int64_t stride, const float* scales, int64_t rows,
                int64_t columns) = nullptr;
  // values[j] *= factor, rounded to T.
  void (*scale_all)(T* values, float factor, int64_t count) = nullptr;
};

// Streaming products (kernels/cpu/stream.hpp) exist ahead of time for 1, 2, 4 and 8 rows.
using Stream = void (*)(const StreamArguments&);
constexpr int kStreamSizes = 4;
constexpr int kStreamRows = 1 << (kStreamSizes - 1);

// Factors and rounding of a row without other epilogue: kernels/cpu/finish.hpp.
template <class Sum>
using Finish = void (*)(const Sum* sums, const float* factors, float factor, Target target,
                        void* to, int64_t count);

struct IsaKernels {
  Kernels<float> f32;
  Kernels<double> f64;
  Finish<float> finish_floats = nullptr;
  Finish<double> finish_doubles = nullptr;
  Finish<int32_t> finish_integers = nullptr;
  Stream stream[kWordFormats][kStreamSizes] = {};  // of 1 << size rows
  int stream_panels[kStreamSizes] = {};            // panels that a call covers
};

// Tile units (kernels/cpu/amx_tile.hpp). A thread configures them for up to 16 rows of a row tile
// before products and releases them afterwards. Row tiles: 1 or 2, indexed from 0.
struct AmxKernels {
  void (*configure)(int64_t rows) = nullptr;
  void (*release)() = nullptr;
  using Product = void (*)(int64_t steps, TilesOfA a, const uint8_t* b, uint8_t* sums,
                           int64_t stride, bool fresh, Upcoming next);
  Product bf16[2] = {};  // sums in FP32
  Product int8[2] = {};  // in INT32
  // By format: of kE4m3, kE5m2, kInt8, kInt4.
  using ScaledProduct = void (*)(const TileGroups& groups, int64_t steps, TilesOfA a,
                                 const uint8_t* b, const TileSums& sums, const WordSteps& later,
                                 uint8_t* later_to, Upcoming next);
  ScaledProduct scaled[kWordFormats][2] = {};
  using FusedProduct = void (*)(const WordSteps& words, TilesOfA a, uint8_t* ring,
                                const TileSums& sums, Upcoming next);
  FusedProduct fused[kWordFormats][2] = {};
  void (*expand[kWordFormats])(const WordSteps& words, uint8_t* to) = {};
  void (*narrow_to_bf16)(const float* from, uint16_t* to, int64_t count) = nullptr;
  void (*narrow_to_int8)(const float* from, int8_t* to, int64_t count) = nullptr;
  void (*pair_rows)(const float* rows, int64_t words, uint32_t* to) = nullptr;
  void (*quad_rows)(const float* rows, int64_t words, uint32_t* to) = nullptr;
};

// Tables of the compiled instruction sets; all but the generic one exist on x86-64 only.
extern const IsaKernels kGenericKernels;
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;
extern const AmxKernels kAmxKernels;  // beside kAvx512Kernels

}  // namespace deepgemm::cpu
