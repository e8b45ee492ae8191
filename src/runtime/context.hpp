// What holds for the whole process: device, switches, hooks; and the default stream of each thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::runtime {

// All functions are thread-safe.

// Null: back to automatic. Fails as find_device does, and then changes nothing.
base::Result<void> set_current_device(const char* name);
// Name of the device of intents that name none: as set, else DEEPGEMM_DEVICE, else the automatic
// one.
std::string current_device();

void set_hopper_opt(bool enabled);
bool hopper_opt();

// For the search of CUDA compilers from then on. INVALID_ARGUMENT unless `path` is an executable
// file; null forgets the path set before.
base::Result<void> set_nvcc_path(const char* path);
// As set, else DEEPGEMM_NVCC_PATH; empty when neither is.
std::string nvcc_path();

// Null removes the hooks.
void set_hooks(const deepgemm_hooks_t* hooks);
std::optional<deepgemm_hooks_t> hooks();

// The calling thread's.
void set_default_stream(deepgemm_stream_t stream);
deepgemm_stream_t default_stream();

}  // namespace deepgemm::runtime
