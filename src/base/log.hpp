// The one log sink: a callback, else a file or standard error, else nothing.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "deepgemm/types.h"

namespace deepgemm::base {

enum class LogCategory { kPlan, kLaunch, kMemory, kPack, kCache, kJit };

// "plan", "launch", "memory", "pack", "cache", "jit".
const char* log_category_name(LogCategory category);

// Sends every record to `callback`, of all levels unless DEEPGEMM_LOG_LEVEL is set; NULL: back to
// DEEPGEMM_LOG_LEVEL and DEEPGEMM_LOG_FILE. Any thread. A record that another thread is just
// sending may still reach the old callback.
void set_log_callback(deepgemm_log_callback_t callback, void* user);

// Would a record of this level go anywhere? Looks at the environment, so that a level set later
// counts.
bool log_enabled(deepgemm_log_level_t level);

// Sends a finished record; use log().
void write_log(deepgemm_log_level_t level, LogCategory category, std::string_view message);

// One record in fmt syntax; formatted only when somebody listens. Any thread; lines of several
// threads do not mix. In the file or on standard error: "deepgemm: warning: cache: <message>".
template <class... Args>
void log(deepgemm_log_level_t level, LogCategory category, fmt::format_string<Args...> format,
         Args&&... args) {
  if (!log_enabled(level)) return;
  write_log(level, category, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace deepgemm::base
