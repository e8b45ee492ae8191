#include "jit/program_compiler.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/env.hpp"
#include "jit/compile_report.hpp"
#include "jit/file_ops.hpp"
#include "jit/work_directory.hpp"

namespace deepgemm::jit {
namespace {

constexpr int64_t kLargestOutput = int64_t{256} << 20;

bool is_executable_file(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

class ProgramCompiler : public Compiler {
 public:
  ProgramCompiler(ProgramSpec spec, CompilerSettings settings)
      : spec_(std::move(spec)), settings_(std::move(settings)) {}

  const CompilerIdentity& identity() const override { return spec_.identity; }
  std::string location() const override { return spec_.path; }
  bool accepts(const Source& source) const override { return spec_.accepts(source); }
  int64_t memory_bytes() const override { return spec_.memory_bytes; }

  base::Result<Binary> compile(const Source& source) const override {
    DEEPGEMM_TRY_ASSIGN(directory, WorkDirectory::create(settings_.temp_directory));
    DEEPGEMM_TRY(write_source(source, directory.path(), spec_.source_file));
    Command command;
    command.arguments = spec_.arguments(source, directory.path());
    command.arguments.insert(command.arguments.begin(), spec_.path);
    command.directory = directory.path();
    command.environment = compiler_environment(settings_, directory.path());
    command.time_limit = settings_.compile_limit;
    DEEPGEMM_TRY_ASSIGN(end, run_process(command));
    if (!end.may_have_succeeded()) {
      return fail(source, command, end, describe(end), hint_for(end));
    }
    Binary binary;
    FileInfo info;
    const std::string output = directory.path() + "/" + spec_.output_file;
    const int error = system_files().read(output, kLargestOutput, info, binary.bytes);
    if (const std::string fault = fault_of(binary, error); !fault.empty()) {
      return fail(source, command, end, describe(end) + ", but " + fault,
                  fmt::format("{} may not be a working compiler: set {} to another.", spec_.path,
                              spec_.setting));
    }
    binary.log = std::move(end.output);
    binary.seconds = end.seconds;
    return binary;
  }

 private:
  std::string fault_of(const Binary& binary, int error) const {
    constexpr std::string_view kElf = "\177ELF";
    if (error == ENOENT) return fmt::format("wrote no {}", spec_.output_file);
    if (error != 0) return "its output is unreadable: " + std::generic_category().message(error);
    if (binary.bytes.empty()) return "its output is empty";
    const std::string_view text(reinterpret_cast<const char*>(binary.bytes.data()),
                                binary.bytes.size());
    return text.starts_with(kElf) ? "" : "its output is no object file (ELF)";
  }

  base::Error fail(const Source& source, const Command& command, const ProcessEnd& end,
                   std::string how, std::string hint) const {
    return report_failure({source, spec_.path, std::move(how), quote_command(command.arguments),
                           end.output, std::move(hint)},
                          settings_.failed_directory);
  }

  const ProgramSpec spec_;
  const CompilerSettings settings_;
};

}  // namespace

std::shared_ptr<const Compiler> make_program_compiler(ProgramSpec spec,
                                                      const CompilerSettings& settings) {
  return std::make_shared<ProgramCompiler>(std::move(spec), settings);
}

std::vector<std::string> compiler_environment(const CompilerSettings& settings,
                                              const std::string& temp_directory) {
  std::vector<std::string> environment = {"LC_ALL=C", "PATH=" + settings.search_path,
                                          "TMPDIR=" + temp_directory};
  if (!settings.user_home.empty()) environment.push_back("HOME=" + settings.user_home);
  if (const auto libraries = base::env("LD_LIBRARY_PATH")) {
    environment.push_back("LD_LIBRARY_PATH=" + *libraries);
  }
  return environment;
}

base::Result<std::string> ask_program(const std::string& path,
                                      const std::vector<std::string>& arguments,
                                      const CompilerSettings& settings) {
  Command command;
  command.arguments = arguments;
  command.arguments.insert(command.arguments.begin(), path);
  command.environment = compiler_environment(
      settings, settings.temp_directory.empty() ? "/tmp" : settings.temp_directory);
  command.time_limit = settings.probe_limit;
  DEEPGEMM_TRY_ASSIGN(end, run_process(command));
  if (!end.may_have_succeeded()) {
    return base::make_error(DEEPGEMM_ERROR_COMPILER_MISSING, "{} {}",
                            quote_command(command.arguments), describe(end));
  }
  return end.output;
}

CompilerSearch take_first(const ProgramCandidates& candidates, ProgramProbe probe,
                          const CompilerSettings& settings) {
  CompilerSearch search;
  const std::string chosen_by =
      candidates.setting == nullptr ? "" : fmt::format("{}: ", candidates.setting);
  for (const std::string& name : candidates.names) {
    const std::optional<std::string> path = find_program(name, settings.search_path);
    if (!path) {
      if (candidates.setting != nullptr) {
        search.notes.push_back(fmt::format("{}'{}' is no executable file", chosen_by, name));
      }
      continue;
    }
    base::Result<std::shared_ptr<const Compiler>> compiler = probe(*path, settings);
    if (compiler.ok()) {
      search.compilers.push_back(std::move(*compiler));
      return search;
    }
    search.notes.push_back(chosen_by + compiler.error().message);
  }
  if (search.notes.empty()) search.notes.push_back(candidates.none);
  return search;
}

std::optional<std::string> find_program(const std::string& name, const std::string& search_path) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    if (!is_executable_file(name)) return std::nullopt;
    return std::filesystem::absolute(name, ignored).string();
  }
  std::string_view rest = search_path;
  while (!rest.empty()) {
    const std::string directory(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), directory.size() + 1));
    // An empty or relative entry means "wherever this process happens to be": not for a library.
    if (!directory.starts_with('/')) continue;
    const std::string path = directory + "/" + name;
    if (is_executable_file(path)) return path;
  }
  return std::nullopt;
}

}  // namespace deepgemm::jit
