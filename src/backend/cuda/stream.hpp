// Streams and events.
#pragma once

#include "backend/cuda/owned.hpp"

namespace deepgemm::cuda {

// Refuses a stream of another device: INVALID_ARGUMENT names both. The default stream belongs to
// every device.
base::Result<void> check_stream(Device& device, CuStream stream);

// Waits until all work of the stream is done. DEVICE when some of it failed; INVALID_ARGUMENT, and
// a broken capture, when the stream is captured.
base::Result<void> synchronize(Device& device, CuStream stream);

// A stream of our own that does not wait for the default stream. Any thread, as for CUDA's streams.
class Stream {
 public:
  static base::Result<Stream> create(Device& device);

  CuStream get() const { return stream_.get(); }
  base::Result<void> synchronize() const;

 private:
  using Handle = Owned<CuStream, &Driver::stream_destroy>;
  explicit Stream(Handle stream) : stream_(std::move(stream)) {}
  Handle stream_;
};

// A point in a stream. Thread rule: as for a plain object.
class Event {
 public:
  // Without time it costs less and orders only.
  enum class Time { kMeasured, kNone };
  static base::Result<Event> create(Device& device, Time time);

  CuEvent get() const { return event_.get(); }
  base::Result<void> record(CuStream stream);
  // Lets later work of `stream` wait for the point.
  base::Result<void> make_wait(CuStream stream) const;
  base::Result<void> synchronize() const;

 private:
  using Handle = Owned<CuEvent, &Driver::event_destroy>;
  explicit Event(Handle event) : event_(std::move(event)) {}
  Handle event_;
};

// Milliseconds of the device between two points that were recorded and reached, both with time;
// resolution about 0.5 us (CUDA Driver API, cuEventElapsedTime).
base::Result<double> elapsed_ms(Device& device, const Event& start, const Event& end);

}  // namespace deepgemm::cuda
