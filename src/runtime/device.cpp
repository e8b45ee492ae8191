#include "runtime/device.hpp"

#include <charconv>
#include <cstring>
#include <map>
#include <mutex>

#include "backend/cuda/candidate_kernel.hpp"
#include "runtime/cpu_device.hpp"
#include "runtime/cuda_device.hpp"
#include "runtime/immortal.hpp"
#include "runtime/pool.hpp"

namespace deepgemm::runtime {
namespace {

constexpr const char* kCpu = "cpu";
constexpr std::string_view kCuda = "cuda:";
constexpr std::string_view kSim = "sim:";

using Devices = std::map<std::string, std::unique_ptr<const Device>>;

// The CPU and the profiles; GPUs are looked for when they are named.
const Devices& known_devices() {
  static Immortal<Devices> devices([] {
    Devices known;
    for (const schedule::DeviceProfile& profile : schedule::all_profiles()) {
      known.emplace(profile.name, std::make_unique<Device>(profile));
    }
    known.insert_or_assign(kCpu, make_cpu_device());
    return known;
  }());
  return devices.get();
}

struct Gpus {
  std::mutex mutex;
  std::map<int, std::unique_ptr<const Device>> found;
};

Gpus& gpus() {
  static Immortal<Gpus> gpus;
  return gpus.get();
}

base::Result<const Device*> find_gpu(int ordinal) {
  DEEPGEMM_TRY_ASSIGN(platform, cuda::process_platform());
  DEEPGEMM_TRY_ASSIGN(gpu, platform->device(ordinal));
  const std::lock_guard lock(gpus().mutex);
  auto& device = gpus().found[ordinal];
  if (device == nullptr) device = make_cuda_device(*gpu);
  return device.get();
}

base::Error unknown_device(const std::string& name) {
  std::string names = "cuda:<n>";
  for (const auto& [known, device] : known_devices()) names += ", " + known;
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, "device: '{}' is unknown; known are {}",
                          name, names);
}

}  // namespace

schedule::KernelCheck Device::kernel_check(bool any_address) const {
  if (profile_.backend != schedule::Backend::kCuda) return {};
  const auto addresses = any_address ? cuda::Addresses::kAny : cuda::Addresses::kAligned;
  return [this, addresses](const intent::Problem& problem, const schedule::Candidate& candidate) {
    return cuda::missing_kernel(problem, candidate, profile_.sm, profile_.shared_bytes_per_block,
                                addresses);
  };
}

bool Device::takes_any_address(const intent::Problem& problem,
                               const schedule::Choice& choice) const {
  return profile_.backend != schedule::Backend::kCuda ||
         cuda::choice_kernel(problem, choice, profile_.sm, cuda::Addresses::kAny).ok();
}

base::Result<std::vector<jit::Source>> Device::sources(const intent::Problem& problem,
                                                       const schedule::Choice& choice) const {
  if (profile_.backend != schedule::Backend::kCuda) return std::vector<jit::Source>{};
  return cuda::choice_sources(problem, choice, profile_.sm);
}

base::Result<std::shared_ptr<const Executable>> Device::make_executable(
    const intent::Problem&, const schedule::Choice&, const schedule::Choice*) const {
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                          "plan: made for device '{}', which this process cannot run on (the plan "
                          "can be explained); make the plan with intent.device \"{}\" to launch it "
                          "here",
                          profile_.name, automatic_device());
}

base::Result<void*> Device::allocate(size_t bytes, std::string_view purpose) const {
  return process_pool().allocate(bytes, purpose);
}

base::Result<void> Device::release(void* pointer) const { return process_pool().release(pointer); }

bool Device::owns(const void*) const { return false; }

deepgemm_pool_stats_t Device::memory_stats() const { return process_pool().stats(); }

std::string Device::leak_report() const { return process_pool().leak_report(); }

base::Result<void> Device::copy(void* to, const void* from, size_t bytes) const {
  if (bytes > 0) std::memmove(to, from, bytes);
  return {};
}

base::Result<const Device*> find_device(const std::string& name) {
  const auto& devices = known_devices();
  if (const auto found = devices.find(name); found != devices.end()) return found->second.get();
  if (name.starts_with(kSim)) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "device: '{}': the simulator backend is not part of this build; plan "
                            "for a profile such as h200, or use cpu",
                            name);
  }
  if (!name.starts_with(kCuda)) return unknown_device(name);
  int ordinal = -1;
  const char* const last = name.data() + name.size();
  const auto [end, wrong] = std::from_chars(name.data() + kCuda.size(), last, ordinal);
  if (wrong != std::errc() || end != last || ordinal < 0) return unknown_device(name);
  return find_gpu(ordinal);
}

std::vector<const Device*> gpus_in_use() {
  const std::lock_guard lock(gpus().mutex);
  std::vector<const Device*> all;
  for (const auto& [ordinal, device] : gpus().found) all.push_back(device.get());
  return all;
}

std::string automatic_device() {
  constexpr const char* kFirst = "cuda:0";
  static const bool gpu = find_device(kFirst).ok();
  return gpu ? kFirst : kCpu;
}

}  // namespace deepgemm::runtime
