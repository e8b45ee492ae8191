// deepgemm pack: kernels compiled ahead of time, so that a fleet compiles none.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/files.hpp"
#include "deepgemm/model_shapes.hpp"
#include "deepgemm/problem_options.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"
#include "jit/pack_file.hpp"
#include "jit/service.hpp"
#include "runtime/kernel_sources.hpp"
#include "schedule/profile.hpp"

namespace deepgemm::cli {
namespace {

struct Options {
  std::string model, output, list, verify;
  std::vector<std::string> architectures, devices, shape_files;
  std::string dtype;
  int64_t max_m = 4096;
  int64_t ranks = 1;
  int jobs = 0;
};

// A product whose kernels are wanted, for every M up to shape.max_m.
struct Wanted {
  gemm_intent_t intent = {};
  deepgemm_shape_t shape = {};
};

base::Result<gemm_precision_t> precision_of(const std::string& dtype) {
  const std::map<std::string, gemm_precision_t> names = {
      {"bf16", PRECISION_BF16},    {"bfloat16", PRECISION_BF16}, {"fp16", PRECISION_FP16},
      {"float16", PRECISION_FP16}, {"fp32", PRECISION_FP32},     {"float32", PRECISION_FP32}};
  const auto found = names.find(dtype);
  if (found != names.end()) return found->second;
  return usage_error("the weights are '{}'; give --dtype bf16, fp16 or fp32", dtype);
}

// Each with its role, and as a product that has none.
void add_linear(const ModelLinear& linear, gemm_precision_t precision, int64_t max_m,
                std::vector<Wanted>& wanted) {
  for (const gemm_role_t role : {linear.role, GEMM_ROLE_GENERIC}) {
    for (const bool swiglu : {false, true}) {
      if (swiglu && !linear.swiglu) continue;
      Wanted each;
      each.intent.operation = GEMM_OP_NT;
      each.intent.role = role;
      each.intent.numerical_contract.input_precision = precision;
      if (swiglu) each.intent.epilogue.activation = GEMM_ACTIVATION_SWIGLU;
      each.shape = {max_m, linear.n, linear.k};
      wanted.push_back(each);
    }
  }
}

base::Result<void> add_model(const Options& options, std::vector<Wanted>& wanted) {
  constexpr int64_t kLargestConfig = int64_t{16} << 20;
  DEEPGEMM_TRY_ASSIGN(text, base::read_file(options.model, kLargestConfig));
  auto shapes = model_shapes(text, options.ranks);
  if (!shapes.ok()) {
    return base::make_error(shapes.error().code, "{}: {}", options.model, shapes.error().message);
  }
  if (!shapes->quantization.empty() && options.dtype.empty()) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "{}: the weights are quantised ({}), for which there are no GPU kernels "
        "yet; name what they are computed in with --dtype to pack that",
        options.model, shapes->quantization);
  }
  const std::string dtype = !options.dtype.empty()  ? options.dtype
                            : shapes->dtype.empty() ? "bf16"
                                                    : shapes->dtype;
  DEEPGEMM_TRY_ASSIGN(precision, precision_of(dtype));
  for (const ModelLinear& linear : shapes->linears) {
    add_linear(linear, precision, options.max_m, wanted);
  }
  return {};
}

base::Result<void> add_lines(const std::string& path, std::vector<Wanted>& wanted) {
  constexpr int64_t kLargestFile = int64_t{16} << 20;
  DEEPGEMM_TRY_ASSIGN(text, base::read_file(path, kLargestFile));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line[0] == '#') continue;
    DEEPGEMM_TRY_ASSIGN(problem, parse_problem(line));
    wanted.push_back({problem.spec.intent, {problem.spec.m, problem.spec.n, problem.spec.k}});
  }
  return {};
}

// Profiles of the devices and of the chips of the architectures ("90a").
base::Result<std::set<std::string>> devices_of(const Options& options) {
  std::set<std::string> devices(options.devices.begin(), options.devices.end());
  for (const std::string& arch : options.architectures) {
    bool known = false;
    for (const schedule::DeviceProfile& profile : schedule::all_profiles()) {
      const std::string sm = std::to_string(profile.sm);
      if (profile.sm == 0 || (arch != sm && arch != sm + "a" && arch != "sm_" + sm)) continue;
      devices.insert(profile.name);
      known = true;
    }
    if (!known)
      return usage_error("--arch {}: no chip of it is known; see `deepgemm list devices`", arch);
  }
  if (devices.empty())
    return usage_error("name chips with --arch (80,90a) or --device (a100,h200)");
  return devices;
}

struct Sources {
  std::vector<jit::Source> kernels;
  std::set<std::string> refused;  // products without a plan, and why
};

base::Result<Sources> sources_of(const std::vector<Wanted>& wanted,
                                 const std::set<std::string>& devices) {
  Sources sources;
  std::set<std::string> seen;
  Progress progress(static_cast<int64_t>(wanted.size() * devices.size()));
  int64_t done = 0;
  for (const std::string& device : devices) {
    for (const Wanted& each : wanted) {
      progress.show(done++, device);
      auto found = runtime::kernel_sources(each.intent, each.shape, device);
      if (!found.ok() && exit_code(found.error()) != ExitCode::kUnsupported) return found.error();
      if (!found.ok()) sources.refused.insert(device + ": " + found.error().message);
      if (!found.ok()) continue;
      for (jit::Source& source : *found) {
        if (seen.insert(source.arch + source.text).second) {
          sources.kernels.push_back(std::move(source));
        }
      }
    }
  }
  progress.clear();
  return sources;
}

// Several threads; the service sees to memory and to the cache.
base::Result<std::vector<jit::PackedKernel>> compile(const std::vector<jit::Source>& sources,
                                                     int jobs) {
  jit::Service& service = jit::process_service();
  const auto search = service.compilers(jit::Language::kCuda);
  std::vector<jit::PackedKernel> kernels(sources.size());
  std::optional<base::Error> failure;
  std::mutex mutex;
  std::atomic<size_t> next = 0, done = 0;
  Progress progress(static_cast<int64_t>(sources.size()));
  const auto work = [&] {
    for (size_t i = next++; i < sources.size(); i = next++) {
      auto built = service.build(sources[i]);
      const std::lock_guard lock(mutex);
      if (!built.ok() && !failure) failure = built.error();
      if (failure) return;
      kernels[i].source = sources[i];
      kernels[i].binary.bytes = (*built)->cubin();
      for (const auto& compiler : search->compilers) {
        if (compiler->accepts(sources[i])) kernels[i].compiler = compiler->identity();
        if (compiler->accepts(sources[i])) break;
      }
      progress.show(static_cast<int64_t>(++done), sources[i].name);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  progress.clear();
  if (failure) return *failure;
  return kernels;
}

base::Result<ExitCode> make_pack(const Options& options) {
  if (options.output.empty()) return usage_error("name the pack with --output");
  std::vector<Wanted> wanted;
  if (!options.model.empty()) DEEPGEMM_TRY(add_model(options, wanted));
  for (const std::string& file : options.shape_files) DEEPGEMM_TRY(add_lines(file, wanted));
  if (wanted.empty()) return usage_error("name a model with --model config.json, or --shapes file");
  DEEPGEMM_TRY_ASSIGN(devices, devices_of(options));
  const auto start = std::chrono::steady_clock::now();
  DEEPGEMM_TRY_ASSIGN(sources, sources_of(wanted, devices));
  const int jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::thread::hardware_concurrency());
  DEEPGEMM_TRY_ASSIGN(kernels, compile(sources.kernels, jobs));
  DEEPGEMM_TRY(jit::write_pack(options.output, kernels));
  DEEPGEMM_TRY_ASSIGN(pack, jit::PackFile::open(options.output));
  int64_t bytes = 0;
  for (const auto& entry : pack->entries()) bytes += entry.meta.kernel_bytes;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  print("{}: {} kernels for {} products on {} chips, {}, {:.1f} s\n", options.output,
        pack->entries().size(), wanted.size(), devices.size(),
        bytes_text(static_cast<double>(bytes)), seconds.count());
  for (const std::string& reason : sources.refused) print("left out    {}\n", reason);
  return sources.kernels.empty() ? ExitCode::kUnsupported : ExitCode::kOk;
}

base::Result<ExitCode> list_pack(const std::string& path) {
  DEEPGEMM_TRY_ASSIGN(pack, jit::PackFile::open(path));
  Table table({"kernel", "arch", ">bytes", "compiler", "library"});
  for (const auto& entry : pack->entries()) {
    table.add({entry.meta.name, entry.meta.arch, fmt::format("{}", entry.meta.kernel_bytes),
               entry.meta.compiler.kind, entry.meta.library_version});
  }
  write_output(table.text(""));
  return ExitCode::kOk;
}

base::Result<ExitCode> verify_pack(const std::string& path) {
  DEEPGEMM_TRY_ASSIGN(pack, jit::PackFile::open(path));
  int64_t damaged = 0;
  for (const auto& entry : pack->entries()) {
    const auto binary = pack->read(entry);
    if (binary.ok()) continue;
    ++damaged;
    print("{}\n", binary.error().message);
  }
  print("{}: {} of {} kernels are whole\n", path,
        pack->entries().size() - static_cast<size_t>(damaged), pack->entries().size());
  return damaged == 0 ? ExitCode::kOk : ExitCode::kCheckFailed;
}

base::Result<ExitCode> run_pack(const Options& options) {
  if (!options.list.empty()) return list_pack(options.list);
  if (!options.verify.empty()) return verify_pack(options.verify);
  return make_pack(options);
}

}  // namespace

Verb add_pack(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "pack",
      "Compile all GPU kernels that a model's layers can choose, for several chips, into one file; "
      "needs no GPU. Used with DEEPGEMM_PACK_PATH");
  command->add_option("--model", options->model, "config.json of the model");
  command->add_option("--shapes", options->shape_files, "files of problem lines; M is the largest");
  command->add_option("--arch", options->architectures, "architectures, such as 80,90a")
      ->delimiter(',');
  command->add_option("--device", options->devices, "chips, such as a100,h200")->delimiter(',');
  command->add_option("--dtype", options->dtype, "bf16, fp16 or fp32; else as the config says");
  command->add_option("--max-m", options->max_m, "largest number of rows")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--tp", options->ranks, "ranks of tensor parallelism")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  command->add_option("--jobs", options->jobs, "compilers at once; 0: as many as CPUs");
  command->add_option("--output", options->output, "the pack to write");
  command->add_option("--list", options->list, "show what a pack has");
  command->add_option("--verify", options->verify, "check all checksums of a pack");
  return {command, [options] { return run_pack(*options); }};
}

}  // namespace deepgemm::cli
