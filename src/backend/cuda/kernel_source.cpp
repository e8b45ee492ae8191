// Source text of kernels.
#include <fmt/format.h>

#include <string_view>

#include "backend/cuda/generate.hpp"
#include "base/embedded_file.hpp"

// kernels/cuda, written by cmake/embed.cmake.
extern const deepgemm::base::EmbeddedFile deepgemm_cuda_kernel_texts[];
extern const int deepgemm_cuda_kernel_texts_count;

namespace deepgemm::cuda {
namespace {

using kernel::Config;
using kernel::Format;

constexpr const char* kFormatNames[] = {"kFp64", "kFp32", "kFp16", "kBf16",
                                        "kE4m3", "kE5m2", "kInt8"};
constexpr const char* kAccessNames[] = {"kAlongK", "kAlongRows", "kStrided", "kBlocked",
                                        "kBlockedAcross"};
constexpr const char* kMathNames[] = {"kFp64",     "kFp32Acc64", "kFp32", "kInt32",
                                      "kFp16",     "kBf16",      "kTf32", "kTf32x3",
                                      "kTf32Bf16", "kFp8",       "kInt8"};
constexpr const char* kActivationNames[] = {"kNone",     "kRelu", "kGelu",
                                            "kGeluTanh", "kSilu", "kSwiglu"};

const char* name_of(Format format) { return kFormatNames[static_cast<int>(format)]; }

std::string operand_text(const char* name, const kernel::Operand& operand) {
  return fmt::format(
      "    .{} = {{.format = Format::{}, .access = Access::{}, .width = {}, .streaming = {}, "
      ".whole = {}}},\n",
      name, name_of(operand.format), kAccessNames[static_cast<int>(operand.access)], operand.width,
      operand.streaming, operand.whole);
}

std::string epilogue_text(const kernel::Epilogue& epilogue) {
  return fmt::format(
      "    .epilogue = {{.output = Format::{}, .activation = Activation::{},\n"
      "                 .bias = {}, .bias_format = Format::{},\n"
      "                 .residual = {}, .residual_format = Format::{},\n"
      "                 .row_scale = {}, .column_scale = {}, .stochastic = {}, .quads = {}}},\n",
      name_of(epilogue.output), kActivationNames[static_cast<int>(epilogue.activation)],
      epilogue.bias, name_of(epilogue.bias_format), epilogue.residual,
      name_of(epilogue.residual_format), epilogue.row_scale, epilogue.column_scale,
      epilogue.stochastic, epilogue.quads);
}

std::string config_text(const Config& config) {
  return fmt::format(
             "    .block_m = {}, .block_n = {}, .block_k = {}, .warp_m = {}, .warp_n = {},\n"
             "    .warps_k = {}, .stages = {}, .resident = {}, .split = {}, .math = Math::{},\n",
             config.block_m, config.block_n, config.block_k, config.warp_m, config.warp_n,
             config.warps_k, config.stages, config.resident, config.split,
             kMathNames[static_cast<int>(config.math)]) +
         operand_text("a", config.a) + operand_text("b", config.b) +
         fmt::format("    .promote = {}, .scaled = {},\n", config.promote, config.scaled) +
         epilogue_text(config.epilogue) +
         fmt::format("    .fixed_n = {}, .fixed_k = {},\n", config.fixed_n, config.fixed_k);
}

}  // namespace

std::string kernel_symbol(const KernelSpec& spec) { return "deepgemm_kernel_" + spec.family; }

jit::Source kernel_source(const KernelSpec& spec) {
  const Config& config = spec.config;
  jit::Source source;
  source.language = jit::Language::kCuda;
  source.name =
      fmt::format("{}_{}_{}x{}x{}", spec.family, kMathNames[static_cast<int>(config.math)],
                  config.block_m, config.block_n, config.block_k);
  source.text = fmt::format(
      "#include \"families/{0}.cuh\"\n"
      "\n"
      "namespace deepgemm::kernel {{\n"
      "inline constexpr Config kConfig{{\n{1}}};\n"
      "}}  // namespace deepgemm::kernel\n"
      "\n"
      "PTX_KERNEL void PTX_BOUNDS({2}, {3}) {4}(\n"
      "    PTX_PARAMETER deepgemm::kernel::GemmArguments arguments) {{\n"
      "  deepgemm::kernel::{0}<deepgemm::kernel::kConfig>(arguments);\n"
      "}}\n",
      spec.family, config_text(config), config.threads(), config.resident, kernel_symbol(spec));
  constexpr std::string_view kFolder = "kernels/cuda/";
  for (int i = 0; i < deepgemm_cuda_kernel_texts_count; ++i) {
    const base::EmbeddedFile& file = deepgemm_cuda_kernel_texts[i];
    source.headers.push_back({file.name + kFolder.size(), file.text});
  }
  source.arch = spec.arch;
  source.symbols = {kernel_symbol(spec)};
  return source;
}

}  // namespace deepgemm::cuda
