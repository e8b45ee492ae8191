#include "runtime/cpu_device.hpp"

#include <utility>

#include "runtime/scratch.hpp"

namespace deepgemm::runtime {
namespace {

// Done on return: the CPU has no streams, so that they may be anything.
class CpuExecutable final : public Executable {
 public:
  CpuExecutable(std::shared_ptr<const cpu::Executable> executable,
                std::unique_ptr<Scratch::Reservation> scratch)
      : executable_(std::move(executable)), scratch_(std::move(scratch)) {}

  size_t workspace_bytes() const override { return cpu::workspace_bytes(*executable_); }
  size_t workspace_alignment() const override { return 64; }
  std::string note() const override { return cpu::kernel_note(*executable_); }

  // Without a workspace of their own launches take turns.
  base::Result<void> launch(const Operands& operands, void* workspace,
                            deepgemm_stream_t) const override {
    if (workspace != nullptr || scratch_ == nullptr) {
      cpu::launch(*executable_, operands, workspace);
    } else {
      const Scratch::Use scratch(process_scratch());
      cpu::launch(*executable_, operands, scratch.data());
    }
    return {};
  }
  base::Result<void> synchronize(deepgemm_stream_t) const override { return {}; }

 private:
  std::shared_ptr<const cpu::Executable> executable_;
  std::unique_ptr<Scratch::Reservation> scratch_;  // null: nothing is needed
};

class CpuDevice final : public Device {
 public:
  using Device::Device;
  bool launchable() const override { return true; }
  base::Result<std::shared_ptr<const Executable>> make_executable(
      const intent::Problem& problem, const schedule::Choice& choice,
      const schedule::Choice*) const override {
    return make_cpu_executable(problem, choice);
  }
};

}  // namespace

std::unique_ptr<const Device> make_cpu_device() {
  return std::make_unique<CpuDevice>(cpu::host_profile());
}

base::Result<std::shared_ptr<const Executable>> make_cpu_executable(
    const intent::Problem& problem, const schedule::Choice& choice) {
  DEEPGEMM_TRY_ASSIGN(executable, cpu::make_executable(problem, choice));
  DEEPGEMM_TRY_ASSIGN(scratch, process_scratch().reserve(cpu::workspace_bytes(*executable)));
  return std::shared_ptr<const Executable>(
      std::make_shared<CpuExecutable>(std::move(executable), std::move(scratch)));
}

}  // namespace deepgemm::runtime
