// Plans kept as text: a change of choice is a diff to review. Run with --update to write the files
// anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "schedule/planner.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

bool update = false;

const std::string kFolder = DEEPGEMM_GOLDEN_DIR;

std::vector<std::string> read_lines(const std::string& name) {
  std::ifstream file(kFolder + "/" + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string subject(const Candidate& candidate) {
  return fmt::format("{} on {} {}", contract::path_info(candidate.path).name,
                     candidate.family->name, config_name(candidate.config));
}

// Three digits: compilers may differ in the last bits.
std::string figures(const Candidate& candidate) {
  return fmt::format("{:.3g} us, {}, error {:.2e}", candidate.cost->us, candidate.cost->bound_by,
                     candidate.bound->relative);
}

// The best configuration of each path and family, best first.
std::vector<const Candidate*> best_of_each(const Report& report) {
  std::map<std::string, const Candidate*> best;
  for (const Candidate& candidate : report.candidates) {
    if (candidate.refusal) continue;
    const Candidate*& slot =
        best[fmt::format("{} {}", static_cast<int>(candidate.path), candidate.family->name)];
    if (slot == nullptr || *candidate.score < *slot->score) slot = &candidate;
  }
  std::vector<const Candidate*> list;
  for (const auto& [name, candidate] : best) list.push_back(candidate);
  std::ranges::stable_sort(list, {}, [](const Candidate* c) { return *c->score; });
  return list;
}

void write_refusals(const Report& report, std::string& text) {
  std::map<std::string, std::set<std::string>> checks;
  for (const Candidate& candidate : report.candidates) {
    if (!candidate.refusal) continue;
    checks[candidate.refusal->check].insert(
        candidate.whole_family ? candidate.family->name
                               : fmt::format("{}:{}", candidate.family->name,
                                             contract::path_info(candidate.path).name));
  }
  for (const auto& [check, subjects] : checks) {
    if (check == "path" || check == "formats") continue;  // facts of the catalogue, not of a choice
    fmt::format_to(std::back_inserter(text), "  refused by {}: {}\n", check,
                   fmt::join(subjects, " "));
  }
}

std::string golden_entry(const std::string& line, const DeviceProfile& profile) {
  std::string text = line + "\n";
  const auto spec = intent::parse_line(line);
  EXPECT_TRUE(spec.ok()) << line;
  if (!spec.ok()) return text;
  const auto problem = intent::resolve(spec->intent, spec->m, spec->n, spec->k);
  EXPECT_TRUE(problem.ok()) << line;
  if (!problem.ok()) return text;
  EXPECT_EQ(intent::format_line(*problem), line) << "lines.txt holds canonical lines only";
  const Report report = plan(*problem, profile, {}, {});
  if (!report.choice) {
    text += fmt::format("  no plan, code {}\n", static_cast<int>(report.failure->code));
  } else {
    constexpr size_t kShown = 4;
    const Choice& choice = *report.choice;
    text += fmt::format("  chosen {} on {} {}, {:.3g} us\n", contract::path_info(choice.path).name,
                        choice.family->name, config_name(choice.config), choice.cost.us);
    const auto best = best_of_each(report);
    for (size_t i = 0; i < std::min(kShown, best.size()); ++i) {
      text += fmt::format("  {}: {}\n", subject(*best[i]), figures(*best[i]));
    }
  }
  write_refusals(report, text);
  return text;
}

std::string golden_text(const DeviceProfile& profile) {
  std::string text =
      fmt::format("# Plans for {}; written by deepgemm_golden_test --update.\n", profile.name);
  for (const std::string& line : read_lines("lines.txt")) {
    if (!line.empty() && line[0] != '#') text.append("\n").append(golden_entry(line, profile));
  }
  return text;
}

// Lines of either text that the other has not, in order.
std::string difference(const std::string& kept, const std::string& now) {
  const auto split = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  };
  const auto old_lines = split(kept), new_lines = split(now);
  std::string text, problem;
  for (size_t i = 0; i < std::max(old_lines.size(), new_lines.size()); ++i) {
    const std::string before = i < old_lines.size() ? old_lines[i] : "";
    const std::string after = i < new_lines.size() ? new_lines[i] : "";
    if (!after.empty() && after[0] != ' ') problem = after;
    if (before != after) {
      text += fmt::format("line {}, {}\n- {}\n+ {}\n", i + 1, problem, before, after);
    }
  }
  return text;
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, PlansAreAsKept) {
  const std::string device = GetParam();
  const DeviceProfile profile =
      device.starts_with("cpu_") ? cpu_profile(device.substr(4), 2) : *find_profile(device);
  const std::string path = kFolder + "/" + profile.name + ".txt";
  const std::string now = golden_text(profile);
  if (update) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing; write it with --update";
  const std::string kept{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(kept == now) << "plans for " << profile.name
                           << " changed; review, then run with --update\n"
                           << difference(kept, now);
}

INSTANTIATE_TEST_SUITE_P(Devices, Golden,
                         testing::Values("h200", "a100", "v100", "cpu_avx512", "cpu_amx"),
                         [](const auto& device) { return std::string(device.param); });

}  // namespace
}  // namespace deepgemm::schedule

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--update") == 0) deepgemm::schedule::update = true;
  }
  return RUN_ALL_TESTS();
}
