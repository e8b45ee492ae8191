// A GPU as a device of plans, and its memory.
#pragma once

#include <memory>
#include <string_view>

#include "backend/cuda/device.hpp"
#include "runtime/device.hpp"

namespace deepgemm::runtime {

// `gpu` lives as long as the process.
std::unique_ptr<const Device> make_cuda_device(cuda::Device& gpu);

}  // namespace deepgemm::runtime
