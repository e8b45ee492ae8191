#include "backend/cpu/executable.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "backend/cpu/amx_product.hpp"
#include "backend/cpu/fma_product.hpp"
#include "backend/cpu/operand_view.hpp"
#include "base/formats.hpp"
#include "contract/path.hpp"

namespace deepgemm::cpu {
namespace {

using contract::PathId;

constexpr int64_t kMaxBlock = 4096;  // of block_m, block_n and block_k
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 32;
constexpr int64_t kCacheLine = 64;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

const IsaKernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kAvx512Kernels;
  if (isa == Isa::kAvx2) return kAvx2Kernels;
#endif
  static_cast<void>(isa);
  return kGenericKernels;
}

// Null for families on vector units.
base::Result<const AmxKernels*> tile_kernels(const schedule::Family& family, Isa isa) {
  if (std::string_view(family.name) != "cpu_amx") return nullptr;
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return &kAmxKernels;
#endif
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                          "family cpu_amx needs tile units, and this process uses {}: plan for "
                          "family cpu_blocked",
                          isa_name(isa));
}

base::Result<Multiplicand> multiplicand_of(PathId path, gemm_precision_t a) {
  switch (path) {
    case PathId::kFp64:
    case PathId::kFp32Acc64:
      return Multiplicand::kDouble;
    case PathId::kInt8:
      return Multiplicand::kInteger;
    case PathId::kFp32:
    case PathId::kFp16:
    case PathId::kBf16:
    case PathId::kFp8:
    case PathId::kW8A16:
    case PathId::kW4A16:
      return Multiplicand::kFloat;
    case PathId::kW4A8:  // with INT8 the path promises exact sums within a group: FP64 has no error
                         // there
      return a == PRECISION_INT8 ? Multiplicand::kDouble : Multiplicand::kFloat;
    case PathId::kTf32:
    case PathId::kTf32x3:
    case PathId::kTf32Bf16:
    case PathId::kBf16x3:
      break;
  }
  return base::make_error(
      DEEPGEMM_ERROR_UNSUPPORTED,
      "path {} is an arithmetic of tensor cores; the CPU backend multiplies FP32 "
      "operands as they are: choose path fp32",
      contract::path_info(path).name);
}

base::Result<void> check_formats(const intent::Problem& problem, PathId path, bool packed_b) {
  if (!source_of(problem.a.precision)) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "A is {}; the CPU backend reads A as FP64, FP32, FP16, BF16, FP8 or INT8",
        base::find_format(problem.a.precision)->name);
  }
  if (!packed_b && !source_of(problem.b.precision)) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "B is {} and not packed; INT4 weights are read from packed weights only",
        base::find_format(problem.b.precision)->name);
  }
  if (!source_of(problem.c.precision)) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "C is {}; outputs of less than one byte an element cannot be stored by "
                            "several threads: choose INT8 or a float format",
                            base::find_format(problem.c.precision)->name);
  }
  for (const auto& [used, precision, name] :
       {std::tuple(problem.epilogue.bias, problem.epilogue.bias_precision, "bias"),
        std::tuple(problem.epilogue.residual, problem.epilogue.residual_precision, "residual")}) {
    if (used && !source_of(precision)) {
      return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, "{} must not be an INT4 format", name);
    }
  }
  if (path == PathId::kInt8 &&
      (problem.a.precision != PRECISION_INT8 || problem.b.precision != PRECISION_INT8)) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED, "path int8 multiplies INT8 by INT8, but A is {} and B is {}",
        base::find_format(problem.a.precision)->name, base::find_format(problem.b.precision)->name);
  }
  return {};
}

base::Result<void> check_blocks(const schedule::KernelConfig& config) {
  for (const auto& [name, value] :
       {std::pair("block_m", config.block_m), std::pair("block_n", config.block_n),
        std::pair("block_k", config.block_k)}) {
    if (value < 1 || value > kMaxBlock) {
      return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                              "{} is {}; the CPU backend works with 1 ... {}", name, value,
                              kMaxBlock);
    }
  }
  return {};
}

int slots_for(const Executable& executable, int threads) {
  const intent::Problem& problem = executable.problem;
  const int granted = executable.pool->threads();
  const int wanted = threads > 0 ? std::min(threads, granted) : granted;
  const int64_t tiles = ceil_div(problem.m, executable.block_m) *
                        ceil_div(problem.output_columns(), executable.tile_columns());
  return static_cast<int>(std::clamp<int64_t>(tiles * problem.batch, 1, wanted));
}

}  // namespace

int64_t Executable::column_tiles() const {
  return ceil_div(problem.output_columns(), tile_columns());
}

int64_t Executable::padded_n() const {
  const int64_t part = round_up(tile_columns(), kPanel);
  return swiglu() ? 2 * part : part;
}

int64_t Executable::padded_m() const { return round_up(block_m, 16); }

// The largest of the products that a launch may turn to: integers to FP64, tile units to FMA, when
// the packed weights need it.
int64_t Executable::a_bytes() const {
  const int64_t k = problem.k;
  const bool integers = multiplicand == Multiplicand::kInteger;
  int64_t bytes = 0;
  if (multiplicand != Multiplicand::kDouble) {
    bytes = FmaShape(k, block_k, integers).a_values(block_m) * 4;
  }
  if (multiplicand != Multiplicand::kFloat) {
    bytes = std::max(bytes, FmaShape(k, block_k, false).a_values(block_m) * 8);
  }
  if (amx != nullptr) bytes = std::max(bytes, AmxShape{k, integers}.a_bytes(block_m));
  return round_up(bytes, kCacheLine);
}

int64_t Executable::scratch_bytes() const {
  const FmaShape shape(problem.k, block_k, false);
  int64_t bytes =
      shape.stage_values(block_m, padded_n()) * (multiplicand == Multiplicand::kFloat ? 4 : 8);
  if (amx != nullptr) bytes = std::max(bytes, AmxShape::scratch_bytes(block_m, shape));
  return round_up(bytes, kCacheLine);
}

int64_t Executable::slot_bytes() const {
  const int64_t rows = 2 * padded_n() * static_cast<int64_t>(sizeof(double));
  return sums_bytes() + scratch_bytes() + rows;
}

int64_t Executable::skip_offset() const { return slots_offset() + slots * slot_bytes(); }

int64_t Executable::workspace_bytes() const {
  const bool kept_norms = problem.requires_packed_b();
  return skip_offset() + static_cast<int64_t>(skip_workspace_bytes(skip, problem, kept_norms));
}

base::Result<std::shared_ptr<const Executable>> make_executable(const intent::Problem& problem,
                                                                const schedule::Choice& choice,
                                                                const ExecutableOptions& options) {
  if (choice.family == nullptr || choice.family->backend != schedule::Backend::kCpu) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "family {} is not one of the CPU backend's: plan for device \"cpu\"",
                            choice.family == nullptr ? "(none)" : choice.family->name);
  }
  DEEPGEMM_TRY_ASSIGN(multiplicand, multiplicand_of(choice.path, problem.a.precision));
  DEEPGEMM_TRY(check_formats(problem, choice.path, choice.packed_b));
  DEEPGEMM_TRY(check_blocks(choice.config));
  const Isa isa = options.isa.value_or(cpu_device().isa);
  if (isa > cpu_device().best_isa) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, "instruction set {} is not available on {}",
                            isa_name(isa), cpu_device().model);
  }

  auto executable = std::make_shared<Executable>();
  executable->problem = problem;
  executable->kernels = &kernels_of(isa);
  executable->pool = options.pool != nullptr ? options.pool : &process_pool();
  executable->multiplicand = multiplicand;
  DEEPGEMM_TRY_ASSIGN(amx, tile_kernels(*choice.family, isa));
  executable->amx = amx;
  executable->block_m = std::min<int64_t>(choice.config.block_m, std::max<int64_t>(problem.m, 1));
  // Whole panels, so that tiles of packed weights begin with one.
  executable->block_n = round_up(choice.config.block_n, executable->swiglu() ? 2 * kPanel : kPanel);
  executable->block_k = choice.config.block_k;
  executable->slots = slots_for(*executable, choice.threads);
  const contract::ErrorBound& bound = choice.certificate.bound;
  executable->stochastic_output = bound.stochastic_output;
  executable->skip = {
      {bound.skip_relative, bound.skip_absolute}, executable->block_m, executable->block_k};
  if (problem.requires_packed_b() && amx == nullptr && multiplicand == Multiplicand::kFloat &&
      problem.m > 0 && problem.m <= kStreamRows) {
    executable->exact_stream =
        make_exact_stream(WordFormat::kInt4, static_cast<int>(problem.m), isa);
  }
  if (executable->workspace_bytes() > kMaxWorkspaceBytes) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "tiles of {} x {} x {} with K = {} need {} bytes of workspace, more "
                            "than {}; choose a smaller block_m",
                            executable->block_m, executable->block_n, executable->block_k,
                            problem.k, executable->workspace_bytes(), kMaxWorkspaceBytes);
  }
  if (executable->slots > 1) executable->pool->start();
  return std::shared_ptr<const Executable>(std::move(executable));
}

std::string kernel_note(const Executable& executable) { return executable.exact_stream.note; }

size_t workspace_bytes(const Executable& executable) {
  return static_cast<size_t>(executable.workspace_bytes());
}

}  // namespace deepgemm::cpu
