#include "base/formats.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace deepgemm::base {
namespace {

// A binary floating-point format narrower than FP64: sign, exponent, fraction.
struct SmallFloat {
  int fraction_bits;
  int min_exponent;        // exponent of the smallest normal value
  uint64_t max_code;       // largest finite magnitude
  uint64_t overflow_code;  // what larger magnitudes become
  uint64_t nan_code;       // quiet NaN without payload
  int sign_bit;            // position of the sign
  bool keeps_nan_payload;  // sign and upper payload bits of a NaN survive
};

constexpr SmallFloat kFp16 = {10, -14, 0x7BFF, 0x7C00, 0x7E00, 15, true};
constexpr SmallFloat kBf16 = {7, -126, 0x7F7F, 0x7F80, 0x7FC0, 15, true};
constexpr SmallFloat kE4m3 = {3, -6, 0x7E, 0x7E, 0x7F, 7, false};
constexpr SmallFloat kE5m2 = {2, -14, 0x7B, 0x7B, 0x7F, 7, false};
// TF32 without the 13 fraction bits that FP32 storage has below it.
constexpr SmallFloat kTf32 = {10, -126, 0x3FBFF, 0x3FC00, 0x3FE00, 18, true};

constexpr int kFp64FractionBits = 52;
constexpr uint64_t kFp64FractionMask = (uint64_t{1} << kFp64FractionBits) - 1;

uint64_t nan_code(const SmallFloat& format, uint64_t sign, uint64_t fraction) {
  if (!format.keeps_nan_payload) return format.nan_code;
  return sign << format.sign_bit | format.nan_code |
         fraction >> (kFp64FractionBits - format.fraction_bits);
}

// Nearest code, ties to even, in integer arithmetic.
uint64_t encode_small(const SmallFloat& format, double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = bits >> 63;
  const uint64_t fraction = bits & kFp64FractionMask;
  const int biased = static_cast<int>(bits >> kFp64FractionBits & 0x7FF);
  if (biased == 0x7FF && fraction != 0) return nan_code(format, sign, fraction);
  const uint64_t signed_zero = sign << format.sign_bit;
  if (biased == 0x7FF) return signed_zero | format.overflow_code;
  if (biased == 0) return signed_zero;  // below 2^-1022: far under half of any smallest value here

  const int exponent = biased - 1023;
  const int code_exponent = exponent > format.min_exponent ? exponent : format.min_exponent;
  const int shift = kFp64FractionBits - format.fraction_bits + (code_exponent - exponent);
  if (shift > kFp64FractionBits + 1) return signed_zero;  // below half of the smallest value
  const uint64_t significand = fraction | uint64_t{1} << kFp64FractionBits;
  uint64_t rounded = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (rounded & 1) != 0)) ++rounded;
  // `rounded` holds the hidden bit of normal values, which adds 1 to the exponent field; so does
  // the carry of a significand that rounds up to the next power of two.
  const uint64_t code =
      (static_cast<uint64_t>(code_exponent - format.min_exponent) << format.fraction_bits) +
      rounded;
  return signed_zero | (code > format.max_code ? format.overflow_code : code);
}

constexpr double power_of_two(int exponent) {
  double value = 1.0;
  for (; exponent > 0; --exponent) value *= 2.0;
  for (; exponent < 0; ++exponent) value *= 0.5;
  return value;
}

// Values of all codes of an 8-bit format. Magnitudes above the largest finite one are NaN, but for
// the first of them where the format has an infinity.
constexpr std::array<float, 256> fp8_table(const SmallFloat& format, bool has_infinity) {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned magnitude = code & 0x7F;
    const unsigned hidden = 1u << format.fraction_bits;
    const unsigned fraction = magnitude & (hidden - 1);
    const int field = static_cast<int>(magnitude >> format.fraction_bits);
    const double quantum =
        power_of_two(format.min_exponent - format.fraction_bits + (field > 0 ? field - 1 : 0));
    double value = (field > 0 ? fraction + hidden : fraction) * quantum;
    if (magnitude > format.max_code) value = std::numeric_limits<double>::quiet_NaN();
    if (has_infinity && magnitude == format.max_code + 1) {
      value = std::numeric_limits<double>::infinity();
    }
    table[code] = static_cast<float>(code > 0x7F ? -value : value);
  }
  return table;
}

constexpr std::array<float, 256> kE4m3Values = fp8_table(kE4m3, false);
constexpr std::array<float, 256> kE5m2Values = fp8_table(kE5m2, true);

// Row of a floating-point format: `significand` bits with the hidden bit, exponents
// min_exponent ... max_exponent.
constexpr FormatInfo float_format(gemm_precision_t precision, const char* name, int storage_bits,
                                  int significand, int min_exponent, int max_exponent) {
  return {precision,
          name,
          storage_bits,
          significand,
          (2.0 - power_of_two(1 - significand)) * power_of_two(max_exponent),
          power_of_two(min_exponent),
          power_of_two(min_exponent) * power_of_two(1 - significand),
          power_of_two(-significand),
          false,
          true};
}

constexpr FormatInfo e4m3_format() {
  FormatInfo info = float_format(PRECISION_FP8_E4M3, "fp8_e4m3", 8, 4, -6, 8);
  info.max_finite = 448;  // the largest code of the last binade is NaN
  info.has_infinity = false;
  return info;
}

constexpr FormatInfo integer_format(gemm_precision_t precision, const char* name, int bits) {
  return {precision, name, bits, bits - 1, power_of_two(bits - 1) - 1, 1, 1, 0, true, false};
}

constexpr FormatInfo kFormats[] = {
    float_format(PRECISION_FP64, "fp64", 64, 53, -1022, 1023),
    float_format(PRECISION_FP32, "fp32", 32, 24, -126, 127),
    float_format(PRECISION_TF32, "tf32", 32, 11, -126, 127),
    float_format(PRECISION_FP16, "fp16", 16, 11, -14, 15),
    float_format(PRECISION_BF16, "bf16", 16, 8, -126, 127),
    e4m3_format(),
    float_format(PRECISION_FP8_E5M2, "fp8_e5m2", 8, 3, -14, 15),
    integer_format(PRECISION_INT8, "int8", 8),
    integer_format(PRECISION_INT4, "int4", 4),
    integer_format(PRECISION_INT4_AWQ, "int4_awq", 4),
    integer_format(PRECISION_INT4_GPTQ, "int4_gptq", 4),
};

// Nearest integer, ties to even, clamped; NaN gives 0. Independent of the rounding mode.
int64_t round_to_integer(double value, int64_t low, int64_t high) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(low)) return low;
  if (value >= static_cast<double>(high)) return high;
  const double floor = std::floor(value);
  const double rest = value - floor;  // exact: |value| < 2^8
  int64_t rounded = static_cast<int64_t>(floor);
  if (rest > 0.5 || (rest == 0.5 && (rounded & 1) != 0)) ++rounded;
  return rounded;
}

template <class T>
T load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
void store(void* data, int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

int load_int4(const void* data, int64_t index) {
  const uint8_t byte = static_cast<const uint8_t*>(data)[index / 2];
  const int nibble = (index % 2 == 0 ? byte : byte >> 4) & 0xF;
  return nibble < 8 ? nibble : nibble - 16;
}

void store_int4(void* data, int64_t index, int64_t value) {
  uint8_t& byte = static_cast<uint8_t*>(data)[index / 2];
  const unsigned nibble = static_cast<unsigned>(value) & 0xF;
  byte =
      static_cast<uint8_t>(index % 2 == 0 ? (byte & 0xF0) | nibble : (byte & 0x0F) | nibble << 4);
}

float double_to_tf32(double value) {
  return std::bit_cast<float>(static_cast<uint32_t>(encode_small(kTf32, value) << 13));
}

}  // namespace

const FormatInfo* find_format(gemm_precision_t precision) {
  for (const FormatInfo& info : kFormats) {
    if (info.precision == precision) return &info;
  }
  return nullptr;
}

const FormatInfo* find_format(const char* name) {
  if (name == nullptr) return nullptr;
  for (const FormatInfo& info : kFormats) {
    if (std::strcmp(info.name, name) == 0) return &info;
  }
  return nullptr;
}

int64_t storage_bytes(gemm_precision_t precision, int64_t count) {
  const FormatInfo* info = find_format(precision);
  if (info == nullptr) return 0;
  return info->storage_bits < 8 ? count / 2 + count % 2 : count * (info->storage_bits / 8);
}

float fp16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00) {
    const uint32_t quiet = magnitude > 0x7C00 ? 0x00400000u : 0;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (magnitude & 0x3FF) << 13);
  }
  if (magnitude < 0x0400) {  // subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  constexpr uint32_t kBiasDifference = 127 - 15;
  return std::bit_cast<float>(sign | ((magnitude << 13) + (kBiasDifference << 23)));
}

uint16_t float_to_fp16(float value) { return double_to_fp16(static_cast<double>(value)); }

uint16_t double_to_fp16(double value) { return static_cast<uint16_t>(encode_small(kFp16, value)); }

float bf16_to_float(uint16_t bits) {
  const uint32_t quiet = (bits & 0x7FFF) > 0x7F80 ? 0x00400000u : 0;
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16 | quiet);
}

uint16_t float_to_bf16(float value) { return double_to_bf16(static_cast<double>(value)); }

uint16_t double_to_bf16(double value) { return static_cast<uint16_t>(encode_small(kBf16, value)); }

float e4m3_to_float(uint8_t bits) { return kE4m3Values[bits]; }

float e5m2_to_float(uint8_t bits) { return kE5m2Values[bits]; }

uint8_t double_to_e4m3(double value) { return static_cast<uint8_t>(encode_small(kE4m3, value)); }

uint8_t double_to_e5m2(double value) { return static_cast<uint8_t>(encode_small(kE5m2, value)); }

float round_to_tf32(float value) { return double_to_tf32(static_cast<double>(value)); }

float e8m0_to_float(uint8_t bits) {
  if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  if (bits == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 23);
}

double decode(gemm_precision_t precision, const void* data, int64_t index) {
  switch (precision) {
    case PRECISION_FP64:
      return load<double>(data, index);
    case PRECISION_FP32:
    case PRECISION_TF32:
      return static_cast<double>(load<float>(data, index));
    case PRECISION_FP16:
      return static_cast<double>(fp16_to_float(load<uint16_t>(data, index)));
    case PRECISION_BF16:
      return static_cast<double>(bf16_to_float(load<uint16_t>(data, index)));
    case PRECISION_FP8_E4M3:
      return static_cast<double>(e4m3_to_float(load<uint8_t>(data, index)));
    case PRECISION_FP8_E5M2:
      return static_cast<double>(e5m2_to_float(load<uint8_t>(data, index)));
    case PRECISION_INT8:
      return load<int8_t>(data, index);
    case PRECISION_INT4:
    case PRECISION_INT4_AWQ:
    case PRECISION_INT4_GPTQ:
      return load_int4(data, index);
    case PRECISION_DEFAULT:
      break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void encode(gemm_precision_t precision, void* data, int64_t index, double value) {
  switch (precision) {
    case PRECISION_FP64:
      return store(data, index, value);
    case PRECISION_FP32:
      return store(data, index, static_cast<float>(value));
    case PRECISION_TF32:
      return store(data, index, double_to_tf32(value));
    case PRECISION_FP16:
      return store(data, index, double_to_fp16(value));
    case PRECISION_BF16:
      return store(data, index, double_to_bf16(value));
    case PRECISION_FP8_E4M3:
      return store(data, index, double_to_e4m3(value));
    case PRECISION_FP8_E5M2:
      return store(data, index, double_to_e5m2(value));
    case PRECISION_INT8:
      return store(data, index, static_cast<int8_t>(round_to_integer(value, -128, 127)));
    case PRECISION_INT4:
    case PRECISION_INT4_AWQ:
    case PRECISION_INT4_GPTQ:
      return store_int4(data, index, round_to_integer(value, -8, 7));
    case PRECISION_DEFAULT:
      break;
  }
}

double round_to(gemm_precision_t precision, double value) {
  uint64_t storage = 0;
  encode(precision, &storage, 0, value);
  return decode(precision, &storage, 0);
}

}  // namespace deepgemm::base
