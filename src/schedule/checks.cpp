#include "schedule/checks.hpp"

#include <string_view>

#include "base/formats.hpp"
#include "schedule/refusal.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;

const char* backend_name(Backend backend) {
  return backend == Backend::kCpu ? "CPUs" : "NVIDIA GPUs";
}

const char* format_name(gemm_precision_t precision) { return base::find_format(precision)->name; }

bool batch_invariant(const PlanContext& context) {
  return context.problem.contract.reproducibility == REPRODUCIBILITY_BATCH_INVARIANT;
}

// ---- Layouts
// -----------------------------------------------------------------------------------------

struct Operand {
  const char* name;
  const intent::Operand& stored;
  bool rows_are_m, cols_are_m;
};

// Loads of several elements need one dimension without gaps and the others on multiples of `bytes`.
std::optional<Refusal> check_strides(const Family& family, const Operand& operand) {
  const layout::MatrixLayout& stored = operand.stored.layout;
  if (stored.blocked) {
    return refuse(Check::kAlignment, "{} is blocked 16x16, which {} does not read", operand.name,
                  family.name);
  }
  const bool by_rows = stored.col_stride == 1 || stored.cols <= 1;
  const bool by_cols = stored.row_stride == 1 || stored.rows <= 1;
  if (!by_rows && !by_cols) {
    return refuse(Check::kAlignment, "{} has strides {} and {}; {} needs one of them to be 1",
                  operand.name, stored.row_stride, stored.col_stride, family.name);
  }
  struct Leading {
    const char* name;
    int64_t extent, stride;
  };
  for (const Leading& lead : {Leading{"leading", by_rows ? stored.rows : stored.cols,
                                      by_rows ? stored.row_stride : stored.col_stride},
                              Leading{"batch", stored.batch, stored.batch_stride}}) {
    if (lead.extent <= 1) continue;
    const int64_t bits = lead.stride * base::find_format(operand.stored.precision)->storage_bits;
    if (lead.stride > 0 && bits % (int64_t{8} * family.alignment) == 0) continue;
    return refuse(
        Check::kAlignment,
        "the {} stride of {} is {} elements of {}; {} needs multiples of {} bytes: pad it to "
        "{} elements",
        lead.name, operand.name, lead.stride, format_name(operand.stored.precision), family.name,
        family.alignment,
        (bits / (int64_t{8} * family.alignment) + 1) * family.alignment * 8 /
            base::find_format(operand.stored.precision)->storage_bits);
  }
  return std::nullopt;
}

// The contiguous dimension is M: then the leading stride, and with it the alignment, follows M.
bool stride_follows_m(const Operand& operand) {
  const layout::MatrixLayout& stored = operand.stored.layout;
  return (operand.rows_are_m && stored.row_stride == 1 && stored.col_stride != 1) ||
         (operand.cols_are_m && stored.col_stride == 1 && stored.row_stride != 1);
}

std::optional<Refusal> check_alignment(const PlanContext& context, const Family& family) {
  if (family.alignment <= 1) return std::nullopt;
  const intent::Problem& problem = context.problem;
  const bool a_transposed = problem.operation == GEMM_OP_TN || problem.operation == GEMM_OP_TT;
  const Operand operands[] = {{"A", problem.a, !a_transposed, a_transposed},
                              {"B", problem.b, false, false},
                              {"C", problem.c, true, false}};
  for (const Operand& operand : operands) {
    if (problem.requires_packed_b() && &operand.stored == &problem.b) continue;
    if (batch_invariant(context) && stride_follows_m(operand)) {
      return refuse(
          Check::kReproducibility,
          "{} is contiguous along M, so whether {} could run would depend on M, and with it "
          "the bits of a row",
          operand.name, family.name);
    }
    if (auto wrong = check_strides(family, operand)) return wrong;
  }
  return std::nullopt;
}

// ---- Formats
// ---------------------------------------------------------------------------------------

bool fits_exactly(gemm_precision_t stored, gemm_precision_t multiplicand) {
  const base::FormatInfo& from = *base::find_format(stored);
  const base::FormatInfo& to = *base::find_format(multiplicand);
  if (from.is_integer) return true;  // 8 bits fit every float multiplicand
  return from.significand_bits <= to.significand_bits && from.min_subnormal >= to.min_subnormal &&
         from.max_finite <= to.max_finite;
}

// Rounding operands pays where it makes products faster. On a CPU all float products are FMA.
std::optional<Refusal> check_cpu_rounding(const PlanContext& context, PathId path) {
  if (path != PathId::kFp16 && path != PathId::kBf16) return std::nullopt;
  const contract::Path& info = contract::path_info(path);
  for (const gemm_precision_t stored : {context.problem.a.precision, context.problem.b.precision}) {
    if (fits_exactly(stored, info.multiplicand)) continue;
    return refuse(
        Check::kFormats,
        "{} operands would be rounded to {}, but a CPU multiplies both in FP32: path fp32 is "
        "as fast and more exact",
        format_name(stored), format_name(info.multiplicand));
  }
  return std::nullopt;
}

std::optional<Refusal> check_split(const PlanContext& context, PathId path) {
  const contract::Path& info = contract::path_info(path);
  const intent::Problem& problem = context.problem;
  if (info.parts == 1 || !fits_exactly(problem.a.precision, info.multiplicand) ||
      !fits_exactly(problem.b.precision, info.multiplicand)) {
    return std::nullopt;
  }
  return refuse(Check::kFormats, "{} and {} fit {} exactly: splitting them gains nothing",
                format_name(problem.a.precision), format_name(problem.b.precision),
                format_name(info.multiplicand));
}

// wgmma reads shared memory as it is: no conversion on the way.
std::optional<Refusal> check_unconverted(const PlanContext& context, const Family& family,
                                         PathId path) {
  if (std::string_view(family.name) != "sm90") return std::nullopt;
  if (path != PathId::kFp16 && path != PathId::kBf16) return std::nullopt;
  const gemm_precision_t seen = contract::path_info(path).multiplicand;
  const intent::Problem& problem = context.problem;
  if (problem.a.precision == seen && problem.b.precision == seen) return std::nullopt;
  return refuse(Check::kFormats, "wgmma reads operands as stored; A is {} and B is {}, not {}",
                format_name(problem.a.precision), format_name(problem.b.precision),
                format_name(seen));
}

// ---- Units
// -----------------------------------------------------------------------------------------

std::optional<Refusal> check_unit(const PlanContext& context, const Family& family, PathId path) {
  if (!uses_tensor_cores(family, path)) return std::nullopt;
  const DeviceProfile& profile = context.profile;
  const gemm_precision_t seen = tensor_operand(path, context.problem.a.precision);
  if (tensor_rate(seen, profile.peak) <= 0) {
    return refuse(Check::kUnit, "{} has no {} for {} operands", profile.title,
                  family.backend == Backend::kCpu ? "tile units" : "tensor cores",
                  format_name(seen));
  }
  const bool emulated = profile.sm == 90 && base::is_fp8(seen);
  if (emulated && std::string_view(family.name) != "sm90" &&
      std::string_view(family.name) != "skinny") {
    return refuse(Check::kUnit,
                  "mma.sync with FP8 is emulated on compute capability 9.0; {} has no wgmma form",
                  family.name);
  }
  return std::nullopt;
}

// Tile units multiply 32 channels of weights a step and scale sums between steps.
std::optional<Refusal> check_tiles(const PlanContext& context, const Family& family, PathId path) {
  if (std::string_view(family.name) != "cpu_amx") return std::nullopt;
  constexpr int64_t kStep = 32, kPanel = 32;
  const intent::Problem& problem = context.problem;
  if (path == PathId::kInt8 && problem.k > kInt32Products) {
    return refuse(Check::kFormats, "K is {}; sums of more than {} products may leave INT32",
                  problem.k, kInt32Products);
  }
  if (!problem.requires_packed_b()) return std::nullopt;
  const int64_t group = problem.contract.group_size;
  if (group > 0 && group < problem.k && group % kStep != 0) {
    return refuse(Check::kFormats, "scales change every {} channels; tile units take {} at once",
                  group, kStep);
  }
  if (problem.epilogue.activation == GEMM_ACTIVATION_SWIGLU && problem.n / 2 % kPanel != 0) {
    return refuse(Check::kFormats,
                  "the up half of SWIGLU begins at column {}, not at a multiple of {}: pad the "
                  "halves",
                  problem.n / 2, kPanel);
  }
  return std::nullopt;
}

const char* missing_path_reason(const Family& family, PathId path) {
  if (family.backend != Backend::kCpu) return "";
  const bool rounded_fp32 =
      contract::path_info(path).multiplicand == PRECISION_TF32 || path == PathId::kBf16x3;
  return rounded_fp32 ? ": a CPU has no such unit, and fp32 is as fast and more exact" : "";
}

}  // namespace

std::optional<Refusal> check_family(const PlanContext& context, const Family& family) {
  const DeviceProfile& profile = context.profile;
  if (family.backend != profile.backend) {
    return refuse(Check::kBackend, "{} is for {}; {} is not one", family.name,
                  backend_name(family.backend), profile.name);
  }
  if (family.backend == Backend::kCuda &&
      (profile.sm < family.sm_min || profile.sm > family.sm_max)) {
    return refuse(Check::kArchitecture, "{} is for compute capability {}.{} to {}.{}; {} has {}.{}",
                  family.name, family.sm_min / 10, family.sm_min % 10, family.sm_max / 10,
                  family.sm_max % 10, profile.name, profile.sm / 10, profile.sm % 10);
  }
  if (family.hopper_opt && !context.options.hopper_opt) {
    return refuse(Check::kHopperOpt,
                  "{} uses Hopper instructions, which deepgemm_enable_hopper_opt(false) forbids",
                  family.name);
  }
  if (family.max_m > 0 && batch_invariant(context)) {
    return refuse(Check::kReproducibility,
                  "{} serves M up to {} only: beyond, another family would give a row other bits",
                  family.name, family.max_m);
  }
  if (family.max_m > 0 && context.bucket > family.max_m) {
    return refuse(Check::kMaxM, "M = {} is in the bucket up to {}; {} serves M up to {}",
                  context.problem.m, context.bucket, family.name, family.max_m);
  }
  return check_alignment(context, family);
}

std::optional<Refusal> check_path(const PlanContext& context, const Family& family, PathId path) {
  const contract::Path& info = contract::path_info(path);
  if (!family.supports(path)) {
    return refuse(Check::kPath, "{} has no kernel for path {}{}", family.name, info.name,
                  missing_path_reason(family, path));
  }
  const intent::Problem& problem = context.problem;
  std::string storage = contract::storage_refusal(info, problem.a.precision, problem.b.precision);
  if (!storage.empty()) return Refusal{check_name(Check::kFormats), std::move(storage)};
  if (auto wrong = check_split(context, path)) return wrong;
  if (family.backend == Backend::kCpu) {
    if (auto wrong = check_cpu_rounding(context, path)) return wrong;
  }
  if (auto wrong = check_unconverted(context, family, path)) return wrong;
  if (auto wrong = check_tiles(context, family, path)) return wrong;
  return check_unit(context, family, path);
}

}  // namespace deepgemm::schedule
