// Trace events as the JSON that chrome://tracing and Perfetto read ("Trace Event Format", complete
// events). Inline, so that builds without tracing do not contain it.
#pragma once

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/trace.hpp"

namespace deepgemm::base {

inline std::string chrome_trace(const TraceBuffer::Snapshot& snapshot) {
  nlohmann::json list = nlohmann::json::array();
  for (const TraceEvent& event : snapshot.events) {
    list.push_back({{"ph", "X"},
                    {"cat", event.category},
                    {"name", event.name},
                    {"ts", static_cast<double>(event.start_ns) / 1e3},
                    {"dur", static_cast<double>(event.duration_ns) / 1e3},
                    {"pid", ::getpid()},
                    {"tid", event.thread}});
  }
  const nlohmann::json document = {{"traceEvents", std::move(list)},
                                   {"otherData", {{"lost_events", snapshot.lost}}}};
  // Names that are no UTF-8 must not make writing fail.
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace deepgemm::base
