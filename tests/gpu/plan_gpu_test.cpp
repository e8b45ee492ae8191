// Plans that run on a GPU: right results at every shape, refusals instead of faults.
#include <cmath>
#include <cstring>
#include <random>

#include "base/formats.hpp"
#include "plan_fixture.hpp"

namespace deepgemm::gpu_test {
namespace {

class GpuPlan : public GpuPlans {};

TEST_F(GpuPlan, KeepTheirBoundsAtRaggedShapesInEveryFormat) {
  const char* const formats[] = {"a=fp64", "a=fp32",        "a=fp32 rel=0.001",  "a=tf32",
                                 "a=fp16", "a=bf16",        "a=fp8_e4m3",        "a=fp8_e5m2",
                                 "a=int8", "a=bf16 b=int8", "a=fp16 b=fp8_e4m3", "a=bf16 c=fp32"};
  const int shapes[][3] = {{1, 64, 64},   {1, 127, 129},  {7, 17, 63},    {17, 129, 65},
                           {64, 64, 128}, {65, 127, 129}, {129, 63, 200}, {3, 1, 1}};
  for (const char* format : formats) {
    for (const auto& [m, n, k] : shapes) {
      Product product(fmt::format("nt m={} n={} k={} {}", m, n, k, format));
      product.expect_verified();
    }
  }
}

TEST_F(GpuPlan, ReadEveryTransposeLayoutAndEpilogue) {
  for (const char* operation : {"nn", "nt", "tn", "tt"}) {
    for (const char* rest :
         {"a=bf16", "a=fp32", "a=bf16 la=col lb=col", "a=fp16 la=blocked16 lb=blocked16",
          "a=bf16 alpha=0.5 beta=-1.5 bias act=gelu residual", "a=bf16 act=swiglu",
          "a=fp16 batch=3 beta=1", "a=fp32 act=silu bias batch=2", "a=bf16 lc=col",
          "a=bf16 seed=3 reliability=2", "a=bf16 batch=3 lb=row:*,0,0"}) {
      Product product(fmt::format("{} m=33 n=130 k=75 {}", operation, rest));
      product.expect_verified();
    }
  }
}

TEST_F(GpuPlan, TakeAnyStrideAndAddressOrNameTheRule) {
  for (const char* format : {"a=bf16", "a=fp32", "a=int8", "a=fp16"}) {
    for (const char* strides : {"", "la=row:0,131,1 lb=row:0,131,1", "la=row:0,1,70",
                                "lc=row:0,97,1", "la=row:0,260,2 lb=row:0,390,3"}) {
      const std::string line = fmt::format("nt m=66 n=96 k=130 {} {}", format, strides);
      Product(line).expect_verified();
      for (const size_t offset : {size_t{4}, size_t{8}}) Product(line, offset).expect_verified();
    }
  }
  Product one("nt m=1 n=64 k=64 a=bf16", 2);  // by one element
  one.expect_verified();
  Product odd("nt m=4 n=64 k=64 a=bf16", 1);
  EXPECT_TRUE(failed(odd.launch(), DEEPGEMM_ERROR_INVALID_ARGUMENT, "multiple of 2 bytes"));
}

TEST_F(GpuPlan, OfNothingLaunchNothingAndOfNoProductScaleC) {
  for (const char* size : {"m=0 n=64 k=64", "m=64 n=0 k=64"}) {
    Product product(fmt::format("nt {} a=bf16", size));
    EXPECT_TRUE(succeeded(product.launch()));
  }
  for (const char* rest : {"a=bf16", "a=fp32 beta=2", "a=fp16 bias"}) {
    Product product(fmt::format("nt m=5 n=33 k=0 {}", rest));
    product.expect_verified();
  }
  Product product("nt m=17 n=33 k=40 a=bf16 beta=1");
  const double zero = 0;
  product.args.alpha = &zero;
  product.args.A = nullptr;
  product.args.B = nullptr;
  product.expect_verified();
}

TEST_F(GpuPlan, NeverReadCWhenBetaIsZero) {
  for (const char* rest : {"m=17 n=33 k=40 a=bf16", "m=4 n=64 k=8192 a=bf16", "m=9 n=65 k=0 a=fp32",
                           "m=64 n=64 k=4096 a=fp16"}) {
    Product product(fmt::format("nt {}", rest));  // C is NaN
    product.expect_verified();
  }
}

TEST_F(GpuPlan, ServeFewerRowsThanPlanned) {
  Product product("nt m=64 n=96 k=128 a=bf16");
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{63}, int64_t{64}}) {
    product.args.actual_m = &rows;
    product.expect_verified();
  }
}

TEST_F(GpuPlan, RefuseWhatAGpuCannotReach) {
  Product product("nt m=8 n=64 k=64 a=fp32");
  std::vector<float> host(8 * 64);
  product.args.A = host.data();
  EXPECT_TRUE(failed(product.launch(), DEEPGEMM_ERROR_INVALID_ARGUMENT, "A ("));
  product.args.A = product.c.data();
  EXPECT_TRUE(failed(product.launch(), DEEPGEMM_ERROR_INVALID_ARGUMENT, "overlaps"));
  product.args.A = product.a.data();
  product.expect_verified();  // the context lives
}

TEST_F(GpuPlan, ReadPinnedMemory) {
  Product product("nt m=8 n=64 k=64 a=fp32");
  void* pinned = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc_purpose(&pinned, 8 * 64 * 4, "pinned activation")));
  const auto values = api_test::random_elements(PRECISION_FP32, 8 * 64, 9);
  std::memcpy(pinned, values.data(), values.size());  // the host reaches it
  product.args.A = pinned;
  product.expect_verified();
  EXPECT_TRUE(succeeded(deepgemm_free(pinned)));
}

TEST_F(GpuPlan, ObeyTheTilingOrSayWhatIsLegal) {
  Product product("nt m=256 n=256 k=256 a=bf16 tile=64x128x32");
  product.expect_verified();
  deepgemm_plan_info_t info = {};
  ASSERT_TRUE(succeeded(deepgemm_get_plan_info(&product.plan->plan, &info)));
  EXPECT_EQ(info.tiling.block_m, 64);
  EXPECT_EQ(info.tiling.block_n, 128);
  gemm_intent_t intent = product.intent;
  intent.tiling_policy.block_m = 65;
  gemm_plan_t plan = {};
  EXPECT_TRUE(failed(deepgemm_create_plan(&plan, &intent, 256, 256, 256),
                     DEEPGEMM_ERROR_UNSUPPORTED, "block_m"));
}

TEST_F(GpuPlan, WithoutHopperInstructionsAndWithThemGiveTheSameContract) {
  for (const bool hopper : {false, true}) {
    ASSERT_TRUE(succeeded(deepgemm_enable_hopper_opt(hopper)));
    Product product("nt m=300 n=260 k=520 a=bf16");
    product.expect_verified();
    if (!hopper) {
      EXPECT_NE(product.family(), "sm90");
    }
  }
}

// S6: offsets beyond 2^31 elements.
TEST_F(GpuPlan, ReachTheLastRowsOfALargeResult) {
  constexpr int64_t kRows = 524289, kColumns = 4096, kDepth = 16;
  gemm_intent_t intent = {};
  intent.operation = GEMM_OP_NT;
  intent.numerical_contract.input_precision = PRECISION_BF16;
  intent.device = "cuda:0";
  PlanOwner owner(intent, kRows, kColumns, kDepth);
  DeviceArray a(api_test::random_elements(PRECISION_BF16, kRows * kDepth, 1));
  DeviceArray b(api_test::random_elements(PRECISION_BF16, kColumns * kDepth, 2));
  void* c = nullptr;
  ASSERT_TRUE(succeeded(deepgemm_malloc(&c, kRows * kColumns * 2)));
  ASSERT_TRUE(succeeded(deepgemm_launch_plan(&owner.plan, a.data(), b.data(), c)));
  // The same rows by a plan of their own.
  constexpr int64_t kTail = 65;
  PlanOwner tail(intent, kTail, kColumns, kDepth);
  DeviceArray expected(static_cast<size_t>(kTail * kColumns * 2));
  ASSERT_TRUE(succeeded(deepgemm_launch_plan(&tail.plan, a.data() + (kRows - kTail) * kDepth * 2,
                                             b.data(), expected.data())));
  std::vector<uint8_t> last(static_cast<size_t>(kTail * kColumns * 2));
  ASSERT_TRUE(succeeded(deepgemm_copy(
      last.data(), static_cast<uint8_t*>(c) + (kRows - kTail) * kColumns * 2, last.size())));
  const std::vector<uint8_t> wanted = expected.download();
  for (size_t i = 0; i < last.size() / 2; ++i) {
    const double got = base::decode(PRECISION_BF16, last.data(), static_cast<int64_t>(i));
    const double want = base::decode(PRECISION_BF16, wanted.data(), static_cast<int64_t>(i));
    ASSERT_NEAR(got, want, 0.01 * std::abs(want) + 1e-3) << i;
  }
  EXPECT_TRUE(succeeded(deepgemm_free(c)));
}

// S11
TEST_F(GpuPlan, AreRightAtTheEdgesOfBuckets) {
  for (const int m : {127, 128, 129, 255, 256, 257}) {
    Product(fmt::format("nt m={} n=192 k=320 a=bf16", m)).expect_verified();
    Product(fmt::format("nt m={} n=64 k=2048 a=fp16", m)).expect_verified();
  }
}

// S2: shapes between those of models, batches of any number.
TEST_F(GpuPlan, AreRightAtEveryWidth) {
  for (int n = 64; n <= 1536; n += 32) {
    for (const int batch : {1, 3, 16}) {
      Product(
          fmt::format("nt m={} n={} k={} batch={} a=bf16", n % 7 * 20 + 1, n, n % 5 * 48, batch))
          .expect_verified();
    }
  }
}

TEST_F(GpuPlan, AreRightAtRandomShapes) {
  std::mt19937 random(20261201);
  const char* const formats[] = {"bf16", "fp16", "fp32", "fp8_e4m3", "int8"};
  for (int round = 0; round < 60; ++round) {
    const auto size = [&](int most) { return 1 + static_cast<int>(random() % most); };
    const char* const operations[] = {"nn", "nt", "tn", "tt"};
    Product(fmt::format("{} m={} n={} k={} a={}", operations[random() % 4], size(300), size(300),
                        size(700), formats[random() % 5]))
        .expect_verified();
  }
}

}  // namespace
}  // namespace deepgemm::gpu_test
