#include "jit/compile_report.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/hash.hpp"
#include "jit/file_ops.hpp"
#include "jit/work_directory.hpp"

namespace deepgemm::jit {
namespace {

constexpr const char* kPrefix = "failed-";
constexpr size_t kLinesShown = 12;
constexpr size_t kOutputShown = 2000;

std::string safe_name(const std::string& name) {
  std::string safe = name.substr(0, 60);
  for (char& letter : safe) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') || letter == '_' || letter == '-';
    if (!plain) letter = '_';
  }
  return safe.empty() ? "kernel" : safe;
}

void remove_oldest(const std::string& directory, const std::string& but) {
  FileOps& files = system_files();
  std::vector<std::string> names;
  files.list(directory, names);
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const std::string& name : names) {
    FileInfo info;
    if (name.starts_with(kPrefix) && name != but &&
        files.inspect(directory + "/" + name, info) == 0) {
      kept.emplace_back(info.changed_ns, name);
    }
  }
  std::sort(kept.rbegin(), kept.rend());
  for (size_t i = kFailuresKept - 1; i < kept.size(); ++i) {
    remove_tree(files, directory + "/" + kept[i].second);
  }
}

bool write_notes(const CompileFailure& failure, const std::string& directory) {
  std::ofstream command(directory + "/command.txt");
  command << failure.command << '\n';
  std::ofstream output(directory + "/output.txt");
  output << failure.compiler << ' ' << failure.how << '\n' << failure.output;
  return command.good() && output.good();
}

// Empty when nothing could be kept. A second failure of the same source replaces the first.
std::string keep(const CompileFailure& failure, const std::string& directory) {
  if (directory.empty()) return {};
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  const std::string text = failure.source.text + '\0' + failure.command;
  const std::string name = fmt::format("{}{}-{}", kPrefix, safe_name(failure.source.name),
                                       base::hash_bytes(text).hex().substr(0, 8));
  const std::string path = directory + "/" + name;
  const std::string draft = directory + "/" + kPrefix + unique_name();
  if (::mkdir(draft.c_str(), 0700) != 0) return {};
  const char* main_file = failure.source.language == Language::kCpp ? "kernel.cpp" : "kernel.cu";
  const bool written =
      write_source(failure.source, draft, main_file).ok() && write_notes(failure, draft);
  remove_tree(system_files(), path);
  if (!written || system_files().rename(draft, path) != 0) {
    remove_tree(system_files(), draft);
    return {};
  }
  remove_oldest(directory, name);
  return path;
}

}  // namespace

base::Error report_failure(const CompileFailure& failure, const std::string& directory) {
  const std::string kept = keep(failure, directory);
  std::string shown = last_lines(failure.output, kLinesShown);
  if (shown.size() > kOutputShown) shown = "..." + shown.substr(shown.size() - kOutputShown);
  return base::make_error(
      DEEPGEMM_ERROR_COMPILE_FAILED,
      "Kernel '{}': {} {}.\n  command: {}\n  last lines: {}\n  source: {}\n  {}",
      failure.source.name, failure.compiler, failure.how, failure.command,
      shown.empty() ? "none" : shown,
      kept.empty() ? std::string("not kept; set DEEPGEMM_DUMP_DIR to a writable directory") : kept,
      failure.hint);
}

std::string hint_for(const ProcessEnd& end) {
  switch (end.state) {
    case ProcessEnd::State::kTimedOut:
      return "The machine may be overloaded or the compiler hangs: try the command by hand.";
    case ProcessEnd::State::kTooMuchOutput:
      return "This is no compiler that works: choose another.";
    case ProcessEnd::State::kSignalled:
      return end.code == SIGKILL
                 ? "Most often the system ran out of memory: free some, or raise its limit."
                 : "The compiler crashed: choose another one or update it.";
    default:
      return "Read the lines above; an old compiler may not know an option: choose another one.";
  }
}

}  // namespace deepgemm::jit
