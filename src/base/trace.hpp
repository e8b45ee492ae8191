// Event trace of plans, compiles and launches, for builds with DEEPGEMM_ENABLE_DEBUG_TRACING. All
// of it is inline, so that other builds contain nothing of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "build_config.hpp"

namespace deepgemm::base {

struct TraceEvent {
  const char* category;  // string literal
  std::string name;
  int64_t start_ns;
  int64_t duration_ns;
  uint64_t thread;
};

// Keeps the newest `capacity` >= 1 events. Any thread.
class TraceBuffer {
 public:
  explicit TraceBuffer(size_t capacity) : capacity_(capacity) {}

  void add(TraceEvent event) {
    const std::lock_guard lock(mutex_);
    if (events_.size() < capacity_) {
      events_.push_back(std::move(event));
    } else {
      events_[added_ % capacity_] = std::move(event);
    }
    ++added_;
  }

  struct Snapshot {
    std::vector<TraceEvent> events;  // oldest first
    uint64_t lost = 0;               // events that newer ones have replaced
  };
  Snapshot snapshot() const {
    const std::lock_guard lock(mutex_);
    Snapshot result{{}, added_ - events_.size()};
    const size_t oldest = result.lost == 0 ? 0 : added_ % capacity_;
    for (size_t i = 0; i < events_.size(); ++i) {
      result.events.push_back(events_[(oldest + i) % events_.size()]);
    }
    return result;
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<TraceEvent> events_;
  size_t added_ = 0;
};

// The record of this process: its newest 65536 events.
inline TraceBuffer& trace_buffer() {
  static TraceBuffer buffer(65536);
  return buffer;
}

// Adds the time from its construction to its destruction to a buffer.
class TraceScope {
 public:
  TraceScope(TraceBuffer& buffer, const char* category, std::string name)
      : buffer_(buffer), category_(category), name_(std::move(name)), start_ns_(now_ns()) {}
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope() {
    const uint64_t thread = std::hash<std::thread::id>{}(std::this_thread::get_id());
    buffer_.add({category_, std::move(name_), start_ns_, now_ns() - start_ns_, thread});
  }

 private:
  static int64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }

  TraceBuffer& buffer_;
  const char* category_;
  std::string name_;
  int64_t start_ns_;
};

// What DEEPGEMM_TRACE declares: a scope, or nothing. A template, so that the untaken branch does
// not come into being; `name` is a function that is not called then.
template <bool kEnabled, class Name>
auto make_trace_scope(const char* category, const Name& name) {
  if constexpr (kEnabled) {
    return TraceScope(trace_buffer(), category, name());
  } else {
    return false;
  }
}

// Writes the record as a Chrome trace, replacing the file. UNSUPPORTED in builds without tracing.
// Any thread.
Result<void> write_trace(const std::string& path);

}  // namespace deepgemm::base

#define DEEPGEMM_TRACE_JOIN_LINE(prefix, line) prefix##line
#define DEEPGEMM_TRACE_NAME(prefix, line) DEEPGEMM_TRACE_JOIN_LINE(prefix, line)

// Records the time from here to the end of the scope: DEEPGEMM_TRACE("plan", line). The category is
// a literal; the name is any expression that makes a std::string, not evaluated in builds without
// tracing.
#define DEEPGEMM_TRACE(category, name)                                                   \
  [[maybe_unused]] const auto DEEPGEMM_TRACE_NAME(trace_scope_, __LINE__) =              \
      ::deepgemm::base::make_trace_scope<::deepgemm::build_config::kEnableDebugTracing>( \
          category, [&]() -> std::string { return name; })
