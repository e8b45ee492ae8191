#include "backend/cuda/module_registry.hpp"

#include <algorithm>

namespace deepgemm::cuda {
namespace {

// A model needs some dozens; a kernel's code is tens of KiB on the device.
constexpr int kProcessCapacity = 512;

// Holds modules for good; any thread.
void keep(std::shared_ptr<const Module> module) {
  static std::mutex& mutex = *new std::mutex;
  static auto& kept = *new std::list<std::shared_ptr<const Module>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(module));
}

}  // namespace

ModuleRegistry::~ModuleRegistry() {
  for (Entry& entry : entries_) {
    if (entry.module->graphs() > 0) keep(std::move(entry.module));
  }
}

bool ModuleRegistry::in_use(const Entry& entry) {
  return entry.module.use_count() > 1 || entry.module->graphs() > 0;
}

void ModuleRegistry::evict() {
  auto entry = entries_.end();
  while (counts_.loaded > capacity_ && entry != entries_.begin()) {
    --entry;
    if (in_use(*entry)) continue;
    counts_.bytes -= entry->module->bytes();
    --counts_.loaded;
    ++counts_.evictions;
    entry = entries_.erase(entry);
  }
}

base::Result<std::shared_ptr<const Module>> ModuleRegistry::get(Device& device,
                                                                const base::Hash128& key,
                                                                std::span<const uint8_t> image,
                                                                const std::string& name) {
  {
    DEEPGEMM_ENTER_DEVICE(device);  // notices a reset
  }
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.device == &device && entry.key == key;
  });
  if (found != entries_.end() && found->module->is_current()) {
    entries_.splice(entries_.begin(), entries_, found);
    return found->module;
  }
  DEEPGEMM_TRY_ASSIGN(module, Module::load(device, image, name));
  if (found != entries_.end()) {
    counts_.bytes -= found->module->bytes();
    --counts_.loaded;
    entries_.erase(found);
  }
  entries_.push_front({&device, key, module});
  counts_.bytes += module->bytes();
  ++counts_.loaded;
  ++counts_.loads;
  evict();
  return std::move(module);
}

ModuleCounts ModuleRegistry::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

ModuleRegistry& process_modules() {
  static ModuleRegistry& registry = *new ModuleRegistry(kProcessCapacity);
  return registry;
}

}  // namespace deepgemm::cuda
