// Arithmetic where it is known to go wrong elsewhere.
#include <cmath>

#include "base/formats.hpp"
#include "plan_fixture.hpp"

namespace deepgemm::gpu_test {
namespace {

using Values = std::vector<double>;

std::vector<uint8_t> encoded(gemm_precision_t precision, const Values& values) {
  std::vector<uint8_t> bytes(
      static_cast<size_t>(base::storage_bytes(precision, static_cast<int64_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) {
    base::encode(precision, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

class GpuNumerics : public GpuPlans {};

// N6: FP8 sums of long K keep about 14 bits between promotions.
TEST_F(GpuNumerics, TinyFp8ValuesBesideALargeOneCount) {
  constexpr int kK = 16384;
  Product product(fmt::format("nt m=16 n=64 k={} a=fp8_e4m3 dequant=tensor c=fp32", kK));
  Values a(16 * kK, 1.0 / 64), b(64 * kK, 1.0);
  for (int i = 0; i < 16; ++i) a[static_cast<size_t>(i * kK)] = 448;
  product.a.upload(encoded(PRECISION_FP8_E4M3, a));
  product.b.upload(encoded(PRECISION_FP8_E4M3, b));
  product.args.scale_a = nullptr;
  product.args.scale_b = nullptr;
  product.expect_verified();
}

// N7: the second half of K nearly cancels the first.
TEST_F(GpuNumerics, PartialSumsAreNotRounded) {
  constexpr int kM = 16, kN = 256, kK = 8192;
  for (const char* tile : {"tile=64x64x64 warp=32x32x64", "tile=32x64x64 warp=16x32x64",
                           "tile=64x128x32 warp=32x64x32"}) {
    Product product(fmt::format("nt m={} n={} k={} a=bf16 c=fp32 {}", kM, kN, kK, tile));
    Values a(kM * kK), b(kN * kK);
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = i % kK < kK / 2 ? 1 + static_cast<double>(i % 7) / 8
                             : -1 - static_cast<double>(i % 7) / 8;
    }
    for (size_t i = 0; i < b.size(); ++i) b[i] = 1 + static_cast<double>(i % 3) / 128;
    product.a.upload(encoded(PRECISION_BF16, a));
    product.b.upload(encoded(PRECISION_BF16, b));
    product.expect_verified();
  }
}

// N10: sums beyond FP16 whose final value is finite, and one that is not.
TEST_F(GpuNumerics, OnlyAFinalValueBeyondFp16IsInfinite) {
  constexpr int kK = 512;
  for (const int m : {1, 40}) {
    Product product(fmt::format("nt m={} n=64 k={} a=fp16", m, kK));
    Values a(static_cast<size_t>(m * kK)), b(64 * kK, 16);
    for (size_t i = 0; i < a.size(); ++i) a[i] = i % kK < kK / 2 ? 1000 : -999.5;
    product.a.upload(encoded(PRECISION_FP16, a));
    product.b.upload(encoded(PRECISION_FP16, b));
    ASSERT_TRUE(succeeded(product.launch()));
    const auto finite = product.c.download();
    EXPECT_EQ(base::decode(PRECISION_FP16, finite.data(), 0), kK / 2 * 0.5 * 16);
    for (double& value : a) value = 1000;
    product.a.upload(encoded(PRECISION_FP16, a));
    ASSERT_TRUE(succeeded(product.launch()));
    const auto infinite = product.c.download();
    EXPECT_TRUE(std::isinf(base::decode(PRECISION_FP16, infinite.data(), 0)));
  }
}

// N2, N3: zeros stay zeros under any scale, and NaN in one row stays there.
TEST_F(GpuNumerics, RowsDoNotReachEachOther) {
  constexpr int kM = 33, kN = 96, kK = 256;
  for (const char* format : {"a=bf16", "a=fp8_e4m3", "a=fp32", "a=fp32 rel=0.001"}) {
    Product product(fmt::format("nt m={} n={} k={} {} c=fp32", kM, kN, kK, format));
    const gemm_precision_t precision = product.intent.numerical_contract.input_precision;
    Values a(kM * kK, 0.5), b(kN * kK, 1);
    for (int k = 0; k < kK; ++k) a[static_cast<size_t>(5 * kK + k)] = 0;
    for (int k = 0; k < kK; ++k) a[static_cast<size_t>(6 * kK + k)] = NAN;
    product.a.upload(encoded(precision, a));
    product.b.upload(encoded(precision, b));
    product.args.scale_a = nullptr;
    product.args.scale_b = nullptr;
    ASSERT_TRUE(succeeded(product.launch()));
    const auto c = product.c.download();
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) {
        const double value = base::decode(PRECISION_FP32, c.data(), i * kN + j);
        if (i == 6) {
          ASSERT_TRUE(std::isnan(value)) << format << " " << j;
        } else {
          ASSERT_EQ(value, i == 5 ? 0 : kK * 0.5) << format << " " << i << " " << j;
        }
      }
    }
  }
}

// CON1: stricter contracts are kept by other arithmetic, and explained.
TEST_F(GpuNumerics, TightContractsGetExactPathsAndLooseOnesFastPaths) {
  Product loose("nt m=256 n=256 k=512 a=fp32 rel=0.001");
  EXPECT_EQ(loose.path(), "tf32");
  loose.expect_verified();
  Product native("nt m=256 n=256 k=512 a=fp32");
  EXPECT_NE(native.path(), "tf32");
  native.expect_verified();
  Product tight("nt m=64 n=64 k=512 a=fp32 c=fp64 rel=1e-12 basis=worst");
  EXPECT_EQ(tight.path(), "fp32_acc64");
  tight.expect_verified();
}

}  // namespace
}  // namespace deepgemm::gpu_test
