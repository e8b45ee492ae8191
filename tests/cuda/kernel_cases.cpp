#include "kernel_cases.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/tiling.hpp"

namespace deepgemm::cuda {
namespace {

using contract::PathId;

struct Form {
  PathId path;
  const char* operation;
  const char* fields;
  bool every_config;  // otherwise those that is_picked() picks
  AddressAlignment alignment = {};
};

// Formats that a multiplication with that path takes, as apply_policy counts them.
int element_bits(PathId path) {
  switch (path) {
    case PathId::kFp64:
      return 64;
    case PathId::kFp32Acc64:
    case PathId::kFp32:
    case PathId::kTf32:
    case PathId::kTf32x3:
    case PathId::kTf32Bf16:
      return 32;
    case PathId::kFp8:
    case PathId::kInt8:
      return 8;
    default:
      return 16;
  }
}

constexpr Form kSimtForms[] = {
    {PathId::kFp32, "nt", "a=fp32", true},
    {PathId::kFp32, "nn", "a=fp32 bias act=gelu residual", false},
    {PathId::kFp32, "tn", "a=fp32 batch=3 beta=2 lc=col", false, {4, 4, 4}},
    {PathId::kFp32, "tt", "a=fp32 la=blocked16 lb=blocked16 act=silu", false},
    {PathId::kFp32, "nn", "a=fp32 c=bf16 seed=42 reliability=2", false},
    {PathId::kFp64, "nn", "a=fp64", false},
    {PathId::kFp32Acc64, "nt", "a=fp32 act=gelu_tanh", false},
    {PathId::kFp16, "nn", "a=fp16 bias act=relu", false},
    {PathId::kBf16, "nt", "a=bf16 act=swiglu", false},
    {PathId::kFp8, "nt", "a=fp8_e4m3 b=fp8_e5m2 c=bf16 dequant=block128", false},
    {PathId::kInt8, "tn", "a=int8 c=bf16 dequant=channel", false},
    {PathId::kW8A16, "nt", "a=bf16 b=int8 dequant=group group=64", false},
};

constexpr Form kSm80Forms[] = {
    {PathId::kBf16, "nt", "a=bf16", true},
    {PathId::kBf16, "nn", "a=bf16 bias act=gelu residual", false},
    {PathId::kBf16, "tn", "a=bf16 batch=3 beta=2 c=fp32 lc=col", false},
    {PathId::kBf16, "tt", "a=bf16 act=swiglu bias", false},
    {PathId::kBf16, "nn", "a=bf16 la=blocked16 lb=blocked16 c=fp8_e4m3", false},
    {PathId::kBf16, "nt", "a=bf16 c=fp8_e4m3 seed=42 reliability=2", false},
    {PathId::kFp16, "nt", "a=fp16", false},
    {PathId::kFp16, "tt", "a=fp16 c=fp32 act=silu", false, {2, 2, 2}},
    {PathId::kTf32, "nt", "a=fp32", false},
    {PathId::kTf32, "tn", "a=fp32", false},
    {PathId::kTf32x3, "nt", "a=fp32", false},
    {PathId::kTf32x3, "nn", "a=fp32", false},
    {PathId::kTf32Bf16, "nt", "a=fp32", false},
    {PathId::kTf32Bf16, "tn", "a=fp32 b=bf16 bias", false},
    {PathId::kFp64, "nt", "a=fp64", false},
    {PathId::kFp64, "tn", "a=fp64 beta=2", false},
    {PathId::kFp64, "tt", "a=fp64 la=blocked16 lb=blocked16", false, {8, 8, 8}},
    {PathId::kFp32Acc64, "nt", "a=fp32", false},
    {PathId::kFp32Acc64, "nn", "a=fp32 b=bf16 act=gelu", false},
    {PathId::kFp32Acc64, "nt", "a=fp32 b=int8 dequant=group group=64", false},
    {PathId::kFp64, "nn", "a=fp64 b=fp32", false},
    {PathId::kInt8, "nt", "a=int8 c=bf16 dequant=channel", false},
    {PathId::kInt8, "nn", "a=int8 dequant=group group=64", false},
    {PathId::kFp8, "nt", "a=fp8_e4m3 c=bf16 dequant=block128", false},
    {PathId::kFp8, "nn", "a=fp8_e5m2 b=fp8_e4m3 c=bf16 dequant=tensor", false},
    {PathId::kW8A16, "nt", "a=bf16 b=int8 dequant=channel", false},
    {PathId::kW8A16, "nt", "a=fp16 b=fp8_e4m3 dequant=block128", false},
};

constexpr Form kSkinnyForms[] = {
    {PathId::kBf16, "nt", "a=bf16", true},
    {PathId::kFp16, "nt", "a=fp16 act=swiglu bias", false},
    {PathId::kInt8, "nt", "a=int8 c=bf16 dequant=channel", false},
    {PathId::kFp8, "nt", "a=fp8_e4m3 c=bf16 dequant=block128 act=silu residual", false},
};

// Of all configurations, one that is large, one that splits K and those of few rows.
bool is_picked(const schedule::KernelConfig& config) {
  const bool large = config.block_m == 64 && config.block_n == 64;
  const bool skinny = config.block_m <= 16 && config.warp_k < config.block_k;
  const bool split = config.split_k > 1 && config.block_m <= 32;
  return large || split || (skinny && config.block_n == 32);
}

void add_cases(const char* name, std::span<const Form> forms, std::vector<KernelCase>& to) {
  const schedule::Family& family = *schedule::find_family(name);
  for (const Form& form : forms) {
    const auto tilings = schedule::apply_policy(family, {}, 1, element_bits(form.path));
    for (const schedule::KernelConfig& config : tilings.configs) {
      if (!form.every_config && !is_picked(config)) continue;
      to.push_back({name, form.path, form.operation, form.fields, config, form.alignment});
    }
  }
}

}  // namespace

std::string KernelCase::name() const {
  return fmt::format("{} {} {} {} [{}]", family, contract::path_info(path).name, operation, fields,
                     schedule::config_name(config));
}

std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  add_cases("simt", kSimtForms, cases);
  add_cases("sm80", kSm80Forms, cases);
  add_cases("skinny", kSkinnyForms, cases);
  // Large tiles of tensor cores; the last needs more shared memory than some chips have.
  const auto add_large = [&](PathId path, const char* fields, schedule::KernelConfig config) {
    cases.push_back({"sm80", path, "nt", fields, config, {}});
  };
  add_large(PathId::kFp16, "a=fp16", {128, 128, 32, 64, 64, 32, 4, 1, 1});
  add_large(PathId::kTf32, "a=fp32", {128, 128, 16, 64, 64, 16, 4, 1, 1});
  add_large(PathId::kTf32x3, "a=fp32", {128, 128, 16, 64, 64, 16, 4, 1, 1});
  add_large(PathId::kTf32x3, "a=fp32", {128, 128, 16, 64, 32, 16, 4, 1, 1});
  add_large(PathId::kTf32Bf16, "a=fp32", {128, 128, 16, 64, 64, 16, 4, 1, 1});
  add_large(PathId::kTf32Bf16, "a=fp32", {128, 128, 32, 64, 32, 32, 4, 1, 1});
  add_large(PathId::kFp64, "a=fp64", {128, 128, 16, 64, 32, 16, 3, 1, 1});
  add_large(PathId::kFp32Acc64, "a=fp32", {128, 128, 32, 64, 32, 32, 3, 1, 1});
  add_large(PathId::kInt8, "a=int8", {128, 128, 64, 64, 64, 64, 4, 1, 1});
  add_large(PathId::kInt8, "a=int8", {128, 256, 128, 64, 64, 128, 3, 1, 1});
  return cases;
}

namespace {

// "la=row:0,4112,1" unless the case names a layout itself.
std::string layout_field(const KernelCase& one, const char* key, int64_t columns) {
  if (one.fields.find(std::string(key) + "=") != std::string::npos) return "";
  return fmt::format(" {}=row:0,{},1", key, (columns / 16 + 1) * 16);
}

}  // namespace

intent::Problem problem_of(const KernelCase& one, int64_t m, int64_t n, int64_t k) {
  const bool swiglu = one.fields.find("act=swiglu") != std::string::npos;
  if (swiglu) n += n % 2;
  const int64_t output_columns = swiglu ? n / 2 : n;
  std::string line = fmt::format("{} m={} n={} k={} {}", one.operation, m, n, k, one.fields);
  line += layout_field(one, "la", one.operation[0] == 'n' ? k : m);
  line += layout_field(one, "lb", one.operation[1] == 'n' ? n : k);
  line += layout_field(one, "lc", output_columns);
  if (one.fields.find("residual") != std::string::npos) {
    line += fmt::format(" residual_stride={}", (output_columns / 16 + 1) * 16);
  }
  const auto spec = intent::parse_line(line);
  EXPECT_TRUE(spec.ok()) << line << ": " << (spec.ok() ? "" : spec.error().message);
  if (!spec.ok()) return {};
  auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
  EXPECT_TRUE(problem.ok()) << line << ": " << (problem.ok() ? "" : problem.error().message);
  return problem.ok() ? *problem : intent::Problem{};
}

base::Result<KernelSpec> spec_of(const KernelCase& one, const intent::Problem& problem,
                                 const std::string& arch) {
  KernelRequest request;
  request.path = one.path;
  request.family = one.family;
  request.config = one.config;
  request.arch = arch;
  request.alignment = one.alignment;
  request.stochastic = problem.contract.seed != 0;
  return kernel_spec(problem, request);
}

}  // namespace deepgemm::cuda
