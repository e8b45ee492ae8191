#include "runtime/launch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/formats.hpp"
#include "base/trace.hpp"
#include "intent/problem.hpp"
#include "runtime/memory_range.hpp"
#include "runtime/packed_weights.hpp"
#include "runtime/reevaluation.hpp"

namespace deepgemm::runtime {
namespace {

template <class... Args>
base::Error invalid(fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

bool stores_a_transposed(const intent::Problem& problem) {
  return problem.operation == GEMM_OP_TN || problem.operation == GEMM_OP_TT;
}

bool has_scales(gemm_precision_t precision) {
  return precision == PRECISION_INT8 || base::is_fp8(precision) || base::is_int4(precision);
}

ScaleGrid scale_grid(const intent::Problem& problem, gemm_precision_t precision, int64_t channels,
                     int64_t block_channels) {
  if (!has_scales(precision)) return {};
  constexpr int64_t kBlock = 128;
  const auto grid = [&](int64_t channels_per_scale, int64_t k_per_scale) {
    const int64_t per_row = std::max<int64_t>(channels_per_scale, 1);
    const int64_t per_col = std::max<int64_t>(k_per_scale, 1);
    return ScaleGrid{(channels + per_row - 1) / per_row, (problem.k + per_col - 1) / per_col,
                     per_row, per_col};
  };
  switch (problem.contract.dequant_strategy) {
    case DEQUANT_STRATEGY_PER_TENSOR:
      return grid(channels, problem.k);
    case DEQUANT_STRATEGY_PER_GROUP:
      return grid(1, problem.contract.group_size);
    case DEQUANT_STRATEGY_BLOCK_128:
      return grid(block_channels, kBlock);
    default:
      return grid(1, problem.k);
  }
}

// An operand that the plan needs, or does not know, against what the caller gave.
base::Result<void> check_presence(const char* name, const void* given, bool needed, bool known,
                                  const char* field) {
  if (needed && given == nullptr) {
    return invalid("{}: is NULL; the plan reads it ({})", name, field);
  }
  if (!known && given != nullptr) {
    return invalid("{}: is given, but the plan has no use for it ({}); leave it NULL", name, field);
  }
  return {};
}

base::Result<void> check_run_time_values(const intent::Problem& problem,
                                         const gemm_launch_args_t& args, Operands& operands) {
  for (const int64_t value : args.reserved) {
    if (value != 0) return invalid("args.reserved: must be zero, has {}", value);
  }
  operands.m = args.actual_m != nullptr ? *args.actual_m : problem.m;
  if (operands.m < 0 || operands.m > problem.m) {
    return invalid(
        "actual_m: {} is outside 0 ... {}, the M of the plan; make a plan for a larger M",
        operands.m, problem.m);
  }
  operands.alpha = args.alpha != nullptr ? *args.alpha : problem.alpha;
  operands.beta = args.beta != nullptr ? *args.beta : problem.beta;
  if (!std::isfinite(operands.alpha)) return invalid("alpha: {} is not finite", operands.alpha);
  if (!std::isfinite(operands.beta)) return invalid("beta: {} is not finite", operands.beta);
  if (operands.beta != 0 && problem.beta == 0) {
    return invalid(
        "beta: {}, but the plan's error bound is for beta = 0; declare intent.beta as any "
        "other value, and beta is free at launch",
        operands.beta);
  }
  return {};
}

base::Result<void> check_b(const PlanData& plan, const gemm_launch_args_t& args, bool needed,
                           Operands& operands) {
  const intent::Problem& problem = plan.problem();
  DEEPGEMM_TRY(check_presence("B", args.B, needed, true, "op(B)"));
  if (args.B == nullptr) return {};
  const deepgemm_packed_weights_t* const packed = find_packed(args.B);
  if (packed != nullptr && !plan.device->shares_host_memory()) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "B: packed weights lie in host memory, and kernels of {} read B as it "
                            "is declared; pass its address on the device",
                            plan.device->profile().name);
  }
  if (packed == nullptr) {
    if (plan.choice().packed_b) {
      return invalid(
          "B: must be packed weights for this plan ({} weights), and {} is no live "
          "deepgemm_packed_weights_t; make it with deepgemm_pack_weights",
          base::find_format(problem.b.precision)->name, args.B);
    }
    operands.b = args.B;
    return {};
  }
  const deepgemm_packed_info_t& info = packed->info;
  if (info.in_features != problem.k || info.out_features != problem.n) {
    return invalid("B: packed weights of {} x {} (K x N) do not fit a plan with K = {}, N = {}",
                   info.in_features, info.out_features, problem.k, problem.n);
  }
  const gemm_precision_t precision = problem.b.precision;
  if (info.precision != precision && !(base::is_int4(info.precision) && base::is_int4(precision))) {
    return invalid("B: packed weights are {}, the plan's are {}; pack them with this plan",
                   base::find_format(info.precision)->name, base::find_format(precision)->name);
  }
  if (!shares_b(problem)) {
    return invalid(
        "B: packed weights hold one matrix, but the plan reads {} of them; declare the "
        "batch stride of layout_b as GEMM_STRIDE_BROADCAST",
        problem.batch);
  }
  if (args.scale_b != nullptr) {
    return invalid("scale_b: packed weights carry their scales; leave it NULL");
  }
  operands.packed_b = packed->panels.get();
  return {};
}

bool writes_anything(const intent::Problem& problem, int64_t m) {
  return m > 0 && problem.output_columns() > 0 && problem.batch > 0;
}

base::Result<void> check_pointers(const PlanData& plan, const gemm_launch_args_t& args,
                                  Operands& operands) {
  const intent::Problem& problem = plan.problem();
  const intent::Epilogue& epilogue = problem.epilogue;
  const bool writes = writes_anything(problem, operands.m);
  const bool multiplies = writes && problem.k > 0 && operands.alpha != 0;
  DEEPGEMM_TRY(check_presence("A", args.A, multiplies, true, "op(A)"));
  DEEPGEMM_TRY(check_b(plan, args, multiplies, operands));
  DEEPGEMM_TRY(check_presence("C", args.C, writes, true, "the result"));
  DEEPGEMM_TRY(check_presence("bias", args.bias, writes && epilogue.bias, epilogue.bias,
                              "intent.epilogue.bias"));
  DEEPGEMM_TRY(check_presence("residual", args.residual, writes && epilogue.residual,
                              epilogue.residual, "intent.epilogue.residual"));
  DEEPGEMM_TRY(check_presence("scale_a", args.scale_a, false, has_scales(problem.a.precision),
                              "only INT8 and FP8 operands have scales"));
  DEEPGEMM_TRY(check_presence("scale_b", args.scale_b, false, has_scales(problem.b.precision),
                              "only INT8 and FP8 operands have scales"));
  DEEPGEMM_TRY(check_presence("group_offsets", args.group_offsets, false, false,
                              "intent.group_kind is none"));
  for (const void* output : args.extra_outputs) {
    DEEPGEMM_TRY(
        check_presence("extra_outputs", output, false, false, "intent.output_count is 0 or 1"));
  }
  operands.a = args.A;
  operands.c = args.C;
  operands.bias = args.bias;
  operands.residual = args.residual;
  operands.scale_a = args.scale_a;
  operands.scale_b = args.scale_b;
  return {};
}

MemoryRange scale_range(const float* scales, const ScaleGrid& grid) {
  return contiguous_range(scales, base::storage_bytes(PRECISION_FP32, grid.count()));
}

struct NamedRange {
  const char* name;
  MemoryRange range;
};

base::Result<void> check_overlap(const PlanData& plan, const gemm_launch_args_t& args,
                                 const Operands& operands) {
  const intent::Problem& problem = plan.problem();
  const int64_t m = operands.m;
  if (!writes_anything(problem, m)) return {};
  DEEPGEMM_TRY_ASSIGN(c, matrix_range(args.C, c_layout(problem, m), problem.c.precision));
  std::array<NamedRange, 7> inputs = {};
  size_t count = 0;
  const auto add = [&](const char* name, const MemoryRange& range) {
    inputs[count++] = {name, range};
  };
  if (args.A != nullptr) {
    DEEPGEMM_TRY_ASSIGN(a, matrix_range(args.A, a_layout(problem, m), problem.a.precision));
    add("A", a);
  }
  if (operands.b != nullptr) {
    DEEPGEMM_TRY_ASSIGN(b, matrix_range(operands.b, problem.b.layout, problem.b.precision));
    add("B", b);
  }
  if (args.bias != nullptr) {
    add("bias", contiguous_range(args.bias,
                                 base::storage_bytes(problem.epilogue.bias_precision, problem.n)));
  }
  if (args.residual != nullptr) {
    DEEPGEMM_TRY_ASSIGN(residual, matrix_range(args.residual, residual_layout(problem, m),
                                               problem.epilogue.residual_precision));
    add("residual", residual);
  }
  if (args.scale_a != nullptr) {
    add("scale_a", scale_range(args.scale_a, scale_grid_a(problem, m)));
  }
  if (args.scale_b != nullptr) {
    add("scale_b", scale_range(args.scale_b, scale_grid_b(problem)));
  }
  if (args.workspace != nullptr) {
    add("workspace",
        contiguous_range(args.workspace, static_cast<int64_t>(plan.workspace_bytes())));
  }
  for (size_t i = 0; i < count; ++i) {
    if (may_overlap(c, inputs[i].range)) {
      return invalid(
          "C: overlaps {} ({:#x} ... {:#x} against {:#x} ... {:#x}); give C memory of its "
          "own",
          inputs[i].name, c.first, c.last, inputs[i].range.first, inputs[i].range.last);
    }
  }
  return {};
}

base::Result<void> check_workspace(const PlanData& plan, const gemm_launch_args_t& args) {
  if (args.workspace == nullptr) return {};
  const size_t needed = plan.workspace_bytes();
  if (args.workspace_bytes < needed) {
    return invalid(
        "workspace_bytes: {} is less than the {} that the plan needs "
        "(deepgemm_plan_info_t::workspace_bytes)",
        args.workspace_bytes, needed);
  }
  const size_t alignment = plan.executable ? plan.executable->workspace_alignment() : 1;
  if (reinterpret_cast<uintptr_t>(args.workspace) % alignment != 0) {
    return invalid("workspace: {} is not a multiple of {}", args.workspace, alignment);
  }
  return {};
}

}  // namespace

bool shares_b(const intent::Problem& problem) {
  return problem.batch <= 1 || problem.b.layout.batch_stride == 0;
}

layout::MatrixLayout a_layout(const intent::Problem& problem, int64_t m) {
  layout::MatrixLayout layout = problem.a.layout;
  if (!stores_a_transposed(problem)) {
    layout.rows = m;
  } else if (!layout.blocked) {  // tiles of a narrower matrix would lie elsewhere
    layout.cols = m;
  }
  return layout;
}

layout::MatrixLayout c_layout(const intent::Problem& problem, int64_t m) {
  layout::MatrixLayout layout = problem.c.layout;
  layout.rows = m;
  return layout;
}

layout::MatrixLayout residual_layout(const intent::Problem& problem, int64_t m) {
  const int64_t stride = problem.epilogue.residual_row_stride;
  layout::MatrixLayout layout;
  layout.batch = problem.batch;
  layout.rows = m;
  layout.cols = problem.output_columns();
  layout.batch_stride = problem.m * stride;
  layout.row_stride = stride;
  return layout;
}

ScaleGrid scale_grid_a(const intent::Problem& problem, int64_t m) {
  return scale_grid(problem, problem.a.precision, m, 1);
}

ScaleGrid scale_grid_b(const intent::Problem& problem) {
  return scale_grid(problem, problem.b.precision, problem.n, 128);
}

base::Result<Operands> check_operands(const PlanData& plan, const gemm_launch_args_t& args) {
  Operands operands;
  DEEPGEMM_TRY(check_run_time_values(plan.problem(), args, operands));
  DEEPGEMM_TRY(check_pointers(plan, args, operands));
  DEEPGEMM_TRY(check_workspace(plan, args));
  DEEPGEMM_TRY(check_overlap(plan, args, operands));
  return operands;
}

base::Result<void> launch(deepgemm_plan& plan, const gemm_launch_args_t& args,
                          deepgemm_stream_t stream) {
  DEEPGEMM_TRY(launch(plan.data(), args, stream));
  note_launch(plan.slot, args.stream != nullptr ? args.stream : stream);
  return {};
}

base::Result<void> launch(const PlanData& plan, const gemm_launch_args_t& args,
                          deepgemm_stream_t stream) {
  DEEPGEMM_TRY(require_launchable(plan));
  DEEPGEMM_TRY_ASSIGN(operands, check_operands(plan, args));
  if (!writes_anything(plan.problem(), operands.m)) return {};
  DEEPGEMM_TRACE("launch", intent::format_line(plan.problem()));
  return plan.executable->launch(operands, args.workspace,
                                 args.stream != nullptr ? args.stream : stream);
}

}  // namespace deepgemm::runtime
