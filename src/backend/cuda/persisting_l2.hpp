// The part of L2 that keeps what is read again and again, such as the weights of a decoding step.
#pragma once

#include <cstddef>

#include "backend/cuda/device.hpp"

namespace deepgemm::cuda {

// Sets aside L2 for persisting accesses of the whole device, at most what the device has
// (DeviceFacts::persisting_l2_bytes), and never less than was set aside before: others in this
// process may count on that. Returns what is granted; 0 where the device or its sharing (MIG, MPS)
// has none. Any thread.
base::Result<size_t> set_persisting_l2(Device& device, size_t bytes);

// How a launch should keep [base, base + bytes), given what set_persisting_l2 granted: clipped to
// the largest window of the device; where it is larger than the grant, that share of its lines
// persists, so that they do not displace each other (CUDA C++ Programming Guide, "L2 Persistence").
// An empty window, which a launch ignores, where nothing is granted.
CuAccessWindow persisting_window(const DeviceFacts& facts, const void* base, size_t bytes,
                                 size_t granted);

}  // namespace deepgemm::cuda
