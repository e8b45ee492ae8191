// What the verbs of the program share: exit codes, errors, and how a verb is declared.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "deepgemm/deepgemm.h"

namespace deepgemm::cli {

// Documented in docs/cli.md and in the footer of --help.
enum class ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,  // the program worked, and what it checked is not as it must be
  kUsage = 2,        // arguments of the command line
  kUnsupported = 3,  // no plan: not built, contract unmet, budget infeasible
  kFile = 4,         // a file is missing, unreadable or malformed
  kInternal = 5,     // out of memory, a device failed, a defect
};

// The exit code that an error ends the program with.
ExitCode exit_code(const base::Error& error);

// The error of the last failing library call in this thread.
base::Error library_error(deepgemm_status_t status);

// Wrong usage that only shows after the command line was parsed.
template <class... Args>
base::Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

// A sub-command: its options live as long as `run` does.
struct Verb {
  CLI::App* command;
  std::function<base::Result<ExitCode>()> run;
};

// One function per verb, each in the file of its name; adds the sub-command to the program.
Verb add_bench(CLI::App& program);
Verb add_cache(CLI::App& program);
Verb add_demo(CLI::App& program);
Verb add_doctor(CLI::App& program);
Verb add_list(CLI::App& program);
Verb add_pack(CLI::App& program);
Verb add_plan(CLI::App& program);
Verb add_run(CLI::App& program);
Verb add_verify(CLI::App& program);

}  // namespace deepgemm::cli

// Returns the error of a library call from the enclosing function.
#define DEEPGEMM_CALL(expression)                                                              \
  do {                                                                                         \
    if (const deepgemm_status_t call_status = (expression); call_status != DEEPGEMM_SUCCESS) { \
      return ::deepgemm::cli::library_error(call_status);                                      \
    }                                                                                          \
  } while (false)
