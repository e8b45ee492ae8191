// Kernels in a device's context.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/cuda/owned.hpp"

namespace deepgemm::cuda {

// What the driver says of a loaded kernel.
struct KernelFacts {
  int registers = 0;            // a thread
  int local_bytes = 0;          // a thread; more than 0 where registers were spilled
  int static_shared_bytes = 0;  // a block
  int max_threads = 0;          // a block
  int binary_sm = 0;            // architecture it was compiled for: 90
};

// A binary in the context that its device had when it was loaded; unloaded with the object.
// Immutable; any thread. Whoever launches its kernels keeps it until they have been launched;
// graphs that launches were captured into are counted (graphs()).
class Module {
 public:
  // `image`: a cubin; `name` is for messages. COMPILE_FAILED when the driver refuses it: of another
  // architecture, newer than the driver, damaged; OUT_OF_MEMORY, DEVICE.
  static base::Result<std::shared_ptr<const Module>> load(Device& device,
                                                          std::span<const uint8_t> image,
                                                          const std::string& name);

  Device& device() const { return *module_.home().device; }
  const std::string& name() const { return name_; }
  size_t bytes() const { return bytes_; }
  CuModule get() const { return module_.get(); }
  // False after the device was reset: then it must be loaded anew.
  bool is_current() const { return module_.home().is_current(); }

  // How many captured graphs refer to it. It must not go before this is 0.
  int graphs() const { return graphs_.count(); }
  // Counts a graph, until the graph and all made from it are destroyed; null: for good.
  base::Result<void> keep_for_graph(CuGraph graph) const;

 private:
  using Handle = Owned<CuModule, &Driver::module_unload>;
  Module(Handle module, std::string name, size_t bytes)
      : module_(std::move(module)), name_(std::move(name)), bytes_(bytes) {}

  Handle module_;
  std::string name_;
  size_t bytes_;
  GraphUses graphs_;
};

// What a kernel needs beyond the defaults.
struct KernelNeeds {
  int dynamic_shared_bytes = 0;
  bool large_clusters = false;  // more than 8 blocks, which not every device of an architecture has
};

// A function of a module, with its limits set. Cheap to copy; any thread.
struct Kernel {
  std::shared_ptr<const Module> module;
  CuFunction function = nullptr;
  std::string symbol;
  KernelFacts facts;
  KernelNeeds needs;
};

// COMPILE_FAILED when the module has no such function; UNSUPPORTED when the device cannot give what
// it needs, with the figures.
base::Result<Kernel> find_kernel(std::shared_ptr<const Module> module, const std::string& symbol,
                                 const KernelNeeds& needs = {});

// Blocks of `threads` threads that one multiprocessor holds at a time, with the kernel's dynamic
// shared memory.
base::Result<int> blocks_per_sm(const Kernel& kernel, int threads);

}  // namespace deepgemm::cuda
