// Collects the records of the log while it lives; for tests.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"

namespace deepgemm::jit {

class LogCapture {
 public:
  LogCapture() { base::set_log_callback(&LogCapture::take, this); }
  ~LogCapture() { base::set_log_callback(nullptr, nullptr); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  // Records of a level that contain a text.
  size_t count(deepgemm_log_level_t level, const std::string& text = {}) const {
    const std::lock_guard lock(mutex_);
    size_t found = 0;
    for (const Record& record : records_) {
      if (record.level == level && record.message.find(text) != std::string::npos) ++found;
    }
    return found;
  }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const Record& record : records_) text += record.message + "\n";
    return text;
  }

 private:
  struct Record {
    deepgemm_log_level_t level;
    std::string message;
  };

  static void take(void* user, deepgemm_log_level_t level, const char*, const char* message) {
    auto* self = static_cast<LogCapture*>(user);
    const std::lock_guard lock(self->mutex_);
    self->records_.push_back({level, message});
  }

  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

}  // namespace deepgemm::jit
