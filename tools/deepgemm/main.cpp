// The program deepgemm: plans, runs, verifies and times matrix products. docs/cli.md describes it.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

constexpr const char* kFooter = R"(
Exit codes: 0 done, 1 a check failed, 2 wrong usage, 3 no plan (unsupported, contract unmet or
budget infeasible), 4 a file problem, 5 internal failure. Results go to standard output, errors to
standard error. `deepgemm <verb> --help` describes a verb.)";

void print_error(const std::string& message) {
  const std::string line = fmt::format("deepgemm: {}\n", message);
  std::fputs(line.c_str(), stderr);
}

// CLI11's own messages already name the argument; help and version are successes.
int finish_parse(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    return program.exit(error);
  }
  const auto chosen = program.get_subcommands();
  const std::string verb = chosen.empty() ? "" : " " + chosen.front()->get_name();
  print_error(fmt::format("{}; see `deepgemm{} --help`", error.what(), verb));
  return static_cast<int>(ExitCode::kUsage);
}

int run_verb(const std::vector<Verb>& verbs) {
  ExitCode code = ExitCode::kOk;
  for (const Verb& verb : verbs) {
    if (!verb.command->parsed()) continue;
    const base::Result<ExitCode> result = verb.run();
    code = result.ok() ? *result : exit_code(result.error());
    if (!result.ok()) print_error(result.error().message);
  }
  if (!flush_output()) {
    print_error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    return static_cast<int>(ExitCode::kFile);
  }
  return static_cast<int>(code);
}

int run_program(int argc, char** argv) {
  CLI::App program("Matrix products of language-model inference: plan, run, verify, time.",
                   "deepgemm");
  program.set_version_flag("--version", "deepgemm " DEEPGEMM_VERSION_STRING);
  program.require_subcommand(1);
  program.footer(kFooter);
  std::vector<Verb> verbs;
  for (const auto add : {add_doctor, add_list, add_plan, add_run, add_verify, add_bench, add_cache,
                         add_pack, add_demo}) {
    verbs.push_back(add(program));
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish_parse(program, error);
  }
  return run_verb(verbs);
}

}  // namespace

ExitCode exit_code(const base::Error& error) {
  switch (error.code) {
    case DEEPGEMM_ERROR_INVALID_ARGUMENT:
      return ExitCode::kUsage;
    case DEEPGEMM_ERROR_UNSUPPORTED:
    case DEEPGEMM_ERROR_CONTRACT_UNMET:
    case DEEPGEMM_ERROR_BUDGET_INFEASIBLE:
    case DEEPGEMM_ERROR_NOT_PREPARED:
    case DEEPGEMM_ERROR_COMPILER_MISSING:
      return ExitCode::kUnsupported;
    case DEEPGEMM_ERROR_IO:
    case DEEPGEMM_ERROR_FORMAT:
      return ExitCode::kFile;
    default:
      return ExitCode::kInternal;
  }
}

base::Error library_error(deepgemm_status_t status) { return {status, deepgemm_last_error()}; }

}  // namespace deepgemm::cli

int main(int argc, char** argv) {
  // A reader that went away (`deepgemm list | head -1`) ends the program quietly, as with any
  // filter, also where the parent process had it ignore the signal.
  std::signal(SIGPIPE, SIG_DFL);
  try {
    return deepgemm::cli::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    deepgemm::cli::print_error("out of memory; give smaller sizes");
  } catch (const std::exception& error) {
    deepgemm::cli::print_error(fmt::format("internal error: {}", error.what()));
  }
  return static_cast<int>(deepgemm::cli::ExitCode::kInternal);
}
