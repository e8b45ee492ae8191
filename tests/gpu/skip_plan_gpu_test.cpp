// Plans on a GPU that leave out blocks of K: no result beyond the certificate, and none that
// depends on anything but the operands.
#include <cmath>
#include <functional>
#include <random>

#include "base/formats.hpp"
#include "intent/problem.hpp"
#include "plan_fixture.hpp"
#include "runtime/plan_handle.hpp"

namespace deepgemm::gpu_test {
namespace {

// (row of A or column of op(B), k)
using Element = std::function<double(int64_t vector, int64_t k)>;

void fill(const intent::Operand& operand, bool k_is_row, const Element& element,
          DeviceArray& array) {
  const layout::MatrixLayout& layout = operand.layout;
  std::vector<uint8_t> content = array.download();
  for (int64_t batch = 0; batch < layout.batch; ++batch) {
    for (int64_t row = 0; row < layout.rows; ++row) {
      for (int64_t column = 0; column < layout.cols; ++column) {
        base::encode(operand.precision, content.data(),
                     layout::element_offset(layout, batch, row, column),
                     k_is_row ? element(column, row) : element(row, column));
      }
    }
  }
  array.upload(content);
}

class SkippingProduct : public Product {
 public:
  explicit SkippingProduct(const std::string& text) : Product(text) {}

  void fill_a(const Element& element) { fill(problem().a, line.starts_with("t"), element, a); }
  void fill_b(const Element& element) { fill(problem().b, line[1] == 'n', element, b); }
  bool skips() const {
    return api_test::explain(plan->plan, DEEPGEMM_EXPLAIN_TEXT).find("leaves out blocks") !=
           std::string::npos;
  }

 private:
  const intent::Problem& problem() const { return plan->plan.handle->data().problem(); }
};

class GpuSkipping : public GpuPlans {};

double random_value(int64_t vector, int64_t k, unsigned seed) {
  std::minstd_rand random(static_cast<unsigned>(vector * 104729 + k * 31 + 1) ^ seed);
  random.discard(2);
  return static_cast<double>(random() % 2001) / 1000 - 1;
}

// Granules of K of every size, some of zeros.
double structured(int64_t vector, int64_t k, unsigned seed) {
  const int64_t granule = k / 128;
  if (granule % 4 == static_cast<int64_t>(seed % 4)) return 0;
  return random_value(vector, k, seed) * std::ldexp(1.0, -static_cast<int>(granule * 5 % 13));
}

constexpr const char* kFormats[] = {
    "a=bf16 rel=0.05 skip=0.5",
    "a=fp16 c=fp32 rel=0.01 skip=1",
    "a=fp32 rel=0.01 skip=0.5",
    "a=fp32 rel=1e-4 skip=0.9",
    "a=fp32 abs=1 skip=0.5 alpha=-0.5",
    "a=bf16 rel=0.05 skip=0.5 alpha=0.5 beta=-1.5 bias act=gelu residual",
    "a=bf16 rel=0.1 skip=0.5 act=swiglu",
    "a=bf16 rel=0.05 skip=0.5 batch=2 beta=1",
    "a=bf16 rel=0.05 skip=0.5 batch=3 lb=row:*,0,0",
    "a=fp16 rel=0.05 skip=0.5 la=blocked16 lb=blocked16",
    "a=bf16 rel=0.05 skip=0.5 la=col lb=col lc=col",
    "a=bf16 b=int8 rel=0.05 skip=0.5",
    "a=bf16 rel=0.05 skip=0.5 tile=32x64x64 warp=16x32x64"};

TEST_F(GpuSkipping, KeepsItsCertificateInEveryFormLayoutAndTranspose) {
  for (const char* format : kFormats) {
    for (const char* operation : {"nn", "nt", "tn", "tt"}) {
      SkippingProduct product(fmt::format("{} m=270 n=130 k=1100 {}", operation, format));
      EXPECT_TRUE(product.skips()) << product.line;
      product.expect_verified();  // random
      const bool integers = std::string(format).find("int8") != std::string::npos;
      product.fill_a([](int64_t i, int64_t k) { return structured(i, k, 1); });
      product.fill_b([&](int64_t j, int64_t k) {
        return integers ? std::round(100 * random_value(j, k, 2)) : structured(j, k, 2);
      });
      product.expect_verified();
      // Rows of different size, one that lives on a tiny granule, values that hardly meet.
      product.fill_a([](int64_t i, int64_t k) {
        if (i == 200) return k / 128 == 3 ? 0x1p-10 : 0;
        const double value = random_value(i, k, 3) * std::ldexp(1.0, static_cast<int>(i % 7) - 3);
        return k / 128 == 3 ? value * 0x1p-10 : k % 3 == 0 ? value : value * 0x1p-8;
      });
      product.expect_verified();
    }
  }
}

TEST_F(GpuSkipping, ChangesNoBitWhereAllThatIsLeftOutIsZero) {
  for (const char* format : {"a=bf16 rel=0.05", "a=fp16 c=fp32 rel=0.01", "a=fp32 rel=0.01"}) {
    const std::string line =
        fmt::format("nt m=300 n=200 k=2000 {} tile=64x64x64 warp=32x32x64", format);
    SkippingProduct whole(line), product(line + " skip=1e-9");
    ASSERT_TRUE(product.skips() && !whole.skips());
    for (SkippingProduct* each : {&whole, &product}) {
      each->fill_a(
          [](int64_t i, int64_t k) { return k / 128 % 3 == 0 ? 0 : random_value(i, k, 1); });
      each->fill_b(
          [](int64_t j, int64_t k) { return k / 128 % 5 == 1 ? 0 : random_value(j, k, 2); });
      ASSERT_TRUE(succeeded(each->launch()));
    }
    EXPECT_EQ(product.c.download(), whole.c.download()) << line;
  }
}

TEST_F(GpuSkipping, GivesTheSameBitsInEveryLaunch) {
  for (const char* line : {"nt m=700 n=600 k=3000 a=bf16 rel=0.05 skip=0.5",
                           "nt m=256 n=64 k=4096 a=bf16 rel=0.05 skip=0.5 tile=32x64x64 "
                           "warp=16x32x64",
                           "nn m=300 n=500 k=1000 a=fp32 rel=0.01 skip=0.5"}) {
    SkippingProduct product(line);
    product.fill_a([](int64_t i, int64_t k) { return structured(i, k, 1); });
    product.expect_verified();
    const std::vector<uint8_t> first = product.c.download();
    for (int round = 0; round < 20; ++round) {
      product.c.upload(std::vector<uint8_t>(first.size(), 0xFF));
      ASSERT_TRUE(succeeded(product.launch()));
      ASSERT_EQ(product.c.download(), first) << line;
    }
  }
}

TEST_F(GpuSkipping, LetsNoSpecialValueDisappear) {
  constexpr int64_t kM = 260, kN = 130, kK = 1000, kRow = 131, kAt = 555;
  for (const double special : {std::nan(""), HUGE_VAL}) {
    SkippingProduct product(
        fmt::format("nt m={} n={} k={} a=bf16 c=fp32 rel=0.05 skip=1", kM, kN, kK));
    product.fill_a([&](int64_t i, int64_t k) {
      if (i == kRow && k == kAt) return special;
      return k / 128 == kAt / 128 ? 0 : random_value(i, k, 1);
    });
    product.fill_b([](int64_t j, int64_t k) { return k == kAt ? 1 : random_value(j, k, 2); });
    ASSERT_TRUE(succeeded(product.launch()));
    const auto c = product.c.download();
    for (int64_t i = 0; i < kM; ++i) {
      for (int64_t j = 0; j < kN; ++j) {
        const double value = base::decode(PRECISION_FP32, c.data(), i * kN + j);
        ASSERT_EQ(std::isfinite(value), i != kRow) << i << " " << j;
      }
    }
  }
}

TEST_F(GpuSkipping, ServesFewerRowsThanPlannedAndNoProduct) {
  SkippingProduct product("nt m=600 n=96 k=1024 a=bf16 rel=0.05 skip=0.5 beta=1");
  product.fill_a([](int64_t i, int64_t k) { return structured(i, k, 1); });
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256}, int64_t{599}}) {
    product.args.actual_m = &rows;
    product.expect_verified();
  }
  const double zero = 0;
  product.args.actual_m = nullptr;
  product.args.alpha = &zero;
  product.args.A = nullptr;
  product.args.B = nullptr;
  product.expect_verified();
}

TEST_F(GpuSkipping, KeepsItsCertificateAtRandomShapes) {
  std::mt19937 random(20261202);
  const char* const operations[] = {"nn", "nt", "tn", "tt"};
  const char* const formats[] = {"a=bf16 rel=0.05", "a=fp16 rel=0.05", "a=fp32 rel=0.005"};
  for (int round = 0; round < 40; ++round) {
    SkippingProduct product(fmt::format("{} m={} n={} k={} {} skip=0.8", operations[random() % 4],
                                        256 + random() % 300, 1 + random() % 300,
                                        1 + random() % 3000, formats[random() % 3]));
    product.fill_a([&](int64_t i, int64_t k) { return structured(i, k, 4 + round % 4); });
    product.expect_verified();
  }
}

}  // namespace
}  // namespace deepgemm::gpu_test
