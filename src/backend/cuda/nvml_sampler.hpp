// The state of GPUs, sampled in the background.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "backend/cuda/fork_watch.hpp"
#include "backend/cuda/nvml.hpp"

namespace deepgemm::cuda {

struct Reading {
  std::optional<double> value;  // in the metric's unit; nothing: unknown
  // Since NVML was asked; what NVML answers is older by the driver's own refresh, up to a second
  // for loads.
  std::chrono::microseconds age{0};
};

struct Telemetry {
  std::array<Reading, kMetrics> readings;
  std::string unknown_because;  // of all; empty when anything is known

  const Reading& operator[](Metric metric) const { return readings[static_cast<size_t>(metric)]; }
};

struct SamplerSettings {
  std::chrono::milliseconds period{5};
  std::chrono::milliseconds park_after{1000};  // without anybody asking
};

// One thread for all GPUs, started by the first question and parked while nobody asks. Any thread.
class NvmlSampler {
 public:
  // `nvml` null: everything is unknown.
  explicit NvmlSampler(const Nvml* nvml, SamplerSettings settings = {});
  // Not in a forked child.
  ~NvmlSampler();
  NvmlSampler(const NvmlSampler&) = delete;
  NvmlSampler& operator=(const NvmlSampler&) = delete;

  // The last sample of the GPU with this UUID (DeviceFacts::uuid). Never waits for NVML: the first
  // question about a GPU starts its sampling and is answered with "unknown", and after a pause the
  // answer is as old as its age says.
  Telemetry latest(const std::string& uuid);
  // The same, after a sample that is taken later than this call, or the timeout.
  Telemetry fresh(const std::string& uuid, std::chrono::milliseconds timeout);

  // Ends the thread; later answers age.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Gpu {
    NvmlDevice handle = nullptr;
    bool looked_up = false;
    int64_t samples = 0;
    Clock::time_point time;
    std::array<std::optional<double>, kMetrics> values;
    std::string unknown_because = "the first sample has not been taken yet";
  };

  const char* useless_because() const;  // null: it can sample
  Gpu& ask(const std::string& uuid);    // under mutex_
  Telemetry answer(const Gpu& gpu) const;
  void run();
  void sample_all(std::unique_lock<std::mutex>& lock);
  void sample(const std::string& uuid, Gpu& copy) const;
  std::string reason(int result) const;

  const Nvml* const nvml_;
  const SamplerSettings settings_;
  const ForkWatch process_;
  std::mutex mutex_;
  std::condition_variable asked_;  // or stopped
  std::condition_variable sampled_;
  std::map<std::string, Gpu> gpus_;  // never erased
  Clock::time_point last_asked_;
  bool stopped_ = false;
  std::optional<std::string> init_failure_;  // empty text: NVML is initialised
  std::thread thread_;
};

// Of this process and its NVML; ended when the process ends, and never destroyed.
NvmlSampler& process_sampler();

}  // namespace deepgemm::cuda
