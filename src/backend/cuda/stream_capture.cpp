#include "backend/cuda/stream_capture.hpp"

namespace deepgemm::cuda {
namespace {

constexpr const char* kAction = "Looking at the stream";

base::Result<bool> is_active(const Driver& driver, int status) {
  if (status == kCaptureBroken) return driver_error(driver, CuResult::kCaptureInvalidated, kAction);
  return status == kCaptureActive;
}

using Count = std::shared_ptr<std::atomic<int>>;

// Called by the driver, on a thread of its own, where no call of the driver is allowed.
void forget_graph(void* data) {
  const std::unique_ptr<Count> count(static_cast<Count*>(data));
  count->get()->fetch_sub(1, std::memory_order_release);
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

base::Result<void> GraphUses::keep(const Driver& driver, CuGraph graph,
                                   const std::string& what) const {
  count_->fetch_add(1, std::memory_order_relaxed);
  if (graph == nullptr) return {};
  auto data = std::make_unique<Count>(count_);
  CuUserObject object = nullptr;
  CuResult result =
      driver.user_object_create(&object, data.get(), forget_graph, 1, kUserObjectNoSync);
  if (result == CuResult::kSuccess) {
    data.release();  // NOLINT: the object has it now
    result = driver.graph_retain_object(graph, object, 1, kGraphObjectMove);
    if (result == CuResult::kSuccess) return {};
    driver.user_object_release(object, 1);  // counts down
  } else {
    count_->fetch_sub(1, std::memory_order_relaxed);
  }
  return driver_error(driver, result, fmt::format("Keeping {} for a graph", what));
}

}  // namespace deepgemm::cuda
