// deepgemm list: what this build knows.
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/device.hpp"
#include "backend/cuda/generate.hpp"
#include "backend/cuda/profile.hpp"
#include "base/formats.hpp"
#include "contract/path.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"
#include "intent/words.hpp"
#include "schedule/family.hpp"
#include "schedule/profile.hpp"

namespace deepgemm::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string subject;
  bool json = false;
};

std::string backend_name(schedule::Backend backend) {
  return backend == schedule::Backend::kCpu ? "cpu" : "cuda";
}

// Each list is an array of flat objects, so that the text table needs no code of its own.
Json families() {
  Json list = Json::array();
  for (const schedule::Family& family : schedule::all_families()) {
    Json paths = Json::array();
    for (const contract::Path& path : contract::all_paths()) {
      if (family.supports(path.id)) paths.push_back(path.name);
    }
    const bool cpu = family.backend == schedule::Backend::kCpu;
    list.push_back(
        {{"family", family.name},
         {"backend", backend_name(family.backend)},
         {"kernels", cpu || cuda::has_kernels(family.name)},
         {"architectures", cpu ? "any" : fmt::format("sm_{}-{}", family.sm_min, family.sm_max)},
         {"max_m", family.max_m},
         {"paths", paths},
         {"design", family.design}});
  }
  return list;
}

Json paths() {
  Json list = Json::array();
  for (const contract::Path& path : contract::all_paths()) {
    Json families = Json::array();
    for (const schedule::Family& family : schedule::all_families()) {
      if (family.supports(path.id)) families.push_back(family.name);
    }
    list.push_back({{"path", path.name}, {"arithmetic", path.description}, {"families", families}});
  }
  return list;
}

Json device(const schedule::DeviceProfile& profile, bool launchable) {
  return {{"device", profile.name},
          {"title", profile.title},
          {"backend", backend_name(profile.backend)},
          {"launchable", launchable},
          {"units", profile.units},
          {"fp32_tflops", profile.peak.fp32},
          {"fp16_tflops", profile.peak.fp16},
          {"bandwidth_gbs", profile.bandwidth_gbs}};
}

Json devices() {
  Json list = Json::array();
  list.push_back(device(cpu::host_profile(), true));
  if (const auto platform = cuda::process_platform(); platform.ok()) {
    for (int i = 0; i < (*platform)->device_count(); ++i) {
      const auto gpu = (*platform)->device(i);
      if (gpu.ok()) list.push_back(device(cuda::device_profile((*gpu)->facts()), true));
    }
  }
  for (const schedule::DeviceProfile& profile : schedule::all_profiles()) {
    if (profile.name != "cpu") list.push_back(device(profile, false));
  }
  return list;
}

Json formats() {
  Json list = Json::array();
  for (const intent::Word& word : intent::precision_words()) {
    const base::FormatInfo* info = base::find_format(static_cast<gemm_precision_t>(word.value));
    if (info == nullptr) continue;
    list.push_back({{"format", word.name},
                    {"bits", info->storage_bits},
                    {"significand_bits", info->significand_bits},
                    {"largest", info->max_finite},
                    {"smallest", info->min_subnormal},
                    {"unit_roundoff", info->unit_roundoff}});
  }
  return list;
}

Json words_of(std::span<const intent::Word> words, const char* title) {
  Json list = Json::array();
  for (const intent::Word& word : words) list.push_back({{title, word.name}});
  return list;
}

Json roles() { return words_of(intent::role_words(), "role"); }

struct Subject {
  const char* name;
  Json (*make)();
};

constexpr Subject kSubjects[] = {{"families", families},
                                 {"paths", paths},
                                 {"devices", devices},
                                 {"formats", formats},
                                 {"roles", roles}};

std::string cell(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_integer()) return fmt::format("{}", value.get<int64_t>());
  if (value.is_number()) return fmt::format("{:.4g}", value.get<double>());
  std::vector<std::string> parts;
  for (const Json& part : value) parts.push_back(cell(part));
  return fmt::format("{}", fmt::join(parts, " "));
}

void print_table(const Json& list) {
  if (list.empty()) return;
  std::vector<std::string> titles;
  for (const auto& [key, value] : list.front().items()) {
    titles.push_back((value.is_number() ? ">" : "") + key);
  }
  Table table(titles);
  for (const Json& object : list) {
    std::vector<std::string> row;
    for (const auto& [key, value] : object.items()) row.push_back(cell(value));
    table.add(std::move(row));
  }
  write_output(table.text());
}

base::Result<ExitCode> run_list(const Options& options) {
  Json all = Json::object();
  for (const Subject& subject : kSubjects) {
    if (!options.subject.empty() && options.subject != subject.name) continue;
    const Json list = subject.make();
    if (options.json) {
      all[subject.name] = list;
      continue;
    }
    if (options.subject.empty()) print("{}\n", paint(Color::kBold, subject.name));
    print_table(list);
    if (options.subject.empty()) print("\n");
  }
  if (options.json) print("{}\n", all.dump(2));
  return ExitCode::kOk;
}

}  // namespace

Verb add_list(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "list", "List kernel families, arithmetic paths, devices, number formats and roles");
  std::vector<std::string> names;
  for (const Subject& subject : kSubjects) names.emplace_back(subject.name);
  command->add_option("subject", options->subject, "one of them; without it, all")
      ->check(CLI::IsMember(names));
  command->add_flag("--json", options->json, "as JSON");
  return {command, [options] { return run_list(*options); }};
}

}  // namespace deepgemm::cli
