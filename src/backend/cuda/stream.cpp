#include "backend/cuda/stream.hpp"

namespace deepgemm::cuda {
namespace {

std::string on(const char* action, const Device& device) {
  return fmt::format("{} on {}", action, device.name());
}

// Waiting sees faults of everything that was launched before.
base::Result<void> waited(const Device& device, CuResult result, const char* action) {
  if (result == CuResult::kSuccess) return {};
  return driver_error(device.driver(), result, on(action, device), FaultTime::kDuring);
}

}  // namespace

base::Result<void> check_stream(Device& device, CuStream stream) {
  if (stream == nullptr) return {};
  DEEPGEMM_ENTER_DEVICE(device);
  const Driver& driver = device.driver();
  CuContext context = nullptr;
  const CuResult result = driver.stream_context(stream, &context);
  if (result == CuResult::kSuccess && context == device.context()) return {};
  if (result != CuResult::kSuccess && result_kind(result) != ResultKind::kProgram) {
    return driver_error(driver, result, on("Looking at the stream", device));
  }
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                          "stream ({}) is no stream of {}, where the operands lie. Give a live "
                          "stream of that device's primary context, or null for the default "
                          "stream.",
                          static_cast<const void*>(stream), device.name());
}

base::Result<void> synchronize(Device& device, CuStream stream) {
  DEEPGEMM_ENTER_DEVICE(device);
  return waited(device, device.driver().stream_synchronize(stream), "Waiting for a stream");
}

base::Result<Stream> Stream::create(Device& device) {
  DEEPGEMM_ENTER_DEVICE(device);
  CuStream stream = nullptr;
  DEEPGEMM_CUDA_TRY(device.driver(), device.driver().stream_create(&stream, kStreamNonBlocking),
                    on("Making a stream", device));
  return Stream(Handle(device, stream));
}

base::Result<void> Stream::synchronize() const {
  return cuda::synchronize(*stream_.home().device, get());
}

base::Result<Event> Event::create(Device& device, Time time) {
  DEEPGEMM_ENTER_DEVICE(device);
  const unsigned flags = time == Time::kMeasured ? kEventDefault : kEventDisableTiming;
  CuEvent event = nullptr;
  DEEPGEMM_CUDA_TRY(device.driver(), device.driver().event_create(&event, flags),
                    on("Making an event", device));
  return Event(Handle(device, event));
}

base::Result<void> Event::record(CuStream stream) {
  Device& device = *event_.home().device;
  DEEPGEMM_ENTER_DEVICE(device);
  DEEPGEMM_CUDA_TRY(device.driver(), device.driver().event_record(get(), stream),
                    on("Recording an event", device));
  return {};
}

base::Result<void> Event::make_wait(CuStream stream) const {
  Device& device = *event_.home().device;
  DEEPGEMM_ENTER_DEVICE(device);
  DEEPGEMM_CUDA_TRY(device.driver(), device.driver().stream_wait_event(stream, get(), 0),
                    on("Ordering two streams", device));
  return {};
}

base::Result<void> Event::synchronize() const {
  Device& device = *event_.home().device;
  DEEPGEMM_ENTER_DEVICE(device);
  return waited(device, device.driver().event_synchronize(get()), "Waiting for an event");
}

base::Result<double> elapsed_ms(Device& device, const Event& start, const Event& end) {
  DEEPGEMM_ENTER_DEVICE(device);
  float milliseconds = 0;
  DEEPGEMM_TRY(waited(device, device.driver().event_elapsed(&milliseconds, start.get(), end.get()),
                      "Reading a time"));
  return double{milliseconds};
}

}  // namespace deepgemm::cuda
