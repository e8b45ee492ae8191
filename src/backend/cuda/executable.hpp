// A choice of the planner, ready to be launched on a device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend/cuda/candidate_kernel.hpp"
#include "backend/cuda/module.hpp"
#include "backend/cuda/stream_workspace.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::cuda {

// Where the module of a source comes from. Errors of jit::Service::build and Module::load.
using ModuleSource =
    std::function<base::Result<std::shared_ptr<const Module>>(Device&, const jit::Source&)>;

// From the process's jit::Service, kept by process_modules().
base::Result<std::shared_ptr<const Module>> build_module(Device& device, const jit::Source& source);

// Immutable but for a kernel that is added for addresses that are not aligned. Any thread.
class Executable {
 public:
  // Compiles or finds the kernel of the choice, loads it, and reserves workspace. `fallback` serves
  // addresses that the choice's family cannot read; null: there is none, or it serves all. Also
  // while a stream is captured. Errors of kernel_spec and of `modules`. Device and workspaces
  // outlive it.
  static base::Result<std::shared_ptr<const Executable>> create(
      Device& device, StreamWorkspaces& workspaces, const intent::Problem& problem,
      const schedule::Choice& choice, const schedule::Choice* fallback,
      ModuleSource modules = build_module);

  // That a launch may bring, aligned to 256 bytes.
  size_t workspace_bytes() const { return workspace_.bytes(); }

  // False after the device was reset, also where nobody has noticed it yet.
  bool is_current() const;

  // Is work on the stream recorded? True also where the driver does not tell.
  bool is_captured(CuStream stream) const;

  // For people: kernel, registers, blocks, L2 set aside.
  std::string note() const;

  // Enqueues the launch; `splits`, `raster`, `partials` and `counters` of the operands are set
  // here. `workspace` null: the stream's. Never allocates, compiles, loads or waits, but for the
  // first launch with addresses that are not aligned.
  //   INVALID_ARGUMENT  an address that is no multiple of its elements, or an unusable stream
  //   NOT_PREPARED      the stream is captured and a kernel or workspace is missing; the capture
  //                     is intact
  base::Result<void> launch(LaunchOperands operands, void* workspace, CuStream stream) const;

  // Compiles and loads what launches with any addresses need.
  base::Result<void> prepare_all() const;

 private:
  struct Variant {
    KernelSpec spec;
    Kernel kernel;
    int splits = 1;
    int resident = 1;  // blocks of a multiprocessor
  };
  Executable(Device& device, StreamWorkspaces& workspaces, const intent::Problem& problem,
             const schedule::Choice& choice, const schedule::Choice* fallback, ModuleSource modules)
      : device_(device),
        workspaces_(workspaces),
        modules_(std::move(modules)),
        problem_(problem),
        choice_(choice),
        fallback_(fallback != nullptr ? *fallback : choice) {}

  base::Result<void> reserve();
  base::Result<Variant> build(const schedule::Choice& choice, Addresses addresses) const;
  base::Result<const Variant*> variant_for(const LaunchOperands& operands, bool captured) const;
  base::Result<const Variant*> any_variant() const;
  base::Result<void> set_workspace(LaunchOperands& operands, const LaunchShape& shape, void* given,
                                   CuStream stream, bool captured) const;
  void keep_in_l2();
  uint32_t blocks_for(const Variant& variant, const LaunchShape& shape) const;
  CuAccessWindow window_for(const LaunchOperands& operands) const;

  Device& device_;
  StreamWorkspaces& workspaces_;
  const ModuleSource modules_;
  const intent::Problem problem_;
  const schedule::Choice choice_;
  const schedule::Choice fallback_;
  Variant aligned_;
  WorkspaceSize workspace_;
  size_t l2_bytes_ = 0;  // of the operand that is wished to stay
  size_t l2_granted_ = 0;
  mutable std::mutex mutex_;  // of building any_
  mutable std::optional<Variant> any_;
  mutable std::atomic<const Variant*> any_ready_{nullptr};
};

}  // namespace deepgemm::cuda
