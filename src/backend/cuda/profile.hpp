// What planning needs to know of a GPU that is there.
#pragma once

#include "backend/cuda/device.hpp"
#include "schedule/profile.hpp"

namespace deepgemm::cuda {

// Sizes as the driver says; rates of the shipped profile of that chip ("NVIDIA H200": h200), else
// those of the nearest shipped one of its generation, by multiprocessors and memory clock. The name
// is the device's ("cuda:0"). Pure.
schedule::DeviceProfile device_profile(const DeviceFacts& facts);

}  // namespace deepgemm::cuda
