#include "support.hpp"

#include <random>

#include "base/formats.hpp"

namespace deepgemm::api_test {

testing::AssertionResult succeeded(deepgemm_status_t status) {
  if (status == DEEPGEMM_SUCCESS) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << deepgemm_status_string(status) << ": " << deepgemm_last_error();
}

testing::AssertionResult failed(deepgemm_status_t status, deepgemm_status_t expected,
                                const std::string& part) {
  const std::string sentence = deepgemm_last_error();
  if (status == expected && sentence.find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "status " << deepgemm_status_string(status) << ", expected "
         << deepgemm_status_string(expected) << " with '" << part << "' in: " << sentence;
}

std::vector<uint8_t> random_elements(gemm_precision_t precision, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const double scale = precision == PRECISION_INT8 ? 127 : 1;
  std::vector<uint8_t> bytes(static_cast<size_t>(base::storage_bytes(precision, count)));
  for (int64_t i = 0; i < count; ++i) {
    base::encode(precision, bytes.data(), i, scale * uniform(random));
  }
  return bytes;
}

std::vector<float> random_scales(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  std::vector<float> scales(static_cast<size_t>(count));
  for (float& scale : scales) scale = uniform(random);
  return scales;
}

gemm_intent_t fp32_intent(gemm_operation_t operation) {
  gemm_intent_t intent = {};
  intent.operation = operation;
  intent.numerical_contract.input_precision = PRECISION_FP32;
  intent.device = "cpu";
  return intent;
}

PlanOwner::PlanOwner(const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k) {
  EXPECT_TRUE(succeeded(deepgemm_create_plan(&plan, &intent, m, n, k)));
}

PlanOwner::~PlanOwner() { EXPECT_TRUE(succeeded(deepgemm_destroy_plan(&plan))); }

PackedOwner::PackedOwner(const gemm_plan_t& plan, std::vector<uint8_t>& weights,
                         gemm_precision_t precision, int64_t k, int64_t n) {
  deepgemm_weight_tensors_t tensors = {};
  tensors.format = WEIGHT_FORMAT_DENSE;
  tensors.precision = precision;
  tensors.in_features = k;
  tensors.out_features = n;
  tensors.weight = weights.data();
  tensors.weight_bytes = static_cast<int64_t>(weights.size());
  EXPECT_TRUE(succeeded(deepgemm_pack_weights(&packed, &plan, &tensors)));
}

PackedOwner::~PackedOwner() { EXPECT_TRUE(succeeded(deepgemm_destroy_packed_weights(&packed))); }

std::string explain(const gemm_plan_t& plan, deepgemm_explain_format_t format) {
  size_t needed = 0;
  EXPECT_EQ(deepgemm_explain_plan(&plan, format, nullptr, 0, &needed),
            DEEPGEMM_ERROR_BUFFER_TOO_SMALL);
  std::string text(needed, '\0');
  EXPECT_TRUE(succeeded(deepgemm_explain_plan(&plan, format, text.data(), text.size(), nullptr)));
  if (!text.empty()) text.pop_back();  // the closing zero
  return text;
}

void expect_verified(const gemm_plan_t& plan, const gemm_launch_args_t& args) {
  deepgemm_verification_t result = {};
  ASSERT_TRUE(succeeded(deepgemm_verify_plan(&plan, &args, &result)));
  EXPECT_TRUE(result.contract_kept)
      << result.outside << " of " << result.elements << " elements outside, worst at row "
      << result.worst_row << ", column " << result.worst_column;
  EXPECT_TRUE(result.bound_kept) << result.max_relative_error << " against a bound of "
                                 << result.bound_relative;
  EXPECT_EQ(result.nonfinite, 0);
  EXPECT_EQ(result.damaged_rows, 0);
}

}  // namespace deepgemm::api_test
