#include "base/formats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace deepgemm::base {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- Oracle: a format as a sorted list of values, built from the definition of the fields
// ----------

struct Oracle {
  int exponent_bits;
  int fraction_bits;
  int bias;
  uint32_t last_finite;        // largest finite code
  uint32_t overflow;           // code of what is too large
  std::vector<double> values;  // of codes 0 ... last_finite, and one more step of the same quantum

  Oracle(int exponents, int fractions, uint32_t last, uint32_t over)
      : exponent_bits(exponents),
        fraction_bits(fractions),
        bias((1 << (exponents - 1)) - 1),
        last_finite(last),
        overflow(over) {
    for (uint32_t code = 0; code <= last + 1; ++code) values.push_back(value_of(code));
  }

  double value_of(uint32_t code) const {
    const int field = static_cast<int>(code >> fraction_bits);
    const double fraction = code & ((1u << fraction_bits) - 1);
    if (field == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
    return std::ldexp(std::ldexp(1.0, fraction_bits) + fraction, field - bias - fraction_bits);
  }

  // Nearest code of a magnitude. Midpoints of neighbours are exact in double.
  uint32_t nearest(double magnitude) const {
    if (magnitude >= values.back()) return overflow;
    const auto above = std::upper_bound(values.begin(), values.end(), magnitude);
    const auto low = static_cast<uint32_t>(above - values.begin()) - 1;
    const double middle = (values[low] + values[low + 1]) / 2;
    const bool up = magnitude > middle || (magnitude == middle && low % 2 == 1);
    const uint32_t code = up ? low + 1 : low;
    return code > last_finite ? overflow : code;
  }

  int sign_bit() const { return exponent_bits + fraction_bits; }
};

const Oracle& fp16_oracle() {
  static const Oracle oracle(5, 10, 0x7BFF, 0x7C00);
  return oracle;
}
const Oracle& bf16_oracle() {
  static const Oracle oracle(8, 7, 0x7F7F, 0x7F80);
  return oracle;
}
const Oracle& e4m3_oracle() {
  static const Oracle oracle(4, 3, 0x7E, 0x7E);
  return oracle;
}
const Oracle& e5m2_oracle() {
  static const Oracle oracle(5, 2, 0x7B, 0x7B);
  return oracle;
}

// Checks `encode` on every code, every midpoint of neighbours and the doubles beside them, both
// signs.
template <class Encode>
void check_all_boundaries(const Oracle& oracle, Encode encode) {
  const auto check = [&](double value) {
    const uint32_t wanted =
        oracle.nearest(std::abs(value)) | (std::signbit(value) ? 1u << oracle.sign_bit() : 0u);
    ASSERT_EQ(static_cast<uint32_t>(encode(value)), wanted) << std::hexfloat << value;
  };
  for (size_t code = 0; code + 1 < oracle.values.size(); ++code) {
    const double low = oracle.values[code];
    const double middle = (low + oracle.values[code + 1]) / 2;
    for (const double value : {low, std::nextafter(low, kInfinity), std::nextafter(middle, 0.0),
                               middle, std::nextafter(middle, kInfinity)}) {
      check(value);
      check(-value);
    }
  }
  for (const double value : {oracle.values.back(), 1e300, std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::denorm_min(), 0x1p-1022, 0x1p-200}) {
    check(value);
    check(-value);
  }
}

template <class Encode>
void check_random(const Oracle& oracle, Encode encode) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> significand(1.0, 2.0);
  std::uniform_int_distribution<int> exponent(-1 - oracle.bias - oracle.fraction_bits,
                                              oracle.bias + 3);
  for (int i = 0; i < 200000; ++i) {
    const double value = std::ldexp(significand(random), exponent(random));
    ASSERT_EQ(static_cast<uint32_t>(encode(value)), oracle.nearest(value))
        << std::hexfloat << value;
  }
}

TEST(Fp16, DecodesEveryCodeAndEncodesItBack) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const float value = fp16_to_float(bits);
    const uint32_t magnitude = code & 0x7FFF;
    ASSERT_EQ(std::signbit(value), code >= 0x8000);
    if (magnitude > 0x7C00) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(float_to_fp16(value), bits | 0x0200);  // quiet, same sign and payload
      continue;
    }
    const double wanted = magnitude == 0x7C00 ? kInfinity : fp16_oracle().value_of(magnitude);
    ASSERT_EQ(std::abs(static_cast<double>(value)), wanted) << code;
    ASSERT_EQ(float_to_fp16(value), bits);
    ASSERT_EQ(double_to_fp16(static_cast<double>(value)), bits);
  }
}

TEST(Bf16, DecodesEveryCodeAndEncodesItBack) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const float value = bf16_to_float(bits);
    const uint32_t magnitude = code & 0x7FFF;
    ASSERT_EQ(std::signbit(value), code >= 0x8000);
    if (magnitude > 0x7F80) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(float_to_bf16(value), bits | 0x0040);
      continue;
    }
    const double wanted = magnitude == 0x7F80 ? kInfinity : bf16_oracle().value_of(magnitude);
    ASSERT_EQ(std::abs(static_cast<double>(value)), wanted) << code;
    ASSERT_EQ(float_to_bf16(value), bits);
    ASSERT_EQ(double_to_bf16(static_cast<double>(value)), bits);
  }
}

TEST(E4m3, DecodesEveryCodeAndEncodesItBack) {
  for (uint32_t code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float value = e4m3_to_float(bits);
    ASSERT_EQ(std::signbit(value), code >= 0x80);
    if ((code & 0x7F) == 0x7F) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(double_to_e4m3(static_cast<double>(value)), 0x7F);
      continue;
    }
    ASSERT_EQ(std::abs(static_cast<double>(value)), e4m3_oracle().value_of(code & 0x7F));
    ASSERT_EQ(double_to_e4m3(static_cast<double>(value)), bits);
  }
}

TEST(E5m2, DecodesEveryCodeAndEncodesFiniteOnesBack) {
  for (uint32_t code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float value = e5m2_to_float(bits);
    ASSERT_EQ(std::signbit(value), code >= 0x80);
    if ((code & 0x7F) > 0x7C) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(double_to_e5m2(static_cast<double>(value)), 0x7F);
    } else if ((code & 0x7F) == 0x7C) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(double_to_e5m2(static_cast<double>(value)), bits - 1);  // saturates
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(value)), e5m2_oracle().value_of(code & 0x7F));
      ASSERT_EQ(double_to_e5m2(static_cast<double>(value)), bits);
    }
  }
}

TEST(Fp16, RoundsToNearestEvenAroundEveryCode) {
  check_all_boundaries(fp16_oracle(), double_to_fp16);
  check_random(fp16_oracle(), double_to_fp16);
}

TEST(Bf16, RoundsToNearestEvenAroundEveryCode) {
  check_all_boundaries(bf16_oracle(), double_to_bf16);
  check_random(bf16_oracle(), double_to_bf16);
}

TEST(E4m3, RoundsToNearestEvenAroundEveryCode) {
  check_all_boundaries(e4m3_oracle(), double_to_e4m3);
  check_random(e4m3_oracle(), double_to_e4m3);
}

TEST(E5m2, RoundsToNearestEvenAroundEveryCode) {
  check_all_boundaries(e5m2_oracle(), double_to_e5m2);
  check_random(e5m2_oracle(), double_to_e5m2);
}

TEST(Tf32, RoundsToNearestEvenOnBothSidesOfEveryTenthBit) {
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    // Oracle: drop 13 bits of the FP32 pattern after adding the tie-breaking bias.
    const auto bits = static_cast<uint32_t>(random());
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    const uint32_t low = bits & 0xFFFFE000;
    const uint32_t rest = bits & 0x1FFF;
    const bool up = rest > 0x1000 || (rest == 0x1000 && (bits & 0x2000) != 0);
    ASSERT_EQ(std::bit_cast<uint32_t>(round_to_tf32(value)), up ? low + 0x2000 : low) << bits;
  }
  EXPECT_EQ(round_to_tf32(1.0f + 0x1p-11f), 1.0f);                // tie, down to even
  EXPECT_EQ(round_to_tf32(1.0f + 3 * 0x1p-11f), 1.0f + 0x1p-9f);  // tie, up to even
  EXPECT_EQ(round_to_tf32(std::numeric_limits<float>::max()),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(round_to_tf32(-0x1p-137f), -0.0f);  // half of the smallest value
  EXPECT_TRUE(std::signbit(round_to_tf32(-0x1p-137f)));
  EXPECT_EQ(round_to_tf32(-0x1.8p-137f), -0x1p-136f);
  EXPECT_TRUE(std::isnan(round_to_tf32(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Fp16, OverflowStartsHalfwayBeyondTheLargestValue) {
  EXPECT_EQ(double_to_fp16(65504.0), 0x7BFF);
  EXPECT_EQ(double_to_fp16(65519.99), 0x7BFF);
  EXPECT_EQ(double_to_fp16(65520.0), 0x7C00);  // tie between 65504 and 65536: even is beyond
  EXPECT_EQ(double_to_fp16(-65520.0), 0xFC00);
  EXPECT_EQ(double_to_fp16(kInfinity), 0x7C00);
  EXPECT_EQ(double_to_fp16(-kInfinity), 0xFC00);
}

TEST(Bf16, OverflowStartsHalfwayBeyondTheLargestValue) {
  const double largest = 0x1.FEp127;
  EXPECT_EQ(double_to_bf16(largest), 0x7F7F);
  EXPECT_EQ(double_to_bf16(std::nextafter(0x1.FFp127, 0.0)), 0x7F7F);
  EXPECT_EQ(double_to_bf16(0x1.FFp127), 0x7F80);
  EXPECT_EQ(float_to_bf16(-std::numeric_limits<float>::max()), 0xFF80);
}

TEST(Bf16, RoundsTiesToEven) {
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3F80);      // 1 is even
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3F82);  // 1 + 2^-7 is odd
  EXPECT_EQ(float_to_bf16(0x1p-134f), 0x0000);           // half of the smallest value
  EXPECT_EQ(float_to_bf16(0x1.8p-134f), 0x0001);
  EXPECT_EQ(float_to_bf16(-0x1p-134f), 0x8000);
}

TEST(Fp8, SaturatesInsteadOfOverflowing) {
  EXPECT_EQ(double_to_e4m3(448.0), 0x7E);
  EXPECT_EQ(double_to_e4m3(480.0), 0x7E);
  EXPECT_EQ(double_to_e4m3(1e30), 0x7E);
  EXPECT_EQ(double_to_e4m3(-kInfinity), 0xFE);
  EXPECT_EQ(double_to_e4m3(-kNan), 0x7F);
  EXPECT_EQ(double_to_e5m2(57344.0), 0x7B);
  EXPECT_EQ(double_to_e5m2(65536.0), 0x7B);
  EXPECT_EQ(double_to_e5m2(-kInfinity), 0xFB);
  EXPECT_EQ(double_to_e5m2(kNan), 0x7F);
}

TEST(Fp16, KeepsSignAndUpperPayloadOfNan) {
  EXPECT_EQ(float_to_fp16(std::bit_cast<float>(0x7FC02000u)), 0x7E01);
  EXPECT_EQ(float_to_fp16(std::bit_cast<float>(0xFFC02000u)), 0xFE01);
  EXPECT_EQ(float_to_fp16(std::bit_cast<float>(0x7F800001u)),
            0x7E00);  // signalling, low payload bit
  EXPECT_EQ(std::bit_cast<uint32_t>(fp16_to_float(0x7C01)), 0x7FC02000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(bf16_to_float(0xFF81)), 0xFFC10000u);
}

// One rounding and two differ where FP32 hides what lies above a tie.
TEST(DoubleRounding, IsAvoidedWhereADetourOverFp32GoesWrong) {
  const double above_fp16_tie = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(double_to_fp16(above_fp16_tie), 0x3C01);
  EXPECT_EQ(float_to_fp16(static_cast<float>(above_fp16_tie)), 0x3C00);

  const double above_bf16_tie = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(double_to_bf16(above_bf16_tie), 0x3F81);
  EXPECT_EQ(float_to_bf16(static_cast<float>(above_bf16_tie)), 0x3F80);

  const double above_e4m3_tie = 1.0 + 0x1p-4 + 0x1p-40;
  EXPECT_EQ(double_to_e4m3(above_e4m3_tie), 0x39);
  EXPECT_EQ(double_to_e4m3(static_cast<double>(static_cast<float>(above_e4m3_tie))), 0x38);

  const double above_tf32_tie = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(round_to(PRECISION_TF32, above_tf32_tie), 1.0 + 0x1p-10);
  EXPECT_EQ(round_to_tf32(static_cast<float>(above_tf32_tie)), 1.0f);
}

TEST(Conversions, IgnoreTheRoundingModeOfTheCpu) {
  const int before = std::fegetround();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const uint16_t fp16 = double_to_fp16(1.0 + 0x1p-11);
    const uint16_t bf16 = double_to_bf16(-1.0 - 3 * 0x1p-8);
    const uint8_t e4m3 = double_to_e4m3(0x1p-10);
    const double int8 = round_to(PRECISION_INT8, 2.5);
    std::fesetround(before);
    EXPECT_EQ(fp16, 0x3C00);
    EXPECT_EQ(bf16, 0xBF82);
    EXPECT_EQ(e4m3, 0x00);
    EXPECT_EQ(int8, 2.0);
  }
}

#ifdef __FLT16_MANT_DIG__
TEST(Fp16, AgreesWithTheCompiler) {
  std::mt19937 random(11);
  for (int i = 0; i < 300000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_fp16(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value)))
        << std::hexfloat << value;
  }
}
#endif

TEST(E8m0, IsAPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_to_float(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127));
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(FormatTable, StatesWhatTheCodesShow) {
  struct Expected {
    gemm_precision_t precision;
    const Oracle& oracle;
    bool has_infinity;
  };
  for (const Expected& e : {Expected{PRECISION_FP16, fp16_oracle(), true},
                            Expected{PRECISION_BF16, bf16_oracle(), true},
                            Expected{PRECISION_FP8_E4M3, e4m3_oracle(), false},
                            Expected{PRECISION_FP8_E5M2, e5m2_oracle(), true}}) {
    const FormatInfo* info = find_format(e.precision);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->max_finite, e.oracle.value_of(e.oracle.last_finite)) << info->name;
    EXPECT_EQ(info->min_subnormal, e.oracle.value_of(1)) << info->name;
    EXPECT_EQ(info->min_normal, e.oracle.value_of(1u << e.oracle.fraction_bits)) << info->name;
    EXPECT_EQ(info->significand_bits, e.oracle.fraction_bits + 1) << info->name;
    EXPECT_EQ(info->unit_roundoff, std::ldexp(1.0, -e.oracle.fraction_bits - 1)) << info->name;
    EXPECT_EQ(info->has_infinity, e.has_infinity) << info->name;
  }
  const FormatInfo* fp32 = find_format(PRECISION_FP32);
  EXPECT_EQ(fp32->max_finite, static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(fp32->min_subnormal, static_cast<double>(std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(find_format(PRECISION_FP64)->max_finite, std::numeric_limits<double>::max());
  EXPECT_EQ(find_format(PRECISION_FP64)->min_subnormal, std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(find_format(PRECISION_TF32)->max_finite, 0x1.FFCp127);
}

TEST(FormatTable, IsFoundByNameAndByValue) {
  for (int p = PRECISION_FP64; p <= PRECISION_INT4_GPTQ; ++p) {
    const FormatInfo* info = find_format(static_cast<gemm_precision_t>(p));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(find_format(info->name), info);
  }
  EXPECT_EQ(find_format(PRECISION_DEFAULT), nullptr);
  EXPECT_EQ(find_format(static_cast<gemm_precision_t>(15)), nullptr);
  EXPECT_EQ(find_format("fp17"), nullptr);
  EXPECT_EQ(find_format(static_cast<const char*>(nullptr)), nullptr);
}

TEST(Encode, SaturatesIntegersAndTurnsNanIntoZero) {
  EXPECT_EQ(round_to(PRECISION_INT8, 127.5), 127.0);
  EXPECT_EQ(round_to(PRECISION_INT8, -1e9), -128.0);
  EXPECT_EQ(round_to(PRECISION_INT8, -2.5), -2.0);
  EXPECT_EQ(round_to(PRECISION_INT8, -3.5), -4.0);
  EXPECT_EQ(round_to(PRECISION_INT8, kNan), 0.0);
  EXPECT_EQ(round_to(PRECISION_INT4, 7.6), 7.0);
  EXPECT_EQ(round_to(PRECISION_INT4_AWQ, -kInfinity), -8.0);
  EXPECT_EQ(round_to(PRECISION_INT4_GPTQ, 0.5), 0.0);
}

TEST(Encode, PutsTheFirstOfTwoNibblesLow) {
  uint8_t bytes[2] = {0xFF, 0xFF};
  encode(PRECISION_INT4, bytes, 0, 1.0);
  encode(PRECISION_INT4, bytes, 1, -2.0);
  encode(PRECISION_INT4, bytes, 2, 7.0);
  EXPECT_EQ(bytes[0], 0xE1);
  EXPECT_EQ(bytes[1], 0xF7);  // the neighbour is untouched
  EXPECT_EQ(decode(PRECISION_INT4, bytes, 0), 1.0);
  EXPECT_EQ(decode(PRECISION_INT4, bytes, 1), -2.0);
  EXPECT_EQ(decode(PRECISION_INT4, bytes, 3), -1.0);
}

TEST(Encode, WritesOnlyItsElement) {
  for (int p = PRECISION_FP64; p <= PRECISION_INT8; ++p) {
    const auto precision = static_cast<gemm_precision_t>(p);
    const auto size = static_cast<size_t>(storage_bytes(precision, 1));
    std::vector<uint8_t> bytes(3 * size, 0xA5);
    encode(precision, bytes.data(), 1, -1.5);
    EXPECT_EQ(decode(precision, bytes.data(), 1), precision == PRECISION_INT8 ? -2.0 : -1.5);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(bytes[i], 0xA5);
      EXPECT_EQ(bytes[2 * size + i], 0xA5);
    }
  }
}

TEST(Encode, LeavesMemoryAloneForUnknownFormats) {
  uint64_t memory = 0x1122334455667788;
  encode(PRECISION_DEFAULT, &memory, 0, 1.0);
  EXPECT_EQ(memory, 0x1122334455667788u);
  EXPECT_TRUE(std::isnan(decode(PRECISION_DEFAULT, &memory, 0)));
}

TEST(StorageBytes, RoundsHalfBytesUp) {
  EXPECT_EQ(storage_bytes(PRECISION_INT4, 0), 0);
  EXPECT_EQ(storage_bytes(PRECISION_INT4_AWQ, 5), 3);
  EXPECT_EQ(storage_bytes(PRECISION_TF32, 5), 20);
  EXPECT_EQ(storage_bytes(PRECISION_FP64, int64_t{1} << 40), int64_t{1} << 43);
  EXPECT_EQ(storage_bytes(PRECISION_DEFAULT, 5), 0);
}

}  // namespace
}  // namespace deepgemm::base
