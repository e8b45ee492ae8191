#include "api/guard.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace deepgemm::api {
namespace {

// Room for the longest sentence; a longer one is cut.
thread_local std::array<char, 4096> message_of_thread = {};

}  // namespace

deepgemm_status_t fail(deepgemm_status_t code, const char* message) noexcept {
  const size_t length = std::min(std::strlen(message), message_of_thread.size() - 1);
  std::memmove(message_of_thread.data(), message, length);
  message_of_thread[length] = '\0';
  return code;
}

const char* last_error() noexcept { return message_of_thread.data(); }

base::Result<void> require(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, "{}: is NULL", name);
}

base::Result<void> copy_text(const std::string& text, char* buffer, size_t capacity,
                             size_t* needed) {
  const size_t size = text.size() + 1;
  if (needed != nullptr) *needed = size;
  if (capacity > 0) DEEPGEMM_TRY(require(buffer, "buffer"));
  if (capacity < size) {
    return base::make_error(DEEPGEMM_ERROR_BUFFER_TOO_SMALL,
                            "capacity: {} bytes do not hold the text of {} bytes", capacity, size);
  }
  std::memcpy(buffer, text.c_str(), size);
  return {};
}

}  // namespace deepgemm::api
