#include "base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <string>

#include "base/env.hpp"

namespace deepgemm::base {
namespace {

constexpr std::array<const char*, 4> kLevelNames = {"error", "warning", "info", "debug"};
constexpr std::array<const char*, 6> kCategoryNames = {"plan", "launch", "memory",
                                                       "pack", "cache",  "jit"};

struct Sink {
  deepgemm_log_callback_t callback = nullptr;
  void* user = nullptr;
};

std::mutex sink_mutex;
Sink sink;
std::atomic<bool> has_callback{false};

Sink current_sink() {
  const std::lock_guard lock(sink_mutex);
  return sink;
}

// Level that DEEPGEMM_LOG_LEVEL names; a wrong name counts as "warning", the least that shows
// mistakes.
std::optional<int> environment_level() {
  const std::optional<std::string> name = env("DEEPGEMM_LOG_LEVEL");
  if (!name) return std::nullopt;
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (*name == kLevelNames[i]) return static_cast<int>(i);
  }
  return DEEPGEMM_LOG_WARNING;
}

// One system call for each line, so that lines of several threads and processes do not mix.
bool append(int file, std::string_view line) {
  ssize_t written;
  do {
    written = ::write(file, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(line.size());
}

bool append_to_file(const std::string& path, std::string_view line) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return false;
  const bool done = append(file, line);
  ::close(file);
  return done;
}

void write_line(const std::string& line) {
  const std::optional<std::string> path = env("DEEPGEMM_LOG_FILE");
  if (path && append_to_file(*path, line)) return;
  static std::atomic<bool> told{false};
  if (path && !told.exchange(true)) {
    append(STDERR_FILENO,
           fmt::format(
               "deepgemm: warning: DEEPGEMM_LOG_FILE is '{}', which cannot be written; logging "
               "to standard error.\n",
               *path));
  }
  append(STDERR_FILENO, line);
}

}  // namespace

const char* log_category_name(LogCategory category) {
  return kCategoryNames[static_cast<size_t>(category)];
}

void set_log_callback(deepgemm_log_callback_t callback, void* user) {
  const std::lock_guard lock(sink_mutex);
  sink = {callback, user};
  has_callback = callback != nullptr;
}

bool log_enabled(deepgemm_log_level_t level) {
  const std::optional<int> limit = environment_level();
  if (limit) return static_cast<int>(level) <= *limit;
  return has_callback;
}

void write_log(deepgemm_log_level_t level, LogCategory category, std::string_view message) {
  const Sink target = current_sink();
  const char* category_name = log_category_name(category);
  if (target.callback != nullptr) {
    target.callback(target.user, level, category_name, std::string(message).c_str());
    return;
  }
  const char* level_name = kLevelNames[static_cast<size_t>(level)];
  write_line(fmt::format("deepgemm: {}: {}: {}\n", level_name, category_name, message));
}

}  // namespace deepgemm::base
