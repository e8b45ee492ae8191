// What the tests of the public interface share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "deepgemm/deepgemm.h"

namespace deepgemm::api_test {

// Success, or a failure that shows the sentence.
testing::AssertionResult succeeded(deepgemm_status_t status);
// The status expected, with `part` in the sentence.
testing::AssertionResult failed(deepgemm_status_t status, deepgemm_status_t expected,
                                const std::string& part);

// `count` values in -1 ... 1 (all 8-bit codes but the NaN of FP8) stored as `precision`.
std::vector<uint8_t> random_elements(gemm_precision_t precision, int64_t count, uint64_t seed);
// Positive scales in 0.5 ... 1.5.
std::vector<float> random_scales(int64_t count, uint64_t seed);

// How often C++ code of this program, the library included, took memory from the heap.
int64_t heap_allocations();

gemm_intent_t fp32_intent(gemm_operation_t operation);

// Destroys on the way out.
struct PlanOwner {
  PlanOwner() = default;
  PlanOwner(const gemm_intent_t& intent, int64_t m, int64_t n, int64_t k);
  PlanOwner(const PlanOwner&) = delete;
  PlanOwner& operator=(const PlanOwner&) = delete;
  ~PlanOwner();

  gemm_plan_t plan = {};
};

struct PackedOwner {
  // Packs a dense [n][k] matrix.
  PackedOwner(const gemm_plan_t& plan, std::vector<uint8_t>& weights, gemm_precision_t precision,
              int64_t k, int64_t n);
  PackedOwner(const PackedOwner&) = delete;
  PackedOwner& operator=(const PackedOwner&) = delete;
  ~PackedOwner();

  deepgemm_packed_weights_t* packed = nullptr;
};

std::string explain(const gemm_plan_t& plan, deepgemm_explain_format_t format);

// Launches and expects that contract and bound are kept.
void expect_verified(const gemm_plan_t& plan, const gemm_launch_args_t& args);

}  // namespace deepgemm::api_test
