#include "backend/cuda/executable.hpp"

#include <algorithm>
#include <utility>

#include "backend/cuda/launch_kernel.hpp"
#include "backend/cuda/module_registry.hpp"
#include "backend/cuda/persisting_l2.hpp"
#include "base/hash.hpp"
#include "jit/service.hpp"

namespace deepgemm::cuda {
namespace {

WorkspaceSize workspace_of(const LaunchShape& shape) {
  constexpr size_t kAlignment = 256;  // of the partial sums behind the counters
  const size_t bytes = static_cast<size_t>(shape.counters) * sizeof(uint32_t);
  return {(bytes + kAlignment - 1) / kAlignment * kAlignment,
          static_cast<size_t>(shape.partial_bytes)};
}

int splits_of(const schedule::Choice& choice) { return std::max(choice.config.split_k, 1); }

// The operand whose residency in L2 is wished, B before A before C.
const intent::Operand* kept_operand(const intent::Problem& problem) {
  for (const intent::Operand* operand : {&problem.b, &problem.a, &problem.c}) {
    if (operand->space == MEM_SPACE_L2_CACHE) return operand;
  }
  return nullptr;
}

base::Result<std::shared_ptr<const Module>> load(Device& device, const jit::Source& source) {
  DEEPGEMM_TRY_ASSIGN(built, jit::process_service().build(source));
  const std::vector<uint8_t>& image = built->cubin();
  return process_modules().get(device, base::hash_bytes(image.data(), image.size()), image,
                               source.name);
}

}  // namespace

// Once more when the driver refuses a binary: what lay on disk may be damaged in a way that its
// checksum does not tell.
base::Result<std::shared_ptr<const Module>> build_module(Device& device,
                                                         const jit::Source& source) {
  auto module = load(device, source);
  if (module.ok() || module.error().code != DEEPGEMM_ERROR_COMPILE_FAILED) return module;
  jit::process_service().reject(source, module.error().message);
  return load(device, source);
}

base::Result<std::shared_ptr<const Executable>> Executable::create(
    Device& device, StreamWorkspaces& workspaces, const intent::Problem& problem,
    const schedule::Choice& choice, const schedule::Choice* fallback, ModuleSource modules) {
  std::shared_ptr<Executable> made(
      new Executable(device, workspaces, problem, choice, fallback, std::move(modules)));
  DEEPGEMM_TRY_ASSIGN(variant, made->build(choice, Addresses::kAligned));
  made->aligned_ = std::move(variant);
  DEEPGEMM_TRY(made->reserve());
  made->keep_in_l2();
  return std::shared_ptr<const Executable>(std::move(made));
}

// For both variants; the second one may not have been compiled yet.
base::Result<void> Executable::reserve() {
  for (const auto& [choice, addresses] :
       {std::pair{&choice_, Addresses::kAligned}, {&fallback_, Addresses::kAny}}) {
    const auto spec = choice_kernel(problem_, *choice, device_.facts().sm, addresses);
    if (!spec.ok()) continue;  // no variant
    DEEPGEMM_TRY_ASSIGN(shape, launch_shape(*spec, problem_, problem_.m, splits_of(*choice)));
    const WorkspaceSize size = workspace_of(shape);
    workspace_ = {std::max(workspace_.counter_bytes, size.counter_bytes),
                  std::max(workspace_.partial_bytes, size.partial_bytes)};
  }
  return workspaces_.reserve(workspace_);
}

base::Result<Executable::Variant> Executable::build(const schedule::Choice& choice,
                                                    Addresses addresses) const {
  DEEPGEMM_TRY_ASSIGN(spec, choice_kernel(problem_, choice, device_.facts().sm, addresses));
  DEEPGEMM_TRY_ASSIGN(shape, launch_shape(spec, problem_, problem_.m, splits_of(choice)));
  DEEPGEMM_TRY_ASSIGN(module, modules_(device_, kernel_source(spec)));
  DEEPGEMM_TRY_ASSIGN(kernel, find_kernel(module, kernel_symbol(spec),
                                          {.dynamic_shared_bytes = shape.shared_bytes}));
  DEEPGEMM_TRY_ASSIGN(resident, blocks_per_sm(kernel, shape.threads));
  return Variant{spec, std::move(kernel), splits_of(choice), std::max(resident, 1)};
}

// A wish: without it the launch is as right.
void Executable::keep_in_l2() {
  const intent::Operand* const kept = kept_operand(problem_);
  if (kept == nullptr) return;
  const auto bytes = layout::buffer_bytes(kept->layout, kept->precision);
  if (!bytes.ok() || *bytes == 0) return;
  l2_bytes_ = static_cast<size_t>(*bytes);
  const auto granted = set_persisting_l2(device_, l2_bytes_);
  l2_granted_ = granted.ok() ? *granted : 0;
}

CuAccessWindow Executable::window_for(const LaunchOperands& operands) const {
  const intent::Operand* const kept = kept_operand(problem_);
  if (kept == nullptr || l2_granted_ == 0) return {};
  const void* const base = kept == &problem_.b   ? operands.b
                           : kept == &problem_.a ? operands.a
                                                 : operands.c;
  return persisting_window(device_.facts(), base, l2_bytes_, l2_granted_);
}

std::string Executable::note() const {
  const KernelFacts& facts = aligned_.kernel.facts;
  std::string note =
      fmt::format("{} of {} threads, {} registers, {} bytes of shared memory, {} block{} an SM",
                  aligned_.kernel.symbol, aligned_.spec.config.threads(), facts.registers,
                  facts.static_shared_bytes + aligned_.kernel.needs.dynamic_shared_bytes,
                  aligned_.resident, aligned_.resident == 1 ? "" : "s");
  if (l2_bytes_ > 0) {
    note += fmt::format("; L2 set aside: {:.3g} MB of {:.3g} MB wished",
                        static_cast<double>(std::min(l2_granted_, l2_bytes_)) / 1e6,
                        static_cast<double>(l2_bytes_) / 1e6);
  }
  return note;
}

base::Result<const Executable::Variant*> Executable::any_variant() const {
  if (const Variant* ready = any_ready_.load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(mutex_);
  if (!any_) {
    DEEPGEMM_TRY_ASSIGN(variant, build(fallback_, Addresses::kAny));
    any_ = std::move(variant);
    any_ready_.store(&*any_, std::memory_order_release);
  }
  return &*any_;
}

base::Result<void> Executable::prepare_all() const {
  const auto spec = choice_kernel(problem_, fallback_, device_.facts().sm, Addresses::kAny);
  if (!spec.ok()) return {};  // no kernel takes them
  return any_variant().ok() ? base::Result<void>{} : any_variant().error();
}

base::Result<const Executable::Variant*> Executable::variant_for(const LaunchOperands& operands,
                                                                 bool captured) const {
  DEEPGEMM_TRY(check_elements(problem_, operands));
  if (suits(aligned_.spec, problem_, operands)) return &aligned_;
  if (captured && any_ready_.load(std::memory_order_acquire) == nullptr) {
    return base::make_error(
        DEEPGEMM_ERROR_NOT_PREPARED,
        "The launch is captured, and its operands (A {}, B {}, C {}) are not aligned to 16 bytes, "
        "for which the kernel has not been compiled: launch the plan once before the capture, call "
        "deepgemm_prepare, or align the operands. The capture is intact.",
        operands.a, operands.b, static_cast<const void*>(operands.c));
  }
  auto variant = any_variant();
  if (!variant.ok() && variant.error().code == DEEPGEMM_ERROR_UNSUPPORTED) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "A ({}), B ({}) or C ({}) is not aligned to 16 bytes, and the plan's "
                            "kernel needs it: {}. Align them, or refuse the family with a hook.",
                            operands.a, operands.b, static_cast<const void*>(operands.c),
                            variant.error().message);
  }
  return variant;
}

// The kernel leaves the counters zero; whether memory of the caller begins so is not known.
base::Result<void> Executable::set_workspace(LaunchOperands& operands, const LaunchShape& shape,
                                             void* given, CuStream stream, bool captured) const {
  const WorkspaceSize size = workspace_of(shape);
  if (size.bytes() == 0) return {};
  Workspace workspace;
  if (given == nullptr) {
    CuGraph graph = nullptr;
    if (captured) {
      DEEPGEMM_TRY_ASSIGN(into, captured_graph(device_.driver(), stream));
      graph = into;
    }
    DEEPGEMM_TRY_ASSIGN(own, workspaces_.take(stream, captured, graph, size));
    workspace = own;
  } else {
    workspace = {given, static_cast<std::byte*>(given) + size.counter_bytes};
    DEEPGEMM_TRY(fill(device_, workspace.counters, 0, size.counter_bytes, stream));
  }
  operands.counters = static_cast<uint32_t*>(workspace.counters);
  operands.partials = workspace.partials;
  return {};
}

// A block stays on its multiprocessor; fewer blocks than multiprocessors take one each.
uint32_t Executable::blocks_for(const Variant& variant, const LaunchShape& shape) const {
  const int sms = device_.facts().sms;
  const int granted = choice_.threads > 0 ? std::min(choice_.threads, sms) : sms;
  const int64_t most = granted < sms ? granted : int64_t{sms} * variant.resident;
  return static_cast<uint32_t>(std::min(most, shape.items));
}

bool Executable::is_current() const {
  const auto context = ContextGuard::enter(device_);
  return context.ok() && aligned_.kernel.module->is_current();
}

bool Executable::is_captured(CuStream stream) const {
  const auto captured = [&]() -> base::Result<bool> {
    DEEPGEMM_ENTER_DEVICE(device_);
    return is_capturing(device_.driver(), stream);
  }();
  return !captured.ok() || *captured;
}

base::Result<void> Executable::launch(LaunchOperands operands, void* workspace,
                                      CuStream stream) const {
  DEEPGEMM_ENTER_DEVICE(device_);
  DEEPGEMM_TRY_ASSIGN(captured, is_capturing(device_.driver(), stream));
  DEEPGEMM_TRY_ASSIGN(variant, variant_for(operands, captured));
  operands.splits = variant->splits;
  DEEPGEMM_TRY_ASSIGN(shape, launch_shape(variant->spec, problem_, operands.m, operands.splits));
  DEEPGEMM_TRY(set_workspace(operands, shape, workspace, stream, captured));
  kernel::GemmArguments arguments = launch_arguments(variant->spec, problem_, operands);
  const CuAccessWindow window = window_for(operands);
  LaunchConfig config;
  config.grid = {blocks_for(*variant, shape), 1, 1};
  config.block = {static_cast<uint32_t>(shape.threads), 1, 1};
  config.window = &window;
  config.stream = stream;
  void* parameters[] = {&arguments};
  return launch_kernel(variant->kernel, config, parameters);
}

}  // namespace deepgemm::cuda
