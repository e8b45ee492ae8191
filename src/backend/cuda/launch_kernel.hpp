// One launch of a kernel.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cuda/module.hpp"

namespace deepgemm::cuda {

using Extent = std::array<uint32_t, 3>;  // x, y, z

struct LaunchConfig {
  Extent grid = {1, 1, 1};     // blocks
  Extent block = {1, 1, 1};    // threads
  Extent cluster = {1, 1, 1};  // blocks; divides the grid
  // May start before the kernel that is launched before it in the stream has ended; for kernels
  // that wait for it themselves (griddepcontrol.wait) before their first read of memory.
  bool programmatic = false;
  // How L2 keeps a range; null: as usual. See persisting_window().
  const CuAccessWindow* window = nullptr;
  CuStream stream = nullptr;
};

// Enqueues the kernel with its dynamic shared memory. `parameters`: one address for each parameter,
// read before this returns. A grid without blocks is no launch and no error. Into a stream that is
// being captured the launch becomes a node of the graph, and the kernel's module stays loaded as
// long as the graph needs it. Allocates nothing of the device; never synchronises; any thread.
//   DEVICE            an earlier fault of the device, named as such
//   NOT_PREPARED      the device was reset since the kernel was loaded
//   INVALID_ARGUMENT  the stream is not usable, or its capture is broken
//   UNSUPPORTED       the device cannot hold a block or a cluster; the message has the figures
base::Result<void> launch_kernel(const Kernel& kernel, const LaunchConfig& config,
                                 void** parameters);

}  // namespace deepgemm::cuda
