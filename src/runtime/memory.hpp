// The memory that callers hold, of whichever device.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::runtime {

// All functions are thread-safe.

// Of the named device, null: the current one. Host memory for the CPU and for profiles.
base::Result<void*> allocate(size_t bytes, std::string_view purpose, const char* device);
// Of whichever device; null is fine.
base::Result<void> release(void* pointer);
// Between memories of host and devices; done on return. INVALID_ARGUMENT for null.
base::Result<void> copy(void* to, const void* from, size_t bytes);

// Of the current device.
base::Result<deepgemm_pool_stats_t> memory_stats();
// Of all devices.
std::string leak_report();

}  // namespace deepgemm::runtime
