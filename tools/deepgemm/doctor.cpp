// deepgemm doctor: what this machine offers, what is missing, and whether products come out right.
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/device.hpp"
#include "backend/cuda/device.hpp"
#include "backend/cuda/nvml.hpp"
#include "backend/cuda/nvml_sampler.hpp"
#include "base/env.hpp"
#include "base/files.hpp"
#include "build_config.hpp"
#include "deepgemm/product.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"
#include "jit/cache_admin.hpp"
#include "jit/module.hpp"
#include "jit/service.hpp"

extern char** environ;

namespace deepgemm::cli {
namespace {

using Json = nlohmann::ordered_json;

// One finding: a name, a text for people, and the figure behind it for programs.
struct Fact {
  std::string name;
  std::string text;
  Json value;
};

struct Section {
  std::string title;
  std::vector<Fact> facts;

  void add(std::string name, std::string text) {
    Json value = text;
    facts.push_back({std::move(name), std::move(text), std::move(value)});
  }
  void add(std::string name, std::string text, Json value) {
    facts.push_back({std::move(name), std::move(text), std::move(value)});
  }
};

struct Diagnosis {
  std::vector<Section> sections;
  std::vector<std::string> advice;  // what is missing and what to do
  bool healthy = false;
};

// ---- Facts
// ---------------------------------------------------------------------------------------

Section build_section() {
  Section section{"build", {}};
  section.add("version", DEEPGEMM_VERSION_STRING);
  section.add("compiler", build_config::kCompiler);
  section.add("type", build_config::kBuildType);
  return section;
}

Section cpu_section(std::vector<std::string>& advice) {
  const cpu::CpuDevice& device = cpu::cpu_device();
  Section section{"cpu", {}};
  section.add("model", device.model);
  const char* used = cpu::isa_name(device.isa);
  const char* best = cpu::isa_name(device.best_isa);
  section.add("isa",
              device.isa == device.best_isa
                  ? fmt::format("{}, the best that this CPU and this build have", used)
                  : fmt::format("{}; the CPU has {}, lowered by DEEPGEMM_MAX_CPU_ISA", used, best),
              {{"used", used}, {"best", best}});
  section.add("features", fmt::format("{}", fmt::join(device.features, " ")), device.features);
  section.add("threads", fmt::format("{}, by {}", device.threads, device.threads_reason),
              {{"count", device.threads}, {"reason", device.threads_reason}});
  section.add(
      "cpus",
      fmt::format(
          "{} online, {} by affinity, quota {}", device.cores_online, device.affinity_threads,
          device.quota_threads > 0 ? fmt::format("{:.3g} CPUs", device.quota_threads) : "none"),
      {{"online", device.cores_online},
       {"affinity", device.affinity_threads},
       {"quota", device.quota_threads}});
  const auto size = [](int64_t bytes) {
    return bytes > 0 ? bytes_text(static_cast<double>(bytes)) : "unknown";
  };
  section.add("caches",
              fmt::format("L1d {}, L2 {}, L3 {}", size(device.l1d_bytes), size(device.l2_bytes),
                          size(device.l3_bytes)),
              {{"l1d", device.l1d_bytes}, {"l2", device.l2_bytes}, {"l3", device.l3_bytes}});
  section.add("memory", size(device.memory_bytes), device.memory_bytes);
  advice.insert(advice.end(), device.warnings.begin(), device.warnings.end());
  return section;
}

// A GPU that answers, in one line.
std::string gpu_text(const cuda::DeviceFacts& facts) {
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors, {}, {}", facts.title,
                     facts.sm / 10, facts.sm % 10, facts.sms,
                     bytes_text(static_cast<double>(facts.memory_bytes)), facts.uuid);
}

// What NVML says of a GPU now, and how long ago it was asked.
std::string state_text(const std::string& uuid) {
  constexpr std::chrono::milliseconds kPatience{500};
  const cuda::Telemetry state = cuda::process_sampler().fresh(uuid, kPatience);
  if (!state.unknown_because.empty()) return "unknown: " + state.unknown_because;
  const auto text = [&](cuda::Metric metric, double factor, const char* unit) {
    const auto& value = state[metric].value;
    return value ? fmt::format("{:.0f} {}", *value * factor, unit) : std::string("unknown");
  };
  return fmt::format(
      "load {}, memory {}, {} free, {}, {}; asked {} ms ago", text(cuda::Metric::kSmLoad, 100, "%"),
      text(cuda::Metric::kMemoryLoad, 100, "%"), text(cuda::Metric::kFreeMemory, 1e-9, "GB"),
      text(cuda::Metric::kSmClock, 1, "MHz"), text(cuda::Metric::kPower, 1, "W"),
      state[cuda::Metric::kSmLoad].age.count() / 1000);
}

// `usable`: the names of the GPUs that answer.
Section gpu_section(std::vector<std::string>& usable, std::vector<std::string>& advice) {
  Section section{"gpu", {}};
  const auto platform = cuda::process_platform();
  if (!platform.ok()) {
    section.add("driver", platform.error().message, false);
    return section;
  }
  const cuda::Driver& driver = (*platform)->driver();
  section.add("driver",
              fmt::format("{}, for CUDA {}.{}", driver.path, driver.version / 1000,
                          driver.version % 1000 / 10),
              driver.version);
  for (int i = 0; i < (*platform)->device_count(); ++i) {
    const auto gpu = (*platform)->device(i);
    const std::string name = fmt::format("cuda:{}", i);
    section.add(name, gpu.ok() ? gpu_text((*gpu)->facts()) : gpu.error().message, gpu.ok());
    if (gpu.ok()) {
      usable.push_back(name);
      section.add(name + " state", state_text((*gpu)->facts().uuid), true);
    }
    if (!gpu.ok()) advice.push_back(gpu.error().message);
  }
  section.add("NVML", cuda::process_nvml() != nullptr ? "found" : "not found: loads are unknown",
              cuda::process_nvml() != nullptr);
  return section;
}

// The line of a compiler's version text that has the number.
std::string version_line(const std::string& text) {
  size_t begin = text.find("release ");
  begin = begin == std::string::npos ? 0 : text.rfind('\n', begin) + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

void add_compilers(Section& section, const std::string& name, const jit::CompilerSearch& search,
                   const std::string& missing) {
  std::string text;
  Json found = Json::array();
  for (const auto& compiler : search.compilers) {
    const jit::CompilerIdentity& identity = compiler->identity();
    text += fmt::format("{}{} {}, {}", text.empty() ? "" : "; ", identity.kind,
                        version_line(identity.version), compiler->location());
    found.push_back({{"kind", identity.kind},
                     {"version", identity.version},
                     {"location", compiler->location()}});
  }
  section.add(name, text.empty() ? missing : text, std::move(found));
  if (!search.notes.empty()) {
    section.add(name + " passed over", fmt::format("{}", fmt::join(search.notes, "; ")),
                search.notes);
  }
}

// Compiles and loads the smallest kernel, past the cache: a compiler that tells its version may
// still lack its other half. Returns the seconds.
base::Result<double> try_compiler(const jit::Compiler& compiler) {
  jit::Source source;
  source.name = "trial";
  source.text = "extern \"C\" int deepgemm_kernel_trial() { return 0; }\n";
  source.arch = "generic";
  source.symbols = {"deepgemm_kernel_trial"};
  DEEPGEMM_TRY_ASSIGN(binary, compiler.compile(source));
  const double seconds = binary.seconds;
  DEEPGEMM_TRY(jit::Module::load(source, std::move(binary), {}));
  return seconds;
}

void add_trial(Section& section, const jit::CompilerSearch& cpp, std::vector<std::string>& advice) {
  if (cpp.compilers.empty()) {
    advice.push_back(fmt::format(
        "No C++ compiler ({}): kernels for the CPU are those that this build brings. Install g++ "
        "or clang++ (Debian: apt-get install g++), or set DEEPGEMM_CXX to one.",
        fmt::join(cpp.notes, "; ")));
    return;
  }
  const base::Result<double> seconds = try_compiler(*cpp.compilers.front());
  section.add("trial kernel",
              seconds.ok() ? fmt::format("compiled and loaded, {}", time_text(*seconds * 1e6))
                           : "failed: see advice",
              seconds.ok() ? Json(*seconds) : Json());
  if (!seconds.ok()) {
    advice.push_back("The C++ compiler does not work: " + seconds.error().message);
  }
}

Section compiler_section(bool gpus, std::vector<std::string>& advice) {
  constexpr const char* kGetCuda =
      "install the Python package nvidia-cuda-nvrtc (for sm_70 nvidia-cuda-nvrtc-cu12) or the "
      "CUDA toolkit, or set DEEPGEMM_NVRTC_PATH or DEEPGEMM_NVCC_PATH";
  Section section{"compilers", {}};
  jit::Service& service = jit::process_service();
  const base::Result<bool> allowed = service.may_compile();
  const bool off = allowed.ok() && !*allowed;
  section.add("at run time",
              !allowed.ok() ? allowed.error().message
              : off         ? "off: DEEPGEMM_JIT is 0"
                            : "kernels are compiled when they are first needed",
              allowed.ok() && *allowed);
  if (!allowed.ok()) advice.push_back(allowed.error().message);
  if (off) {
    advice.emplace_back(
        "DEEPGEMM_JIT is 0: only kernels of the cache and of this build are used. "
        "Unset it to compile others.");
  }
  const auto cpp = service.compilers(jit::Language::kCpp);
  const auto cuda = service.compilers(jit::Language::kCuda);
  add_compilers(section, "C++", *cpp, "none");
  add_compilers(section, "CUDA", *cuda,
                fmt::format("none; needed for kernels of GPUs alone: {}", kGetCuda));
  if (gpus && cuda->compilers.empty()) {
    advice.push_back(
        fmt::format("No CUDA compiler ({}): {}.", fmt::join(cuda->notes, "; "), kGetCuda));
  }
  add_trial(section, *cpp, advice);
  return section;
}

Section cache_section(std::vector<std::string>& advice) {
  const base::CacheDirectory chosen = base::resolve_cache_directory();
  const jit::DiskCache::Status cache = jit::process_service().cache_status();
  Section section{"cache", {}};
  const bool only_read = cache.directory.empty() && !cache.shared_directory.empty();
  const std::string& path = only_read ? cache.shared_directory : cache.directory;
  section.add("directory", path.empty() ? "none: memory only" : path, path);
  section.add("state",
              cache.usable ? "writable"
              : only_read  ? "only read"
                           : "not usable",
              cache.usable);
  if (!chosen.source.empty()) section.add("chosen by", chosen.source);
  if (!cache.usable) section.add("reason", cache.reason);
  if (!path.empty()) {
    const size_t entries = jit::list_entries(jit::system_files(), path).size();
    section.add("entries", fmt::format("{}", entries), entries);
  }
  if (!cache.usable) {
    advice.push_back(
        fmt::format("New kernels are kept in memory and compiled again by each process: {}. Set "
                    "DEEPGEMM_CACHE_DIR to a directory of your own that can be written.",
                    cache.reason));
  }
  return section;
}

std::string limit_text(int resource, bool in_bytes) {
  struct rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return in_bytes ? bytes_text(static_cast<double>(limit.rlim_cur))
                  : fmt::format("{}", limit.rlim_cur);
}

Section limit_section() {
  Section section{"limits", {}};
  section.add("address space", limit_text(RLIMIT_AS, true));
  section.add("locked memory", limit_text(RLIMIT_MEMLOCK, true));
  section.add("threads of this user", limit_text(RLIMIT_NPROC, false));
  section.add("open files", limit_text(RLIMIT_NOFILE, false));
  return section;
}

Section environment_section(std::vector<std::string>& advice) {
  Section section{"environment", {}};
  const auto add = [&](const base::EnvVariable& variable) {
    const auto value = base::env(variable.name);
    section.add(variable.name,
                value ? fmt::format("= {}", *value)
                      : fmt::format("unset ({}); {}", variable.default_value, variable.meaning),
                value ? Json(*value) : Json());
  };
  for (const base::EnvVariable& variable : base::env_table()) add(variable);
  for (const base::EnvVariable& variable : base::foreign_env_table()) add(variable);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("DEEPGEMM_")) continue;
    const auto known = base::env_table();
    if (std::none_of(known.begin(), known.end(), [&](const auto& v) { return name == v.name; })) {
      advice.push_back(
          fmt::format("{} is set, but no such variable exists; see the table above.", name));
    }
  }
  return section;
}

// ---- The check
// -----------------------------------------------------------------------------------

// A small product of odd sizes on a device, compared with the reference.
base::Result<std::string> check_product(const std::string& device) {
  DEEPGEMM_TRY_ASSIGN(problem, parse_problem("nt m=33 n=17 k=65 a=fp32 device=" + device));
  DEEPGEMM_TRY_ASSIGN(plan, Plan::create(problem));
  auto values =
      generate_values(problem.problem, plan.info().packed_b, contract::InputSet::kGaussian, 1);
  DEEPGEMM_TRY_ASSIGN(operands, store_operands(problem.problem, plan, std::move(values), {}));
  const gemm_launch_args_t args = operands.args();
  deepgemm_verification_t result = {};
  DEEPGEMM_CALL(deepgemm_verify_plan(plan.get(), &args, &result));
  if (!result.contract_kept || !result.bound_kept) {
    return base::make_error(DEEPGEMM_ERROR_INTERNAL,
                            "a product on {} came out wrong: relative error {:.2e}, bound {:.2e}, "
                            "worst at row {}, column {}; please report this",
                            device, result.max_relative_error, result.bound_relative,
                            result.worst_row, result.worst_column);
  }
  return fmt::format("33x17x65 in {} on {}: error {:.1e}, bound {:.1e}", plan.info().path,
                     plan.info().family, result.max_relative_error, result.bound_relative);
}

Diagnosis diagnose() {
  Diagnosis diagnosis;
  std::vector<std::string>& advice = diagnosis.advice;
  std::vector<std::string> devices = {"cpu"};
  std::vector<std::string> gpus;
  diagnosis.sections = {build_section(),
                        cpu_section(advice),
                        gpu_section(gpus, advice),
                        compiler_section(!gpus.empty(), advice),
                        cache_section(advice),
                        limit_section(),
                        environment_section(advice)};
  devices.insert(devices.end(), gpus.begin(), gpus.end());
  diagnosis.healthy = true;
  Section section{"check", {}};
  for (const std::string& device : devices) {
    const base::Result<std::string> check = check_product(device);
    section.add(device, check.ok() ? *check : check.error().message, check.ok());
    if (check.ok()) continue;
    diagnosis.healthy = false;
    advice.push_back(fmt::format("{} does not work: {}", device, check.error().message));
  }
  diagnosis.sections.push_back(std::move(section));
  return diagnosis;
}

// ---- Output
// --------------------------------------------------------------------------------------

void print_text(const Diagnosis& diagnosis) {
  constexpr size_t kWidth = 100;
  constexpr size_t kNames = 26;
  for (const Section& section : diagnosis.sections) {
    print("{}\n", paint(Color::kBold, section.title));
    for (const Fact& fact : section.facts) {
      write_output(wrapped(fmt::format("  {:<24}{}", fact.name, fact.text), kWidth, kNames));
    }
  }
  print("{}\n", paint(Color::kBold, "advice"));
  for (const std::string& line : diagnosis.advice) write_output(wrapped("  - " + line, kWidth, 4));
  if (diagnosis.advice.empty()) print("  nothing is missing\n");
  print("\n{}\n", diagnosis.healthy ? paint(Color::kGreen, "healthy: products come out right")
                                    : paint(Color::kRed, "NOT healthy"));
}

void print_json(const Diagnosis& diagnosis) {
  Json report = Json::object();
  for (const Section& section : diagnosis.sections) {
    Json& object = report[section.title] = Json::object();
    for (const Fact& fact : section.facts) object[fact.name] = fact.value;
  }
  report["advice"] = diagnosis.advice;
  report["healthy"] = diagnosis.healthy;
  print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Verb add_doctor(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "doctor",
      "Show what this machine offers and what is missing, and compute a small verified "
      "product; exit code 0 when that works (a container's health check)");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "as JSON");
  return {command, [json]() -> base::Result<ExitCode> {
            const Diagnosis diagnosis = diagnose();
            *json ? print_json(diagnosis) : print_text(diagnosis);
            return diagnosis.healthy ? ExitCode::kOk : ExitCode::kCheckFailed;
          }};
}

}  // namespace deepgemm::cli
