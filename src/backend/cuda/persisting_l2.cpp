#include "backend/cuda/persisting_l2.hpp"

#include <algorithm>

namespace deepgemm::cuda {

base::Result<size_t> set_persisting_l2(Device& device, size_t bytes) {
  const size_t most = static_cast<size_t>(device.facts().persisting_l2_bytes);
  if (most == 0) return size_t{0};
  DEEPGEMM_ENTER_DEVICE(device);
  const Driver& driver = device.driver();
  const std::string action = "Setting aside L2 of " + device.name();
  size_t granted = 0;
  CuResult result = driver.context_get_limit(&granted, kLimitPersistingL2);
  if (result == CuResult::kSuccess && granted < std::min(bytes, most)) {
    result = driver.context_set_limit(kLimitPersistingL2, std::min(bytes, most));
    if (result == CuResult::kSuccess) {
      result = driver.context_get_limit(&granted, kLimitPersistingL2);
    }
  }
  if (result_kind(result) == ResultKind::kUnsupported) return size_t{0};
  DEEPGEMM_CUDA_TRY(driver, result, action);
  return granted;
}

CuAccessWindow persisting_window(const DeviceFacts& facts, const void* base, size_t bytes,
                                 size_t granted) {
  CuAccessWindow window = {};
  window.base = const_cast<void*>(base);  // NOLINT: the driver's type
  window.bytes = std::min(bytes, static_cast<size_t>(facts.access_window_bytes));
  if (granted == 0 || window.bytes == 0) return {};
  window.hit_ratio = static_cast<float>(
      std::min(1.0, static_cast<double>(granted) / static_cast<double>(window.bytes)));
  window.hit = kAccessPersisting;
  window.miss = kAccessStreaming;
  return window;
}

}  // namespace deepgemm::cuda
