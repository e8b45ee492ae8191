// The CPU of this machine as a device of plans.
#pragma once

#include <memory>

#include "runtime/device.hpp"

namespace deepgemm::runtime {

std::unique_ptr<const Device> make_cpu_device();

// An executable of the CPU backend with its share of the process's scratch memory. Errors of
// cpu::make_executable, OUT_OF_MEMORY.
base::Result<std::shared_ptr<const Executable>> make_cpu_executable(const intent::Problem& problem,
                                                                    const schedule::Choice& choice);

}  // namespace deepgemm::runtime
