// A row of C has the same bits alone and within any batch, in every precision.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/formats.hpp"
#include "support.hpp"

namespace deepgemm::api_test {
namespace {

struct Case {
  const char* name;
  gemm_precision_t input;
  gemm_precision_t output;
  bool packed;
  bool scaled;
};

class BatchInvariance : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kN = 72;
  static constexpr int64_t kK = 260;
  static constexpr int64_t kRows = 1024;

  void SetUp() override {
    const Case& c = GetParam();
    intent_.operation = GEMM_OP_NT;
    intent_.numerical_contract.input_precision = c.input;
    intent_.numerical_contract.output_precision = c.output;
    intent_.numerical_contract.reproducibility = REPRODUCIBILITY_BATCH_INVARIANT;
    intent_.device = "cpu";
    a_format_ = c.packed ? c.output : c.input;
    if (c.packed) intent_.numerical_contract.activation_precision = a_format_;
    a_ = random_elements(a_format_, kRows * kK, 1);
    b_ = random_elements(c.packed ? PRECISION_FP16 : c.input, kN * kK, 2);
    // Per row (INT8) or per row and 128 columns (FP8): one row's scales follow the other's.
    scales_per_row_ = c.input == PRECISION_INT8 ? 1 : 3;
    scale_a_ = random_scales(kRows * scales_per_row_, 3);
    scale_b_ = random_scales(kN * 3, 4);
  }

  // C of `rows` rows of A from `first` on.
  std::vector<uint8_t> product(const gemm_plan_t& plan, const void* b, int64_t first,
                               int64_t rows) const {
    const gemm_precision_t output = GetParam().output;
    std::vector<uint8_t> c(static_cast<size_t>(base::storage_bytes(output, rows * kN)), 0xFF);
    gemm_launch_args_t args = {};
    args.A = a_.data() + base::storage_bytes(a_format_, first * kK);
    args.B = b;
    args.C = c.data();
    if (GetParam().scaled) {
      args.scale_a = scale_a_.data() + first * scales_per_row_;
      args.scale_b = scale_b_.data();
    }
    args.actual_m = &rows;
    EXPECT_TRUE(succeeded(deepgemm_launch_plan_args(&plan, &args)));
    return c;
  }

  gemm_intent_t intent_ = {};
  gemm_precision_t a_format_ = PRECISION_DEFAULT;
  int64_t scales_per_row_ = 1;
  std::vector<uint8_t> a_, b_;
  std::vector<float> scale_a_, scale_b_;
};

TEST_P(BatchInvariance, RowsAloneAndInBatchesAreBitEqual) {
  const PlanOwner single(intent_, 1, kN, kK);
  std::unique_ptr<PackedOwner> packed;
  if (GetParam().packed) {
    packed = std::make_unique<PackedOwner>(single.plan, b_, PRECISION_FP16, kK, kN);
  }
  const void* const b = packed ? static_cast<const void*>(packed->packed) : b_.data();
  const size_t row_bytes = static_cast<size_t>(base::storage_bytes(GetParam().output, kN));
  std::vector<uint8_t> alone;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto c = product(single.plan, b, row, 1);
    alone.insert(alone.end(), c.begin(), c.end());
  }
  for (const int64_t m : {2, 3, 7, 16, 17, 64, 129, 1024}) {
    const PlanOwner owner(intent_, m, kN, kK);
    const auto c = product(owner.plan, b, 0, m);
    ASSERT_EQ(std::memcmp(c.data(), alone.data(), c.size()), 0) << "M = " << m;
    // The same rows at another place of the batch, and fewer rows than planned.
    const auto shifted = product(owner.plan, b, 1, m - 1);
    ASSERT_EQ(std::memcmp(shifted.data(), alone.data() + row_bytes, shifted.size()), 0)
        << "M = " << m << ", shifted";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, BatchInvariance,
    testing::Values(Case{"fp32", PRECISION_FP32, PRECISION_FP32, false, false},
                    Case{"bf16", PRECISION_BF16, PRECISION_BF16, false, false},
                    Case{"fp16", PRECISION_FP16, PRECISION_FP16, false, false},
                    Case{"int8", PRECISION_INT8, PRECISION_FP32, false, true},
                    Case{"w4a16", PRECISION_INT4_AWQ, PRECISION_FP16, true, false},
                    Case{"w4a16_bf16", PRECISION_INT4_AWQ, PRECISION_BF16, true, false},
                    Case{"fp8", PRECISION_FP8_E4M3, PRECISION_FP16, false, true}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace deepgemm::api_test
