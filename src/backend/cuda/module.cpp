#include "backend/cuda/module.hpp"

#include <array>

namespace deepgemm::cuda {
namespace {

constexpr size_t kLogBytes = 4096;

std::string trimmed(const char* log) {
  std::string text = log;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

base::Error load_error(const Device& device, CuResult result, const std::string& name,
                       const char* log) {
  const Driver& driver = device.driver();
  std::string action =
      fmt::format("Loading kernel '{}' on {} (sm_{}, driver for CUDA {}.{})", name, device.name(),
                  device.facts().sm, driver.version / 1000, driver.version % 1000 / 10);
  base::Error error = driver_error(driver, result, action);
  if (const std::string said = trimmed(log); !said.empty()) {
    error.message += fmt::format(" The driver says: {}", said);
  }
  return error;
}

// The limit belongs to the function, which other users of the module share: it is never lowered.
base::Result<void> grant(const Device& device, const Kernel& kernel, const std::string& action) {
  const Driver& driver = device.driver();
  const int wanted = kernel.needs.dynamic_shared_bytes;
  const int64_t limit = device.facts().shared_bytes_per_block;
  if (kernel.facts.static_shared_bytes + int64_t{wanted} > limit) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "Kernel '{}' needs {} + {} bytes of shared memory for a block; {} ({}) "
                            "has {}. A smaller tile or fewer stages fit.",
                            kernel.symbol, kernel.facts.static_shared_bytes, wanted, device.name(),
                            device.facts().title, limit);
  }
  int granted = 0;
  DEEPGEMM_CUDA_TRY(
      driver, driver.function_attribute(&granted, kFunctionDynamicShared, kernel.function), action);
  if (wanted > granted) {
    DEEPGEMM_CUDA_TRY(
        driver, driver.function_set_attribute(kernel.function, kFunctionDynamicShared, wanted),
        action);
  }
  if (kernel.needs.large_clusters) {
    DEEPGEMM_CUDA_TRY(
        driver, driver.function_set_attribute(kernel.function, kFunctionAnyCluster, 1), action);
  }
  return {};
}

}  // namespace

base::Result<std::shared_ptr<const Module>> Module::load(Device& device,
                                                         std::span<const uint8_t> image,
                                                         const std::string& name) {
  DEEPGEMM_ENTER_DEVICE(device);
  const Driver& driver = device.driver();
  std::array<char, kLogBytes> log = {};
  std::array<int, 2> options = {kJitErrorLog, kJitErrorLogBytes};
  // The size is passed in place of a pointer.
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(kLogBytes - 1)};
  const RelaxedCapture relaxed(driver);
  CuModule module = nullptr;
  const CuResult result = driver.module_load(
      &module, image.data(), static_cast<unsigned>(options.size()), options.data(), values.data());
  if (result != CuResult::kSuccess) return load_error(device, result, name, log.data());
  return std::shared_ptr<const Module>(new Module(Handle(device, module), name, image.size()));
}

base::Result<void> Module::keep_for_graph(CuGraph graph) const {
  return graphs_.keep(device().driver(), graph, fmt::format("kernel '{}'", name_));
}

base::Result<Kernel> find_kernel(std::shared_ptr<const Module> module, const std::string& symbol,
                                 const KernelNeeds& needs) {
  Device& device = module->device();
  DEEPGEMM_ENTER_DEVICE(device);
  const Driver& driver = device.driver();
  const RelaxedCapture relaxed(driver);
  Kernel kernel = {std::move(module), nullptr, symbol, {}, needs};
  const std::string action = fmt::format("Preparing kernel '{}' on {}", symbol, device.name());
  DEEPGEMM_CUDA_TRY(driver,
                    driver.module_function(&kernel.function, kernel.module->get(), symbol.c_str()),
                    action);
  KernelFacts& facts = kernel.facts;
  // Asking also makes a driver that loads lazily load the code now and not at the first launch.
  for (const auto& [attribute, value] : {std::pair{kFunctionRegisters, &facts.registers},
                                         {kFunctionLocalBytes, &facts.local_bytes},
                                         {kFunctionStaticShared, &facts.static_shared_bytes},
                                         {kFunctionMaxThreads, &facts.max_threads},
                                         {kFunctionBinaryVersion, &facts.binary_sm}}) {
    DEEPGEMM_CUDA_TRY(driver, driver.function_attribute(value, attribute, kernel.function), action);
  }
  DEEPGEMM_TRY(grant(device, kernel, action));
  return kernel;
}

base::Result<int> blocks_per_sm(const Kernel& kernel, int threads) {
  Device& device = kernel.module->device();
  DEEPGEMM_ENTER_DEVICE(device);
  int blocks = 0;
  DEEPGEMM_CUDA_TRY(
      device.driver(),
      device.driver().occupancy(&blocks, kernel.function, threads,
                                static_cast<size_t>(kernel.needs.dynamic_shared_bytes)),
      fmt::format("Asking for the occupancy of kernel '{}'", kernel.symbol));
  return blocks;
}

}  // namespace deepgemm::cuda
