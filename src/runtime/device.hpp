// The seam between plans and backends: a device, and what a plan of it launches.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/launch.hpp"
#include "base/result.hpp"
#include "deepgemm/types.h"
#include "intent/problem.hpp"
#include "jit/source.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::runtime {

using Operands = cpu::Operands;  // addresses of whichever memory the device reads

// A choice made ready by a backend. Immutable; any thread.
class Executable {
 public:
  virtual ~Executable() = default;

  // That a launch may bring, aligned to workspace_alignment().
  virtual size_t workspace_bytes() const = 0;
  virtual size_t workspace_alignment() const = 0;
  // What was compiled and granted, for people; empty: nothing worth saying.
  virtual std::string note() const = 0;

  // Operands were checked by runtime::launch. `workspace` null: the backend's own.
  virtual base::Result<void> launch(const Operands& operands, void* workspace,
                                    deepgemm_stream_t stream) const = 0;
  // Waits for what was launched on the stream.
  virtual base::Result<void> synchronize(deepgemm_stream_t stream) const = 0;
  // False when what it holds has gone, as after a reset of the device: the plan is made anew.
  virtual bool is_current() const { return true; }
  // Is work on the stream recorded into a graph?
  virtual bool is_captured(deepgemm_stream_t) const { return false; }
  // Compiles what only unusual operands need.
  virtual base::Result<void> prepare_all() const { return {}; }
};

// A device that plans can be made for. Immutable; any thread; lives as long as the library.
class Device {
 public:
  explicit Device(schedule::DeviceProfile profile) : profile_(std::move(profile)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const schedule::DeviceProfile& profile() const { return profile_; }
  // This process can run plans for it.
  virtual bool launchable() const { return false; }
  // The host reads and writes its memory.
  virtual bool shares_host_memory() const { return true; }

  // Does state() ever know anything?
  virtual bool tells_load() const { return false; }
  // What other programs leave of the device; nothing: unknown. May wait for a measurement.
  virtual std::optional<schedule::DeviceState> state() const { return std::nullopt; }
  // Of this process's own launches, so that state() does not take them for others'.
  virtual void add_work(double) const {}

  // What the planner asks of the backend's kernels: for operands at aligned addresses, or at any.
  schedule::KernelCheck kernel_check(bool any_address) const;
  // Does the choice serve operands at any address?
  bool takes_any_address(const intent::Problem& problem, const schedule::Choice& choice) const;
  // Sources of the choice's kernels; empty for backends whose kernels were compiled ahead of time.
  base::Result<std::vector<jit::Source>> sources(const intent::Problem& problem,
                                                 const schedule::Choice& choice) const;

  // `fallback` is for operands at addresses that the choice does not serve; null: none.
  // UNSUPPORTED, with the way out, where plans cannot be launched.
  virtual base::Result<std::shared_ptr<const Executable>> make_executable(
      const intent::Problem& problem, const schedule::Choice& choice,
      const schedule::Choice* fallback) const;

  // Memory that callers hold: of the host unless the device has its own.
  virtual base::Result<void*> allocate(size_t bytes, std::string_view purpose) const;
  virtual base::Result<void> release(void* pointer) const;
  virtual bool owns(const void* pointer) const;  // false for host memory, which is asked last
  virtual deepgemm_pool_stats_t memory_stats() const;
  virtual std::string leak_report() const;
  // Copies between memory of the device and of the host, in either direction; done on return.
  virtual base::Result<void> copy(void* to, const void* from, size_t bytes) const;

 private:
  const schedule::DeviceProfile profile_;
};

// "cpu", "cuda:<n>", or the name of a shipped profile. INVALID_ARGUMENT for an unknown name, with
// the known ones; DEVICE where there is no such GPU, with the driver's reason; UNSUPPORTED for
// "sim:<profile>".
base::Result<const Device*> find_device(const std::string& name);

// The first GPU, else the CPU; decided once, so that a process forked after the GPU was used gets
// its error and does not turn to the CPU with addresses of the GPU.
std::string automatic_device();

// GPUs that were asked for so far.
std::vector<const Device*> gpus_in_use();

}  // namespace deepgemm::runtime
