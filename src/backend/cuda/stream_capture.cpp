#include "backend/cuda/stream_capture.hpp"

namespace deepgemm::cuda {
namespace {

constexpr const char* kAction = "Looking at the stream";

base::Result<bool> is_active(const Driver& driver, int status) {
  if (status == kCaptureBroken) return driver_error(driver, CuResult::kCaptureInvalidated, kAction);
  return status == kCaptureActive;
}

}  // namespace

base::Result<bool> is_capturing(const Driver& driver, CuStream stream) {
  int status = kCaptureNone;
  const CuResult result = driver.stream_is_capturing(stream, &status);
  if (result == CuResult::kInvalidHandle || result == CuResult::kContextDestroyed) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "stream ({}) is no stream of this process's CUDA context, or has been "
                            "destroyed. Give a live stream, or null for the default stream.",
                            static_cast<const void*>(stream));
  }
  DEEPGEMM_CUDA_TRY(driver, result, kAction);
  return is_active(driver, status);
}

base::Result<CuGraph> captured_graph(const Driver& driver, CuStream stream) {
  int status = kCaptureNone;
  uint64_t id = 0;
  CuGraph graph = nullptr;
  const CuResult result =
      driver.stream_capture_info(stream, &status, &id, &graph, nullptr, nullptr);
  if (result == CuResult::kLossyQuery) return CuGraph{};
  DEEPGEMM_CUDA_TRY(driver, result, kAction);
  DEEPGEMM_TRY_ASSIGN(active, is_active(driver, status));
  return active ? graph : nullptr;
}

}  // namespace deepgemm::cuda
