// deepgemm doctor: what this machine offers, what is missing, and whether products come out right.
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/device.hpp"
#include "base/env.hpp"
#include "base/files.hpp"
#include "build_config.hpp"
#include "deepgemm/product.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"

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

bool library_loads(const std::vector<std::string>& names, std::string& found) {
  for (const std::string& name : names) {
    if (name.empty()) continue;
    // Loading runs no code of a driver that would touch a device.
    void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    dlclose(library);
    found = name;
    return true;
  }
  return false;
}

Section gpu_section(std::vector<std::string>& advice) {
  Section section{"gpu", {}};
  section.add("backend",
              "CUDA is not part of this build: plans for GPUs can be made, not launched");
  std::string name;
  const bool driver = library_loads({"libcuda.so.1"}, name);
  section.add("driver", driver ? fmt::format("{} found", name) : "libcuda.so.1 not found", driver);
  if (driver) {
    advice.emplace_back(
        "A GPU driver is installed, but products run on the CPU: this build has no "
        "CUDA backend yet. Nothing to install.");
  }
  return section;
}

// The first of PATH's directories that has an executable of this name.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const auto candidate = std::filesystem::path(rest.substr(0, end)) / name;
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored) &&
        access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
  }
  return "";
}

Section compiler_section() {
  Section section{"compilers", {}};
  const auto add = [&](const std::string& name, const std::string& found) {
    section.add(name, found.empty() ? "not found" : found, found);
  };
  for (const char* name : {"g++", "clang++"}) add(name, find_program(name));
  if (const auto chosen = base::env("DEEPGEMM_CXX")) add("DEEPGEMM_CXX", find_program(*chosen));
  add("nvcc", find_program(base::env("DEEPGEMM_NVCC_PATH").value_or("nvcc")));
  std::string nvrtc;
  library_loads({base::env("DEEPGEMM_NVRTC_PATH").value_or(""), "libnvrtc.so.13", "libnvrtc.so.12",
                 "libnvrtc.so"},
                nvrtc);
  add("NVRTC", nvrtc);
  section.add("needed", "none: this build compiles no kernels at run time yet", false);
  return section;
}

Section cache_section(std::vector<std::string>& advice) {
  const base::CacheDirectory cache = base::resolve_cache_directory();
  Section section{"cache", {}};
  section.add("directory", cache.path.empty() ? "none: memory only" : cache.path, cache.path);
  section.add("state", cache.usable ? "writable" : "not usable", cache.usable);
  if (!cache.source.empty()) section.add("chosen by", cache.source);
  if (!cache.reason.empty()) section.add("reason", cache.reason);
  if (!cache.usable) {
    advice.emplace_back(
        "There is no usable cache directory. Nothing needs it yet; set "
        "DEEPGEMM_CACHE_DIR to a writable directory before kernels are compiled.");
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

// A small product of odd sizes on the CPU, compared with the reference.
base::Result<std::string> check_product() {
  DEEPGEMM_TRY_ASSIGN(problem, parse_problem("nt m=33 n=17 k=65 a=fp32 device=cpu"));
  DEEPGEMM_TRY_ASSIGN(plan, Plan::create(problem));
  auto values =
      generate_values(problem.problem, plan.info().packed_b, contract::InputSet::kGaussian, 1);
  DEEPGEMM_TRY_ASSIGN(operands, store_operands(problem.problem, plan, std::move(values), {}));
  const gemm_launch_args_t args = operands.args();
  deepgemm_verification_t result = {};
  DEEPGEMM_CALL(deepgemm_verify_plan(plan.get(), &args, &result));
  if (!result.contract_kept || !result.bound_kept) {
    return base::make_error(
        DEEPGEMM_ERROR_INTERNAL,
        "a product on the CPU came out wrong: relative error {:.2e}, bound {:.2e}, "
        "worst at row {}, column {}; please report this",
        result.max_relative_error, result.bound_relative, result.worst_row, result.worst_column);
  }
  return fmt::format("33x17x65 in {} on {}: error {:.1e}, bound {:.1e}", plan.info().path,
                     plan.info().family, result.max_relative_error, result.bound_relative);
}

Diagnosis diagnose() {
  Diagnosis diagnosis;
  std::vector<std::string>& advice = diagnosis.advice;
  diagnosis.sections = {
      build_section(),       cpu_section(advice), gpu_section(advice),        compiler_section(),
      cache_section(advice), limit_section(),     environment_section(advice)};
  const base::Result<std::string> check = check_product();
  diagnosis.healthy = check.ok();
  Section section{"check", {}};
  section.add("product", check.ok() ? *check : check.error().message);
  diagnosis.sections.push_back(std::move(section));
  if (!check.ok()) advice.push_back("The CPU backend does not work: " + check.error().message);
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
  print("\n{}\n", diagnosis.healthy ? paint(Color::kGreen, "healthy: the CPU backend works")
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
