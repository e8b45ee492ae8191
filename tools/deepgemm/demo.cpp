// deepgemm demo: the linears of a real decoder layer under three contracts.
#include <algorithm>
#include <memory>

#include "deepgemm/demo_report.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

constexpr DemoContract kStrict = {"strict_fp32", "strict FP32", "STRICT FP32",
                                  "Weights and activations widened to FP32; every element of y "
                                  "right to 1e-6 of its sum of |x||w|.",
                                  "a=fp32 rel=1e-6"};
constexpr DemoContract kHalf = {"fp16", "FP16", "FP16",
                                "Everything stored in FP16, half the memory; every element of y "
                                "right to 1e-3 of its sum of |x||w|.",
                                "a=fp16 rel=1e-3"};
constexpr DemoContract kInt4 = {"int4_awq", "INT4, no outliers", "", "",
                                "a=fp16 b=int4_awq c=fp32 group=64 safe abs=0.002"};
constexpr DemoContract kInt4Outliers = {
    "int4_awq_outliers", "INT4 + outliers", "INT4-AWQ WITH OUTLIER CHANNELS IN FP16",
    "Weights packed to 4 bits in groups of 64 with FP16 scales and zero points. The arithmetic on "
    "the packed weights must be right to 0.002, absolute. What packing itself loses is reported "
    "apart, because no arithmetic can give it back; on the right, the 1 % of input channels with "
    "the largest activations stay in FP16.",
    "a=fp16 b=int4_awq c=fp32 group=64 safe outlier=fp16 abs=0.002"};

struct Options {
  std::string sample;
  bool json = false;
};

base::Result<DemoResults> measure_all(const Options& options) {
  DemoResults demo;
  DEEPGEMM_TRY_ASSIGN(path, find_sample(options.sample));
  DEEPGEMM_TRY_ASSIGN(sample, load_layer_sample(path));
  demo.sample = std::move(sample);
  demo.strict.contract = kStrict;
  demo.half.contract = kHalf;
  demo.int4.contract = kInt4;
  demo.outliers.contract = kInt4Outliers;
  ContractResult* results[] = {&demo.strict, &demo.half, &demo.int4, &demo.outliers};
  const auto linears = static_cast<int64_t>(demo.sample.linears.size());
  Progress progress(linears * static_cast<int64_t>(std::size(results)));
  int64_t done = 0;
  for (ContractResult* result : results) {
    for (const Linear& linear : demo.sample.linears) {
      progress.show(done++, fmt::format("{} under {}", linear.name, result->contract.name));
      DEEPGEMM_TRY_ASSIGN(measured, measure_linear(linear, result->contract));
      result->linears.push_back(std::move(measured));
    }
  }
  return demo;
}

}  // namespace

Verb add_demo(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "demo",
      "Compute every linear of a decoder layer under three contracts and prove each; exit code "
      "1 when a contract is broken");
  command->add_option("--sample", options->sample,
                      "safetensors file of a layer; without it, data/sample of this project");
  command->add_flag("--json", options->json, "the tables as JSON");
  return {command, [options]() -> base::Result<ExitCode> {
            DEEPGEMM_TRY_ASSIGN(demo, measure_all(*options));
            write_output(options->json ? demo_json(demo) : demo_text(demo));
            return demo.kept() ? ExitCode::kOk : ExitCode::kCheckFailed;
          }};
}

}  // namespace deepgemm::cli
