// Source of every table of kernels.hpp, included once by each isa_*.cpp, which defines
//   DEEPGEMM_VECTOR_BYTES  width of the vectors, and
//   DEEPGEMM_ROWS          rows of the largest micro-kernel.
// The rules of kernels/cpu/vector.hpp hold here too.
#include "kernels/cpu/finish.hpp"
#include "kernels/cpu/stream.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int kRows = DEEPGEMM_ROWS;

// The numbers 0 ... kCount-1 as a type.
template <int... kNumbers>
struct Sequence {};
template <int kCount, int... kNumbers>
struct Count : Count<kCount - 1, kCount - 1, kNumbers...> {};
template <int... kNumbers>
struct Count<0, kNumbers...> {
  using Type = Sequence<kNumbers...>;
};
template <int kCount>
using LaneNumbers = typename Count<kCount>::Type;

// ---- Widening -----------------------------------------------------------------------------------

inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float widen_bf16(uint16_t code) {
  const uint32_t bits = static_cast<uint32_t>(code) << 16;
  const uint32_t quiet = (bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x00400000U : 0U;
  return float_of(bits | quiet);
}

// Subnormals are scaled as integers: no subnormal FP32 value arises, which some CPUs handle slowly.
inline float widen_fp16(uint16_t code) {
  const uint32_t magnitude = code & 0x7FFFU;
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000U) << 16;
  const uint32_t rebias = magnitude >= 0x7C00U ? 224U << 23 : 112U << 23;
  const uint32_t quiet = magnitude > 0x7C00U ? 0x00400000U : 0U;
  const uint32_t normal = ((magnitude << 13) + rebias) | quiet;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
  return float_of((magnitude < 0x0400U ? __builtin_bit_cast(uint32_t, small) : normal) | sign);
}

inline float widen_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7FU;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80U) << 24;
  const uint32_t normal = magnitude == 0x7FU ? 0x7FC00000U : (magnitude << 20) + (120U << 23);
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9F;
  return float_of((magnitude < 0x08U ? __builtin_bit_cast(uint32_t, small) : normal) | sign);
}

// The upper half of FP16, with one NaN.
inline float widen_e5m2(uint8_t code) {
  const uint32_t nan = (code & 0x80U) << 8 | 0x7E00U;
  const uint32_t bits = static_cast<uint32_t>(code) << 8;
  return widen_fp16(static_cast<uint16_t>((code & 0x7FU) > 0x7CU ? nan : bits));
}

inline float widen_int8(int8_t code) { return static_cast<float>(code); }
inline float same_float(float value) { return value; }
inline double same_double(double value) { return value; }

// Operands may start at any byte.
template <class T, class Code, auto kWidenOne>
void widen_rows(const void* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
                int64_t columns) {
  typedef Code Unaligned __attribute__((aligned(1), may_alias));
  for (int64_t i = 0; i < rows; ++i) {
    const void* row = static_cast<const uint8_t*>(from) + i * from_stride;
    const Unaligned* codes = static_cast<const Unaligned*>(row);
    T* wide = to + i * to_stride;
    for (int64_t j = 0; j < columns; ++j) wide[j] = static_cast<T>(kWidenOne(codes[j]));
  }
}

template <class T>
void widen(Source source, const void* from, int64_t from_stride, T* to, int64_t to_stride,
           int64_t rows, int64_t columns) {
  const auto run = [&](auto widen_all) {
    widen_all(from, from_stride, to, to_stride, rows, columns);
  };
  switch (source) {
    case Source::kFp64:
      return run(widen_rows<T, double, same_double>);
    case Source::kFp32:
      return run(widen_rows<T, float, same_float>);
    case Source::kFp16:
      return run(widen_rows<T, uint16_t, widen_fp16>);
    case Source::kBf16:
      return run(widen_rows<T, uint16_t, widen_bf16>);
    case Source::kE4m3:
      return run(widen_rows<T, uint8_t, widen_e4m3>);
    case Source::kE5m2:
      return run(widen_rows<T, uint8_t, widen_e5m2>);
    case Source::kInt8:
      return run(widen_rows<T, int8_t, widen_int8>);
  }
}

// ---- Transposing --------------------------------------------------------------------------------

// One step of a square transpose: exchanges, between rows whose numbers differ by `kDistance`, the
// lanes that lie on the wrong side.
template <int kDistance, class Vector, int... kLane>
void exchange_lanes(Vector& first, Vector& second, Sequence<kLane...>) {
  constexpr int kCount = sizeof...(kLane);
  const Vector upper = __builtin_shufflevector(
      first, second, ((kLane & kDistance) != 0 ? kCount + kLane - kDistance : kLane)...);
  second = __builtin_shufflevector(
      first, second, ((kLane & kDistance) != 0 ? kCount + kLane : kLane + kDistance)...);
  first = upper;
}

template <class T, int kDistance = 1>
void transpose_rows(typename VectorOf<T>::Type* rows) {
  if constexpr (kDistance < kLanes<T>) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i) {
      if ((i & kDistance) != 0) continue;
      exchange_lanes<kDistance>(rows[i], rows[i + kDistance], LaneNumbers<kLanes<T>>());
    }
    transpose_rows<T, 2 * kDistance>(rows);
  }
}

template <class T>
void transpose_square(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  using Vector = typename VectorOf<T>::Type;
  Vector rows[kLanes<T>];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i) rows[i] = load<Vector>(from + i * from_stride);
  transpose_rows<T>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i) store(to + i * to_stride, rows[i]);
}

template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
               int64_t columns) {
  constexpr int kEdge = kLanes<T>;
  for (int64_t i = 0; i < rows; i += kEdge) {
    for (int64_t j = 0; j < columns; j += kEdge) {
      const T* source = from + j * from_stride + i;
      T* target = to + i * to_stride + j;
      if (rows - i >= kEdge && columns - j >= kEdge) {
        transpose_square(source, from_stride, target, to_stride);
        continue;
      }
      for (int64_t r = 0; r < kEdge && i + r < rows; ++r) {
        for (int64_t c = 0; c < kEdge && j + c < columns; ++c) {
          __builtin_memcpy(target + r * to_stride + c, source + c * from_stride + r, sizeof(T));
        }
      }
    }
  }
}

// ---- Scaling ------------------------------------------------------------------------------------

template <class T>
void scale(T* values, int64_t stride, const float* scales, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    T* row = values + i * stride;
    for (int64_t j = 0; j < columns; ++j) row[j] *= static_cast<T>(scales[j]);
  }
}

template <class T>
void scale_all(T* values, float factor, int64_t count) {
  for (int64_t j = 0; j < count; ++j) values[j] *= static_cast<T>(factor);
}

// ---- The table ----------------------------------------------------------------------------------

template <class T, int R>
constexpr void list_multiply(Kernels<T>& kernels) {
  kernels.multiply[R] = multiply<T, R>;
  if constexpr (R > 1) list_multiply<T, R - 1>(kernels);
}

template <class T, int kFormat = 0>
constexpr void list_load_words(Kernels<T>& kernels) {
  if constexpr (kFormat < kWordFormats) {
    kernels.load_words[kFormat] = load_words<T, static_cast<WordFormat>(kFormat)>;
    list_load_words<T, kFormat + 1>(kernels);
  }
}

template <int kEntry = 0>
constexpr void list_streams(IsaKernels& kernels) {
  if constexpr (kEntry < kWordFormats * kStreamSizes) {
    constexpr auto kFormat = static_cast<WordFormat>(kEntry / kStreamSizes);
    constexpr int kSize = kEntry % kStreamSizes;
    constexpr int kSizeRows = 1 << kSize;
    kernels.stream[kEntry / kStreamSizes][kSize] =
        stream<kFormat, kSizeRows, is_quantised(kFormat)>;
    kernels.stream_panels[kSize] = stream_panels(kVectorBytes, kSizeRows);
    list_streams<kEntry + 1>(kernels);
  }
}

template <class T>
constexpr Kernels<T> make_kernels() {
  Kernels<T> kernels;
  kernels.rows = kRows;
  kernels.columns = 2 * kLanes<T>;
  list_multiply<T, kRows>(kernels);
  list_load_words(kernels);
  kernels.widen = widen<T>;
  kernels.transpose = transpose<T>;
  kernels.scale = scale<T>;
  kernels.scale_all = scale_all<T>;
  return kernels;
}

constexpr IsaKernels make_isa_kernels() {
  IsaKernels kernels;
  kernels.f32 = make_kernels<float>();
  kernels.f64 = make_kernels<double>();
  kernels.finish_floats = finish<float>;
  kernels.finish_doubles = finish<double>;
  kernels.finish_integers = finish<int32_t>;
  list_streams(kernels);
  return kernels;
}

}  // namespace
}  // namespace deepgemm::cpu
