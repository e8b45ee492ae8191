#include "backend/cuda/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "backend/cuda/tile_rules.hpp"
#include "base/formats.hpp"
#include "contract/bound.hpp"

namespace deepgemm::cuda {
namespace {

using contract::PathId;
using kernel::Access;
using kernel::Activation;
using kernel::Config;
using kernel::Format;
using kernel::Math;

template <class... Values>
base::Error unsupported(fmt::format_string<Values...> text, Values&&... values) {
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, text, std::forward<Values>(values)...);
}

std::optional<Format> format_of(gemm_precision_t precision) {
  switch (precision) {
    case PRECISION_FP64:
      return Format::kFp64;
    case PRECISION_FP32:
    case PRECISION_TF32:
      return Format::kFp32;
    case PRECISION_FP16:
      return Format::kFp16;
    case PRECISION_BF16:
      return Format::kBf16;
    case PRECISION_FP8_E4M3:
      return Format::kE4m3;
    case PRECISION_FP8_E5M2:
      return Format::kE5m2;
    case PRECISION_INT8:
      return Format::kInt8;
    default:
      return std::nullopt;
  }
}

bool is_fp8(Format format) { return format == Format::kE4m3 || format == Format::kE5m2; }
bool has_scales(Format format) { return is_fp8(format) || format == Format::kInt8; }

// CUDA cores: every format is widened exactly.
base::Result<Math> simt_math(PathId path) {
  switch (path) {
    case PathId::kFp64:
    case PathId::kFp32Acc64:
      return Math::kFp64;
    case PathId::kFp32:
    case PathId::kFp16:
    case PathId::kBf16:
    case PathId::kFp8:
    case PathId::kW8A16:
      return Math::kFp32;
    case PathId::kInt8:
      return Math::kInt32;
    default:
      return unsupported("simt has no kernel of the path {}", contract::path_info(path).name);
  }
}

// Tensor cores, and the first architecture that has them for this.
struct TensorMath {
  Math math;
  int sm;
};
base::Result<TensorMath> tensor_math(PathId path, Format a, Format b) {
  switch (path) {
    case PathId::kTf32:
      return TensorMath{Math::kTf32, 80};
    case PathId::kTf32x3:
      return TensorMath{Math::kTf32x3, 80};
    case PathId::kTf32Bf16:
      return TensorMath{Math::kTf32Bf16, 80};
    case PathId::kFp64:
    case PathId::kFp32Acc64:
      return TensorMath{a == Format::kFp64 || b == Format::kFp64 ? Math::kFp64 : Math::kFp32Acc64,
                        80};
    case PathId::kFp16:
      return TensorMath{Math::kFp16, 75};
    case PathId::kBf16:
      return TensorMath{Math::kBf16, 80};
    case PathId::kInt8:
      return TensorMath{Math::kInt8, 80};
    case PathId::kFp8:
      return TensorMath{Math::kFp8, 89};
    case PathId::kW8A16:
      if (a == Format::kFp16) return TensorMath{Math::kFp16, 75};
      if (a == Format::kBf16) return TensorMath{Math::kBf16, 80};
      break;
    default:
      break;
  }
  return unsupported("no tensor-core kernel takes the path {} with activations of this format",
                     contract::path_info(path).name);
}

int sm_of(const std::string& arch) {
  return arch.starts_with("sm_") ? std::atoi(arch.c_str() + 3) : 0;
}

base::Result<Math> math_of(const KernelRequest& request, Format a, Format b) {
  if (request.family == "simt") {
    DEEPGEMM_TRY_ASSIGN(math, simt_math(request.path));
    if (math == Math::kInt32 && (a != Format::kInt8 || b != Format::kInt8)) {
      return unsupported("the path int8 takes INT8 operands only");
    }
    return math;
  }
  if (!has_kernels(request.family)) {
    return unsupported("there are no kernels of the family {} yet", request.family);
  }
  DEEPGEMM_TRY_ASSIGN(tensor, tensor_math(request.path, a, b));
  if (sm_of(request.arch) < tensor.sm) {
    return unsupported("{} has no tensor cores for the path {}: sm_{} is the first", request.arch,
                       contract::path_info(request.path).name, tensor.sm);
  }
  const bool stored_so = tensor.math == Math::kInt8  ? a == Format::kInt8 && b == Format::kInt8
                         : tensor.math == Math::kFp8 ? is_fp8(a) && is_fp8(b)
                                                     : true;
  if (!stored_so) {
    return unsupported("tensor cores multiply operands of 8 bits on the path {} as they are stored",
                       contract::path_info(request.path).name);
  }
  return tensor.math;
}

// An operand as the kernels see it: rows of A, or columns of op(B), and k.
struct Steps {
  int64_t row = 0, k = 0;  // elements; blocked: see kernel::OperandArgument
  bool blocked = false;
  bool k_is_column = true;  // of the stored matrix
};

Steps steps_of(const layout::MatrixLayout& layout, bool k_is_column) {
  Steps steps;
  steps.blocked = layout.blocked;
  steps.k_is_column = k_is_column;
  if (layout.blocked) {
    constexpr int64_t kEdge = layout::kBlockedTile;
    steps.row = (layout.cols + kEdge - 1) / kEdge * kEdge * kEdge;
    return steps;
  }
  steps.row = k_is_column ? layout.row_stride : layout.col_stride;
  steps.k = k_is_column ? layout.col_stride : layout.row_stride;
  return steps;
}

Steps steps_of_a(const intent::Problem& problem) {
  const bool plain = problem.operation == GEMM_OP_NN || problem.operation == GEMM_OP_NT;
  return steps_of(problem.a.layout, plain);
}
Steps steps_of_b(const intent::Problem& problem) {
  const bool plain = problem.operation == GEMM_OP_NN || problem.operation == GEMM_OP_TN;
  return steps_of(problem.b.layout, !plain);
}

// Batches that follow each other without a gap, for blocked layouts, have a stride as others do.
int64_t power_of_two_in(int64_t value) { return value == 0 ? 16 : value & -value; }

bool is_swiglu(const intent::Problem& problem) {
  return problem.epilogue.activation == GEMM_ACTIVATION_SWIGLU;
}

// `neighbour`: an offset in elements that accesses start at beside those of the layout; 0: none.
kernel::Operand operand_of(const intent::Operand& operand, Format format, const Steps& steps,
                           int address_alignment, int64_t neighbour) {
  kernel::Operand to;
  to.format = format;
  int64_t other = 0;  // the step that is not 1; where it leads nowhere it does not count
  const int64_t rows = steps.k_is_column ? operand.layout.rows : operand.layout.cols;
  const int64_t k = steps.k_is_column ? operand.layout.cols : operand.layout.rows;
  if (steps.blocked) {
    to.access = steps.k_is_column ? Access::kBlocked : Access::kBlockedAcross;
  } else if (steps.k == 1) {
    to.access = Access::kAlongK;
    other = rows > 1 ? steps.row : 0;
    neighbour = 0;
  } else if (steps.row == 1) {
    to.access = Access::kAlongRows;
    other = k > 1 ? steps.k : 0;
  } else {
    to.access = Access::kStrided;
  }
  const int bytes = kernel::format_bytes(format);
  const int64_t batch = operand.layout.batch > 1 ? operand.layout.batch_stride : 0;
  int64_t width = std::min<int64_t>(address_alignment, 16);
  for (const int64_t step : {other, batch, neighbour}) {
    width = std::min(width, power_of_two_in(step * bytes));
  }
  to.width =
      to.access == Access::kStrided ? bytes : static_cast<int>(std::max<int64_t>(width, bytes));
  to.whole = to.access == Access::kAlongK && k * bytes % 16 == 0;
  return to;
}

Activation activation_of(gemm_activation_t activation) {
  switch (activation) {
    case GEMM_ACTIVATION_RELU:
      return Activation::kRelu;
    case GEMM_ACTIVATION_GELU:
      return Activation::kGelu;
    case GEMM_ACTIVATION_GELU_TANH:
      return Activation::kGeluTanh;
    case GEMM_ACTIVATION_SILU:
      return Activation::kSilu;
    case GEMM_ACTIVATION_SWIGLU:
      return Activation::kSwiglu;
    case GEMM_ACTIVATION_NONE:
      break;
  }
  return Activation::kNone;
}

// Four elements of a row together: no step within, and rows that start at multiples of four.
bool fits_quads(const intent::Problem& problem, Format output, int alignment) {
  const layout::MatrixLayout& c = problem.c.layout;
  const auto aligned = [&](int64_t step, int bytes) {
    return step % 4 == 0 && alignment % std::min(4 * bytes, 16) == 0;
  };
  const int bytes = kernel::format_bytes(output);
  if (c.col_stride != 1 || !aligned(c.rows > 1 ? c.row_stride : 0, bytes)) return false;
  if (c.batch > 1 && c.batch_stride % 4 != 0) return false;
  const intent::Epilogue& epilogue = problem.epilogue;
  return !epilogue.residual ||
         aligned(epilogue.residual_row_stride,
                 static_cast<int>(base::storage_bytes(epilogue.residual_precision, 1)));
}

base::Result<kernel::Epilogue> epilogue_of(const intent::Problem& problem,
                                           const KernelRequest& request) {
  const std::optional<Format> output = format_of(problem.c.precision);
  const std::optional<Format> bias = format_of(problem.epilogue.bias_precision);
  const std::optional<Format> residual = format_of(problem.epilogue.residual_precision);
  if (!output || *output == Format::kInt8) {
    return unsupported("GPU kernels write FP64, FP32, FP16, BF16 and FP8 outputs only");
  }
  if (problem.c.layout.blocked) return unsupported("GPU kernels write no blocked C");
  kernel::Epilogue to;
  to.output = *output;
  to.activation = activation_of(problem.epilogue.activation);
  to.bias = problem.epilogue.bias;
  to.residual = problem.epilogue.residual;
  if ((to.bias && !bias) || (to.residual && !residual)) {
    return unsupported("GPU kernels read no bias or residual of 4 bits");
  }
  if (to.bias) to.bias_format = *bias;
  if (to.residual) to.residual_format = *residual;
  to.stochastic = request.stochastic;
  to.quads = fits_quads(problem, *output, request.alignment.c);
  return to;
}

// Values of k that share a factor; 0: all do.
int64_t scale_group(const intent::Problem& problem) {
  const gemm_dequant_strategy_t strategy = problem.contract.dequant_strategy;
  int64_t group = 0;
  if (strategy == DEQUANT_STRATEGY_PER_GROUP) group = problem.contract.group_size;
  if (strategy == DEQUANT_STRATEGY_BLOCK_128) group = 128;
  return group >= problem.k ? 0 : group;
}

void set_totals(const intent::Problem& problem, Config& config) {
  // As schedule/family.cpp: sums of 8-bit codes stay below 2^31 for so long.
  constexpr int64_t kInt32Chain = 126976;
  if (has_scales(config.a.format) || has_scales(config.b.format)) {
    const int64_t group = scale_group(problem);
    config.scaled = group > 0;
    config.promote = static_cast<int>(group);
    config.epilogue.row_scale = group == 0 && has_scales(config.a.format);
    config.epilogue.column_scale = group == 0 && has_scales(config.b.format);
  }
  if (config.promote > 0) return;
  if (config.math == Math::kFp8) config.promote = contract::kPromotionInterval;
  if (kernel::is_integer(config.math) && problem.k > kInt32Chain) config.promote = kInt32Chain;
}

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

bool has_kernels(const std::string& family) {
  return family == "simt" || family == "sm80" || family == "skinny";
}

base::Result<KernelSpec> kernel_spec(const intent::Problem& problem, const KernelRequest& request) {
  if (problem.requires_packed_b()) return unsupported("{} reads no packed weights", request.family);
  const std::optional<Format> a = format_of(problem.a.precision);
  const std::optional<Format> b = format_of(problem.b.precision);
  if (!a || !b) return unsupported("{} reads no operands of 4 bits", request.family);
  KernelSpec spec{request.family, request.arch, {}};
  Config& config = spec.config;
  const schedule::KernelConfig& tiling = request.config;
  config.block_m = tiling.block_m;
  config.block_n = tiling.block_n;
  config.block_k = tiling.block_k;
  config.warp_m = tiling.warp_m;
  config.warp_n = tiling.warp_n;
  config.stages = tiling.stages;
  config.split = tiling.split_k > 1;
  DEEPGEMM_TRY_ASSIGN(math, math_of(request, *a, *b));
  config.math = math;
  const int64_t half = is_swiglu(problem) ? problem.n / 2 : 0;
  config.a = operand_of(problem.a, *a, steps_of_a(problem), request.alignment.a, 0);
  config.b = operand_of(problem.b, *b, steps_of_b(problem), request.alignment.b, half);
  // M is a size of the launch, N one of the plan.
  if (config.b.access == Access::kAlongRows && half == 0) {
    config.b.whole = problem.n * kernel::format_bytes(*b) % 16 == 0;
  }
  DEEPGEMM_TRY_ASSIGN(epilogue, epilogue_of(problem, request));
  config.epilogue = epilogue;
  // What several tiles read must stay in the second-level cache for them, whatever the wish.
  config.a.streaming = problem.a.access == ACCESS_PATTERN_STREAMING &&
                       problem.output_columns() <= config.output_columns(config.block_n);
  config.b.streaming = problem.b.access == ACCESS_PATTERN_STREAMING && problem.m <= config.block_m;
  set_totals(problem, config);
  if (request.fixed_sizes) {
    config.fixed_n = static_cast<int>(problem.n);
    config.fixed_k = static_cast<int>(problem.k);
  }
  if (request.family == "skinny") {
    if (kernel::multiplicand_bytes(config.math) > 2) {
      return unsupported("skinny has no kernel of FP32 and FP64 operands");
    }
    config.warps_k = tiling.block_k / std::max(tiling.warp_k, 1);
    DEEPGEMM_TRY(check_skinny_tiling(tiling, config));
    return spec;
  }
  const bool simt = request.family == "simt";
  DEEPGEMM_TRY(simt ? check_simt_tiling(tiling, config)
                    : check_sm80_tiling(tiling, config, sm_of(request.arch)));
  config.resident = simt ? simt_resident_blocks(config, sm_of(request.arch)) : 1;
  return spec;
}

base::Result<LaunchShape> launch_shape(const KernelSpec& spec, const intent::Problem& problem,
                                       int64_t m, int splits) {
  constexpr int64_t kMostItems = std::numeric_limits<int32_t>::max();
  constexpr int64_t kLargest = kMostItems - 4096;  // sizes are rounded up to tiles
  for (const int64_t size : {m, problem.n, problem.k, problem.batch}) {
    if (size > kLargest) {
      return unsupported("a size of {} is beyond the {} of GPU kernels", size, kLargest);
    }
  }
  const Config& config = spec.config;
  const int64_t rows = ceil_div(m, config.block_m);
  const int64_t columns = ceil_div(problem.output_columns(), config.output_columns(config.block_n));
  const int64_t parts = config.split ? splits : 1;
  // Each factor is below 2^31: two of them fit 63 bits, and more are compared by division.
  const int64_t plane = rows * columns;
  const int64_t layers = problem.batch * parts;
  if (plane > 0 && layers > kMostItems / plane) {
    return unsupported("{} x {} tiles in {} layers are more than the {} of GPU kernels", rows,
                       columns, layers, kMostItems);
  }
  LaunchShape shape;
  shape.threads = config.threads();
  shape.shared_bytes = spec.family == "simt"   ? kernel::simt_shared_bytes(config)
                       : spec.family == "sm80" ? kernel::sm80_shared_bytes(config)
                                               : kernel::skinny_shared_bytes(config);
  shape.items = plane * layers;
  if (config.split) {
    shape.partial_bytes =
        shape.items * config.block_m * config.block_n * kernel::total_bytes(config);
    shape.counters = plane * problem.batch;
  }
  return shape;
}

kernel::GemmArguments launch_arguments(const KernelSpec& spec, const intent::Problem& problem,
                                       const LaunchOperands& operands) {
  const auto operand = [](const void* base, const intent::Operand& from, const Steps& steps) {
    return kernel::OperandArgument{base, steps.row, steps.k, from.layout.batch_stride};
  };
  const bool tensor = problem.contract.dequant_strategy == DEQUANT_STRATEGY_PER_TENSOR;
  const int64_t groups =
      spec.config.scaled ? ceil_div(problem.k, spec.config.promote) : (tensor ? 0 : 1);
  const bool blocks = problem.contract.dequant_strategy == DEQUANT_STRATEGY_BLOCK_128;
  kernel::GemmArguments to = {};
  to.a = operand(operands.a, problem.a, steps_of_a(problem));
  to.b = operand(operands.b, problem.b, steps_of_b(problem));
  to.scale_a = {operands.scale_a, groups, 1};
  to.scale_b = {operands.scale_b, groups, blocks ? 128 : 1};
  to.c = operands.c;
  to.c_row_step = problem.c.layout.row_stride;
  to.c_column_step = problem.c.layout.col_stride;
  to.c_batch_step = problem.c.layout.batch_stride;
  to.bias = operands.bias;
  to.residual = operands.residual;
  to.residual_row_step = problem.epilogue.residual_row_stride;
  to.residual_batch_step = problem.m * problem.epilogue.residual_row_stride;
  to.alpha = operands.alpha;
  to.beta = operands.beta;
  to.seed = problem.contract.seed;
  to.m = static_cast<int>(operands.m);
  to.n = static_cast<int>(problem.n);
  to.k = static_cast<int>(problem.k);
  to.batch = static_cast<int>(problem.batch);
  to.splits = spec.config.split ? operands.splits : 1;
  to.raster = operands.raster;
  to.partials = operands.partials;
  to.counters = operands.counters;
  return to;
}

}  // namespace deepgemm::cuda
