#include "runtime/cuda_device.hpp"

#include <array>
#include <utility>

#include "backend/cuda/executable.hpp"
#include "backend/cuda/nvml_sampler.hpp"
#include "backend/cuda/profile.hpp"
#include "backend/cuda/stream.hpp"
#include "backend/cuda/stream_workspace.hpp"
#include "runtime/cuda_memory.hpp"
#include "runtime/device_load.hpp"

namespace deepgemm::runtime {
namespace {

cuda::CuStream stream_of(deepgemm_stream_t stream) { return static_cast<cuda::CuStream>(stream); }

class CudaExecutable final : public Executable {
 public:
  CudaExecutable(cuda::Device& gpu, std::shared_ptr<const cuda::Executable> executable)
      : gpu_(gpu), executable_(std::move(executable)) {}

  size_t workspace_bytes() const override { return executable_->workspace_bytes(); }
  size_t workspace_alignment() const override { return 256; }
  std::string note() const override { return executable_->note(); }

  base::Result<void> launch(const Operands& operands, void* workspace,
                            deepgemm_stream_t stream) const override {
    DEEPGEMM_TRY(check_reach(operands, workspace));
    cuda::LaunchOperands to;
    to.a = operands.a;
    to.b = operands.b;
    to.c = operands.c;
    to.bias = operands.bias;
    to.residual = operands.residual;
    to.scale_a = operands.scale_a;
    to.scale_b = operands.scale_b;
    to.alpha = operands.alpha;
    to.beta = operands.beta;
    to.m = operands.m;
    return executable_->launch(to, workspace, stream_of(stream));
  }
  base::Result<void> synchronize(deepgemm_stream_t stream) const override {
    return cuda::synchronize(gpu_, stream_of(stream));
  }
  bool is_current() const override { return executable_->is_current(); }
  bool is_captured(deepgemm_stream_t stream) const override {
    return executable_->is_captured(stream_of(stream));
  }
  base::Result<void> prepare_all() const override { return executable_->prepare_all(); }

 private:
  // An address that the GPU cannot read would end the context of the whole process.
  base::Result<void> check_reach(const Operands& operands, const void* workspace) const {
    const std::array<cuda::Operand, 8> given = {{{"A", operands.a},
                                                 {"B", operands.b},
                                                 {"C", operands.c},
                                                 {"bias", operands.bias},
                                                 {"residual", operands.residual},
                                                 {"scale_a", operands.scale_a},
                                                 {"scale_b", operands.scale_b},
                                                 {"workspace", workspace}}};
    DEEPGEMM_TRY_ASSIGN(platform, cuda::process_platform());
    DEEPGEMM_TRY_ASSIGN(found, platform->device_of(given));
    if (found == &gpu_) return {};
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "The operands lie on {}, and the plan is for {}: make a plan with "
                            "intent.device \"{}\".",
                            found->name(), gpu_.name(), found->name());
  }

  cuda::Device& gpu_;
  std::shared_ptr<const cuda::Executable> executable_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(cuda::Device& gpu)
      : Device(cuda::device_profile(gpu.facts())), gpu_(gpu), workspaces_(gpu), memory_(gpu) {}

  bool launchable() const override { return true; }
  bool shares_host_memory() const override { return false; }
  base::Result<std::shared_ptr<const Executable>> make_executable(
      const intent::Problem& problem, const schedule::Choice& choice,
      const schedule::Choice* fallback) const override {
    DEEPGEMM_TRY_ASSIGN(executable,
                        cuda::Executable::create(gpu_, workspaces_, problem, choice, fallback));
    return std::shared_ptr<const Executable>(
        std::make_shared<CudaExecutable>(gpu_, std::move(executable)));
  }
  bool tells_load() const override { return cuda::process_nvml() != nullptr; }
  std::optional<schedule::DeviceState> state() const override;
  void add_work(double us) const override { own_work_.add(us); }
  base::Result<void*> allocate(size_t bytes, std::string_view purpose) const override {
    return memory_.allocate(bytes, purpose);
  }
  base::Result<void> release(void* pointer) const override { return memory_.release(pointer); }
  bool owns(const void* pointer) const override { return memory_.owns(pointer); }
  deepgemm_pool_stats_t memory_stats() const override { return memory_.stats(); }
  std::string leak_report() const override { return memory_.leak_report(); }
  base::Result<void> copy(void* to, const void* from, size_t bytes) const override {
    DEEPGEMM_TRY(cuda::copy(gpu_, to, from, bytes, nullptr));
    return cuda::synchronize(gpu_, nullptr);
  }

 private:
  cuda::Device& gpu_;
  mutable cuda::StreamWorkspaces workspaces_;
  mutable CudaMemory memory_;
  mutable OwnWork own_work_{OwnWork::Clock::now()};
};

// Memory traffic is taken to be shared as the time of kernels is.
std::optional<schedule::DeviceState> CudaDevice::state() const {
  constexpr std::chrono::milliseconds kPatience{100};
  const auto own = own_work_.share(OwnWork::Clock::now());
  const cuda::Telemetry now = cuda::process_sampler().fresh(gpu_.facts().uuid, kPatience);
  const auto& busy = now[cuda::Metric::kSmLoad].value;
  if (!own || !busy) return std::nullopt;
  schedule::DeviceState state;
  state.load = load_of_others(*busy, *own);
  const double traffic = now[cuda::Metric::kMemoryLoad].value.value_or(0);
  state.bandwidth_load = *busy > 0 ? traffic * state.load / *busy : 0;
  state.free_memory_bytes = now[cuda::Metric::kFreeMemory].value.value_or(0);
  return state;
}

}  // namespace

std::unique_ptr<const Device> make_cuda_device(cuda::Device& gpu) {
  return std::make_unique<CudaDevice>(gpu);
}

}  // namespace deepgemm::runtime
