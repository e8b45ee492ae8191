#include "runtime/memory.hpp"

#include "runtime/context.hpp"
#include "runtime/device.hpp"

namespace deepgemm::runtime {

base::Result<void*> allocate(size_t bytes, std::string_view purpose, const char* device) {
  DEEPGEMM_TRY_ASSIGN(found, find_device(device != nullptr ? device : current_device()));
  return found->allocate(bytes, purpose);
}

base::Result<void> release(void* pointer) {
  if (pointer == nullptr) return {};
  for (const Device* gpu : gpus_in_use()) {
    if (gpu->owns(pointer)) return gpu->release(pointer);
  }
  DEEPGEMM_TRY_ASSIGN(host, find_device("cpu"));
  return host->release(pointer);
}

// Any device's context copies between all memories that the driver knows.
base::Result<void> copy(void* to, const void* from, size_t bytes) {
  const std::vector<const Device*> gpus = gpus_in_use();
  if (!gpus.empty()) return gpus.front()->copy(to, from, bytes);
  DEEPGEMM_TRY_ASSIGN(host, find_device("cpu"));
  return host->copy(to, from, bytes);
}

base::Result<deepgemm_pool_stats_t> memory_stats() {
  DEEPGEMM_TRY_ASSIGN(device, find_device(current_device()));
  return device->memory_stats();
}

std::string leak_report() {
  std::string report;
  if (const auto host = find_device("cpu"); host.ok()) report = (*host)->leak_report();
  for (const Device* gpu : gpus_in_use()) report += gpu->leak_report();
  return report;
}

}  // namespace deepgemm::runtime
