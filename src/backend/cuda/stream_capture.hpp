// Streams that are being captured into a graph.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/cuda/driver.hpp"

namespace deepgemm::cuda {

// While it lives, calls of this thread that allocate, load or free do not break captures that run
// elsewhere in the process (cuThreadExchangeStreamCaptureMode with mode "relaxed"). Destroy on the
// same thread, in reverse order.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { driver_.exchange_capture_mode(&mode_); }

 private:
  const Driver& driver_;
  int mode_ = kCaptureRelaxed;  // of the thread before, once exchanged
};

// Is the stream captured? Never disturbs the capture. Under a guard of the stream's device.
// INVALID_ARGUMENT when the capture is broken already, or when the default stream cannot be used
// because another one is captured; DEVICE for an earlier fault.
base::Result<bool> is_capturing(const Driver& driver, CuStream stream);

// The graph that a stream is captured into; null when it is not captured, or when the driver does
// not tell (it answers CUDA_ERROR_LOSSY_QUERY where the last launch was a programmatic dependent
// one). Errors as above.
base::Result<CuGraph> captured_graph(const Driver& driver, CuStream stream);

// Counts the graphs that something must outlive. Any thread; a graph may outlive the object, at the
// end of a process.
class GraphUses {
 public:
  int count() const { return count_->load(std::memory_order_acquire); }
  // Counts a graph, until the graph and all made from it are destroyed; null: for good. `what` is
  // for the message.
  base::Result<void> keep(const Driver& driver, CuGraph graph, const std::string& what) const;

 private:
  std::shared_ptr<std::atomic<int>> count_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace deepgemm::cuda
