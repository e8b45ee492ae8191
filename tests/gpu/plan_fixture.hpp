// Plans on a GPU as their users make them, for tests: through the C interface.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/stream.hpp"
#include "deepgemm/deepgemm.h"
#include "support.hpp"

namespace deepgemm::gpu_test {

using api_test::failed;
using api_test::PlanOwner;
using api_test::succeeded;

// Memory of the GPU with guard zones of NaN around it, filled with NaN.
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t bytes, size_t offset = 0);
  explicit DeviceArray(const std::vector<uint8_t>& content, size_t offset = 0);
  explicit DeviceArray(const std::vector<float>& content);
  ~DeviceArray();
  DeviceArray(DeviceArray&& other) noexcept;
  DeviceArray& operator=(DeviceArray&& other) noexcept;

  // `offset` bytes beyond the 256 that allocations are aligned to.
  uint8_t* data() const { return memory_ + kGuard + offset_; }
  float* floats() const { return reinterpret_cast<float*>(data()); }
  std::vector<uint8_t> download() const;
  void upload(const std::vector<uint8_t>& content);
  bool guards_intact() const;

 private:
  static constexpr size_t kGuard = 4096;
  uint8_t* memory_ = nullptr;
  size_t bytes_ = 0;
  size_t offset_ = 0;
};

// A problem's line, its operands on the GPU, and its plan.
struct Product {
  // The intent of a canonical line (docs/canonical_line.md), on cuda:0. Operands are random; C is
  // NaN. `offset` bytes beyond alignment for A, B and C.
  explicit Product(const std::string& line, size_t offset = 0);

  // Launches with the plan's bound checked against FP64, and the guard zones of all operands.
  void expect_verified();
  deepgemm_status_t launch();
  std::string family() const;
  std::string path() const;

  std::string line;
  gemm_intent_t intent = {};
  int64_t m = 0, n = 0, k = 0;
  std::unique_ptr<PlanOwner> plan;
  DeviceArray a, b, c, bias, residual, scale_a, scale_b;
  gemm_launch_args_t args = {};

 private:
  void make_operands(size_t offset);
};

// Skips when there is no GPU or no compiler for it.
class GpuPlans : public testing::Test {
 protected:
  void SetUp() override;
  // Streams of the tests, which do not wait for the default stream.
  cuda::Stream& stream(size_t index);
  void synchronize(size_t index) { ASSERT_TRUE(stream(index).synchronize().ok()); }

 private:
  std::vector<std::unique_ptr<cuda::Stream>> streams_;
};

}  // namespace deepgemm::gpu_test
