#include "backend/cuda/nvml_sampler.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

namespace deepgemm::cuda {

NvmlSampler::NvmlSampler(const Nvml* nvml, SamplerSettings settings)
    : nvml_(nvml), settings_(settings) {}

NvmlSampler::~NvmlSampler() { stop(); }

void NvmlSampler::stop() {
  if (process_.forked()) return;
  std::thread ending;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    ending = std::move(thread_);
  }
  asked_.notify_all();
  sampled_.notify_all();
  if (ending.joinable()) ending.join();
}

NvmlSampler::Gpu& NvmlSampler::ask(const std::string& uuid) {
  Gpu& gpu = gpus_[uuid];
  last_asked_ = Clock::now();
  if (!thread_.joinable() && !stopped_) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      gpu.unknown_because = "the system grants no further thread";
      return gpu;
    }
  }
  asked_.notify_all();
  return gpu;
}

Telemetry NvmlSampler::answer(const Gpu& gpu) const {
  Telemetry telemetry;
  telemetry.unknown_because = gpu.unknown_because;
  const auto age = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - gpu.time);
  for (size_t i = 0; i < kMetrics && gpu.samples > 0; ++i) {
    telemetry.readings[i] = {gpu.values[i], age};
  }
  return telemetry;
}

const char* NvmlSampler::useless_because() const {
  if (process_.forked()) return "NVML was used before this process was forked";
  if (nvml_ == nullptr) return "libnvidia-ml.so.1 does not open";
  if (nvml_->init == nullptr || nvml_->handle_by_uuid == nullptr) {
    return "libnvidia-ml.so.1 lacks nvmlInit_v2 or nvmlDeviceGetHandleByUUID";
  }
  return nullptr;
}

Telemetry NvmlSampler::latest(const std::string& uuid) {
  // Before the lock, which a thread of the parent may have held at the fork.
  if (const char* why = useless_because()) return {{}, why};
  const std::lock_guard lock(mutex_);
  return answer(ask(uuid));
}

Telemetry NvmlSampler::fresh(const std::string& uuid, std::chrono::milliseconds timeout) {
  if (const char* why = useless_because()) return {{}, why};
  std::unique_lock lock(mutex_);
  const Gpu& gpu = ask(uuid);
  // One that is being taken may have begun before.
  const int64_t wanted = gpu.samples + 2;
  sampled_.wait_for(lock, timeout, [&] { return gpu.samples >= wanted || stopped_; });
  return answer(gpu);
}

void NvmlSampler::run() {
  std::unique_lock lock(mutex_);
  auto next = Clock::now();
  while (!stopped_) {
    if (Clock::now() - last_asked_ > settings_.park_after) {
      asked_.wait(lock);
      continue;
    }
    sample_all(lock);
    next = std::max(next + settings_.period, Clock::now());
    asked_.wait_until(lock, next, [this] { return stopped_; });
  }
}

// NVML is asked without the lock, for it may take its time.
void NvmlSampler::sample_all(std::unique_lock<std::mutex>& lock) {
  std::vector<std::pair<std::string, Gpu>> copies(gpus_.begin(), gpus_.end());
  lock.unlock();
  if (!init_failure_) {
    const int result = nvml_->init();
    init_failure_ = result == 0 ? "" : reason(result);
  }
  for (auto& [uuid, copy] : copies) sample(uuid, copy);
  lock.lock();
  for (auto& [uuid, copy] : copies) gpus_[uuid] = std::move(copy);
  sampled_.notify_all();
}

void NvmlSampler::sample(const std::string& uuid, Gpu& copy) const {
  ++copy.samples;
  if (!init_failure_->empty()) {
    copy.unknown_because = *init_failure_;
    return;
  }
  if (!copy.looked_up) {
    copy.looked_up = true;
    const int result = nvml_->handle_by_uuid(uuid.c_str(), &copy.handle);
    if (result != 0) {
      copy.handle = nullptr;
      copy.unknown_because = reason(result);
    }
  }
  if (copy.handle == nullptr) return;
  copy.time = Clock::now();
  bool any = false;
  for (size_t i = 0; i < kMetrics; ++i) {
    copy.values[i] = read_metric(*nvml_, copy.handle, static_cast<Metric>(i));
    any = any || copy.values[i].has_value();
  }
  copy.unknown_because = any ? "" : "NVML tells nothing of this GPU";
}

std::string NvmlSampler::reason(int result) const {
  const char* text = nvml_->error_text == nullptr ? nullptr : nvml_->error_text(result);
  return text == nullptr ? fmt::format("NVML error {}", result) : fmt::format("NVML: {}", text);
}

NvmlSampler& process_sampler() {
  static NvmlSampler& sampler = []() -> NvmlSampler& {
    // Opened first: handlers run in reverse order, and NVML must still be whole when the thread
    // ends.
    auto* made = new NvmlSampler(process_nvml());  // NOLINT: never destroyed
    static NvmlSampler* ending = nullptr;
    ending = made;
    std::atexit([] { ending->stop(); });
    return *made;
  }();
  return sampler;
}

}  // namespace deepgemm::cuda
