#include "backend/cuda/launch_kernel.hpp"

namespace deepgemm::cuda {
namespace {

constexpr size_t kMostAttributes = 3;

struct Attributes {
  std::array<CuLaunchAttribute, kMostAttributes> list = {};
  unsigned count = 0;

  CuLaunchAttribute& add(int id) {
    list[count].id = id;
    return list[count++];
  }
};

Attributes attributes_of(const LaunchConfig& config) {
  Attributes attributes;
  const auto& [x, y, z] = config.cluster;
  if (x * y * z > 1) attributes.add(kLaunchCluster).value.cluster = {x, y, z};
  if (config.programmatic) attributes.add(kLaunchProgrammatic).value.flag = 1;
  if (config.window != nullptr && config.window->bytes > 0) {
    attributes.add(kLaunchAccessWindow).value.window = *config.window;
  }
  return attributes;
}

std::string text(const Extent& extent) {
  return fmt::format("{} x {} x {}", extent[0], extent[1], extent[2]);
}

base::Error launch_error(const Kernel& kernel, const LaunchConfig& config, CuResult result) {
  const Device& device = kernel.module->device();
  return driver_error(
      device.driver(), result,
      fmt::format("Launching kernel '{}' on {} (grid {}, block {}, cluster {}, {} registers a "
                  "thread, {} + {} bytes of shared memory)",
                  kernel.symbol, device.name(), text(config.grid), text(config.block),
                  text(config.cluster), kernel.facts.registers, kernel.facts.static_shared_bytes,
                  kernel.needs.dynamic_shared_bytes));
}

base::Result<void> keep_if_captured(const Driver& driver, const Kernel& kernel, CuStream stream) {
  DEEPGEMM_TRY_ASSIGN(captured, is_capturing(driver, stream));
  if (!captured) return {};
  DEEPGEMM_TRY_ASSIGN(graph, captured_graph(driver, stream));
  return kernel.module->keep_for_graph(graph);
}

}  // namespace

base::Result<void> launch_kernel(const Kernel& kernel, const LaunchConfig& config,
                                 void** parameters) {
  const auto& [x, y, z] = config.grid;
  if (x == 0 || y == 0 || z == 0) return {};
  Device& device = kernel.module->device();
  DEEPGEMM_ENTER_DEVICE(device);
  if (!kernel.module->is_current()) {
    return base::make_error(DEEPGEMM_ERROR_NOT_PREPARED,
                            "Kernel '{}' was loaded before {} was reset, and has gone with the "
                            "reset. Make the plan anew.",
                            kernel.symbol, device.name());
  }
  const Driver& driver = device.driver();
  DEEPGEMM_TRY(keep_if_captured(driver, kernel, config.stream));
  Attributes attributes = attributes_of(config);
  const CuLaunchConfig launch = {
      .grid_x = x,
      .grid_y = y,
      .grid_z = z,
      .block_x = config.block[0],
      .block_y = config.block[1],
      .block_z = config.block[2],
      .dynamic_shared_bytes = static_cast<unsigned>(kernel.needs.dynamic_shared_bytes),
      .stream = config.stream,
      .attributes = attributes.list.data(),
      .attribute_count = attributes.count};
  const CuResult result = driver.launch(&launch, kernel.function, parameters, nullptr);
  if (result != CuResult::kSuccess) return launch_error(kernel, config, result);
  return {};
}

}  // namespace deepgemm::cuda
