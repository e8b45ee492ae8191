// Vectors of the CPU kernels. Whoever includes a file of this folder defines
//   DEEPGEMM_VECTOR_BYTES  width of the vectors: 16, 32 or 64.
//
// These files are compiled ahead of time, once for each instruction set, and travel in the library
// as text for run-time compilation. So they use the compiler's vector extensions and nothing of the
// standard library, have internal linkage (the linker keeps one copy of an inline function, and it
// might be the one that an older CPU cannot run), and need -ffp-contract=fast: products of a sum
// fuse with it, where the instruction set can; no other function here adds to a product.
#pragma once

#include "kernels/cpu/operands.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int kVectorBytes = DEEPGEMM_VECTOR_BYTES;
constexpr int kFloatLanes = kVectorBytes / 4;
constexpr int kPanelVectors = kPanel / kFloatLanes;

typedef float FloatVector __attribute__((vector_size(kVectorBytes), may_alias));
typedef double DoubleVector __attribute__((vector_size(kVectorBytes), may_alias));
typedef uint32_t WordVector __attribute__((vector_size(kVectorBytes), may_alias));
typedef int32_t IntVector __attribute__((vector_size(kVectorBytes), may_alias));
typedef uint8_t ByteVector __attribute__((vector_size(kVectorBytes / 4), may_alias));
// A code of 16 bits for each lane of a FloatVector; bytes widen over it to words.
typedef uint16_t HalfWidthVector __attribute__((vector_size(kVectorBytes / 2), may_alias));
// One double for each lane of a FloatVector.
typedef double WideVector __attribute__((vector_size(2 * kVectorBytes), may_alias));

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = FloatVector;
};
template <>
struct VectorOf<double> {
  using Type = DoubleVector;
};

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// body(constant 0), ..., body(constant kCount - 1): loops that must not be left to the optimiser,
// because what they index lives in registers.
template <int kNumber>
struct Constant {
  static constexpr int kValue = kNumber;
};
template <int kCount, int kNumber = 0, class Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
  if constexpr (kNumber < kCount) {
    body(Constant<kNumber>());
    unrolled<kCount, kNumber + 1>(body);
  }
}

template <class Vector>
inline Vector load(const void* from) {
  typedef Vector Unaligned __attribute__((aligned(1), may_alias));
  return *static_cast<const Unaligned*>(from);
}

template <class Vector>
inline void store(void* to, const Vector& value) {
  typedef Vector Unaligned __attribute__((aligned(1), may_alias));
  *static_cast<Unaligned*>(to) = value;
}

// The lanes of a FloatVector as doubles, in two vectors.
struct Doubles {
  DoubleVector low, high;
};

inline Doubles widen(FloatVector values) {
#if DEEPGEMM_VECTOR_BYTES == 64 && defined(__AVX512DQ__) && !defined(__clang__)
  // __builtin_convertvector sends the result through memory.
  typedef float Half __attribute__((vector_size(32)));
  const auto convert = [](Half half) {
    constexpr int kCurrentRounding = 4;
    return __builtin_bit_cast(DoubleVector, __builtin_ia32_cvtps2pd512_mask(
                                                half, DoubleVector{}, 0xFF, kCurrentRounding));
  };
  return {convert(__builtin_ia32_extractf32x8_mask(values, 0, Half{}, 0xFF)),
          convert(__builtin_ia32_extractf32x8_mask(values, 1, Half{}, 0xFF))};
#else
  return __builtin_bit_cast(Doubles, __builtin_convertvector(values, WideVector));
#endif
}

inline void add_to(double* to, FloatVector values) {
  const Doubles wide = widen(values);
  store(to, load<DoubleVector>(to) + wide.low);
  double* const behind = to + kLanes<double>;
  store(behind, load<DoubleVector>(behind) + wide.high);
}
inline void add_to(double* to, DoubleVector values) { store(to, load<DoubleVector>(to) + values); }

}  // namespace
}  // namespace deepgemm::cpu
