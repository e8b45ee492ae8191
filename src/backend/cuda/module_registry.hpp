// The modules of a process, so that a binary is loaded once a device, and only so many stay loaded.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "backend/cuda/module.hpp"
#include "base/hash.hpp"

namespace deepgemm::cuda {

struct ModuleCounts {
  int loaded = 0;         // now
  size_t bytes = 0;       // of their binaries
  int64_t loads = 0;      // since the start
  int64_t evictions = 0;  // since the start
};

// Keeps the `capacity` modules that were asked for last. What somebody holds, or a captured graph
// refers to, is never unloaded; there may then be more. Unloading waits for kernels that run
// (cuModuleUnload frees the code's memory), so that it happens while loading, never at a launch.
// Any thread.
class ModuleRegistry {
 public:
  explicit ModuleRegistry(int capacity) : capacity_(capacity) {}
  // The devices still exist. What graphs refer to stays loaded until the process ends.
  ~ModuleRegistry();
  ModuleRegistry(const ModuleRegistry&) = delete;
  ModuleRegistry& operator=(const ModuleRegistry&) = delete;

  // The module of this key on this device, loaded from `image` unless it is there. `key` stands for
  // the content. A module from before a reset of the device is loaded anew. Errors of Module::load.
  base::Result<std::shared_ptr<const Module>> get(Device& device, const base::Hash128& key,
                                                  std::span<const uint8_t> image,
                                                  const std::string& name);

  ModuleCounts counts() const;

 private:
  struct Entry {
    const Device* device;
    base::Hash128 key;
    std::shared_ptr<const Module> module;
  };
  static bool in_use(const Entry& entry);
  void evict();

  const int capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // last used first
  ModuleCounts counts_;
};

// Of this process, for 512 modules; never destroyed.
ModuleRegistry& process_modules();

}  // namespace deepgemm::cuda
