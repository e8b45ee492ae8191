#include "backend/cuda/candidate_kernel.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/formats.hpp"
#include "contract/path.hpp"

namespace deepgemm::cuda {
namespace {

int element_bytes(gemm_precision_t precision) {
  return static_cast<int>(base::storage_bytes(precision, 1));
}

// Of C and the residual, which are written and read alike.
int output_bytes(const intent::Problem& problem) {
  const int c = element_bytes(problem.c.precision);
  return problem.epilogue.residual ? std::max(c, element_bytes(problem.epilogue.residual_precision))
                                   : c;
}

AddressAlignment alignment_for(const intent::Problem& problem, Addresses addresses) {
  if (addresses == Addresses::kAligned) return {};
  return {element_bytes(problem.a.precision), element_bytes(problem.b.precision),
          output_bytes(problem)};
}

bool is_multiple(const void* address, int bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

KernelRequest request_for(const intent::Problem& problem, contract::PathId path,
                          const schedule::Family& family, const schedule::KernelConfig& config,
                          int sm, Addresses addresses) {
  KernelRequest request;
  request.path = path;
  request.family = family.name;
  request.config = config;
  request.arch = arch_name(sm);
  request.alignment = alignment_for(problem, addresses);
  return request;
}

}  // namespace

std::string arch_name(int sm) { return fmt::format("sm_{}{}", sm, sm >= 90 ? "a" : ""); }

base::Result<KernelSpec> choice_kernel(const intent::Problem& problem,
                                       const schedule::Choice& choice, int sm,
                                       Addresses addresses) {
  KernelRequest request =
      request_for(problem, choice.path, *choice.family, choice.config, sm, addresses);
  request.stochastic = choice.certificate.bound.stochastic_output;
  return kernel_spec(problem, request);
}

bool suits(const KernelSpec& spec, const intent::Problem& problem, const LaunchOperands& operands) {
  const kernel::Config& config = spec.config;
  const auto quad = [](gemm_precision_t precision) {
    return std::min(4 * element_bytes(precision), 16);
  };
  if (!is_multiple(operands.a, config.a.width) || !is_multiple(operands.b, config.b.width)) {
    return false;
  }
  return !config.epilogue.quads ||
         (is_multiple(operands.c, quad(problem.c.precision)) &&
          is_multiple(operands.residual, quad(problem.epilogue.residual_precision)));
}

base::Result<void> check_elements(const intent::Problem& problem, const LaunchOperands& operands) {
  struct Named {
    const char* name;
    const void* address;
    gemm_precision_t precision;
  };
  const std::array<Named, 7> all = {{
      {"A", operands.a, problem.a.precision},
      {"B", operands.b, problem.b.precision},
      {"C", operands.c, problem.c.precision},
      {"bias", operands.bias, problem.epilogue.bias_precision},
      {"residual", operands.residual, problem.epilogue.residual_precision},
      {"scale_a", operands.scale_a, PRECISION_FP32},
      {"scale_b", operands.scale_b, PRECISION_FP32},
  }};
  for (const Named& operand : all) {
    if (operand.address == nullptr) continue;
    const int bytes = element_bytes(operand.precision);
    if (is_multiple(operand.address, bytes)) continue;
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}: {} is not a multiple of {} bytes, the size of its {} elements; a "
                            "GPU cannot read them there",
                            operand.name, operand.address, bytes,
                            base::find_format(operand.precision)->name);
  }
  return {};
}

std::optional<std::string> missing_kernel(const intent::Problem& problem,
                                          const schedule::Candidate& candidate, int sm,
                                          int64_t shared_bytes_per_block, Addresses addresses) {
  const auto spec = kernel_spec(problem, request_for(problem, candidate.path, *candidate.family,
                                                     candidate.config, sm, addresses));
  if (!spec.ok()) return spec.error().message;
  const auto shape = launch_shape(*spec, problem, problem.m, candidate.config.split_k);
  if (!shape.ok()) return shape.error().message;
  if (shape->shared_bytes > shared_bytes_per_block) {
    return fmt::format("the kernel takes {} bytes of shared memory; a block has {}",
                       shape->shared_bytes, shared_bytes_per_block);
  }
  return std::nullopt;
}

base::Result<std::vector<jit::Source>> choice_sources(const intent::Problem& problem,
                                                      const schedule::Choice& choice, int sm) {
  std::vector<jit::Source> sources;
  for (const Addresses addresses : {Addresses::kAligned, Addresses::kAny}) {
    const auto spec = choice_kernel(problem, choice, sm, addresses);
    if (!spec.ok() && addresses == Addresses::kAny) continue;  // the family needs aligned addresses
    if (!spec.ok()) return spec.error();
    jit::Source source = kernel_source(*spec);
    if (sources.empty() || source.text != sources.front().text) {
      sources.push_back(std::move(source));
    }
  }
  return sources;
}

}  // namespace deepgemm::cuda
