// Problems on the command line: canonical lines, single options, or files of lines.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "intent/problem.hpp"

namespace deepgemm::cli {

// A validated problem and the intent it came from.
struct NamedProblem {
  std::string line;          // canonical: what the library makes of what was typed
  intent::ProblemSpec spec;  // as declared
  intent::Problem problem;   // with defaults filled in

  // The intent with its device bound; points into this object.
  gemm_intent_t bound_intent() const;
};

// Parses and validates one line; errors are wrong usage and quote the line.
base::Result<NamedProblem> parse_problem(const std::string& line);

// The options that name problems. Fields are those of docs/canonical_line.md: `--group 64` is the
// same as `group=64` in a line, and `--<field>` applies to every line given.
class ProblemOptions {
 public:
  enum class Count { kOne, kMany };

  // Adds a positional for lines, one option per field, and `--file` when many are allowed. This
  // object must outlive the parsing.
  void add_to(CLI::App& command, Count count);

  // The lines as typed, with the fields of the options; empty when nothing was given.
  base::Result<std::vector<std::string>> lines() const;
  // lines() parsed; at least one is demanded.
  base::Result<std::vector<NamedProblem>> problems() const;

  // Sets a field that was not given, as its option would.
  void set_default(const std::string& field, const std::string& value);
  bool given(const std::string& field) const;
  const std::string& operation() const { return operation_; }

 private:
  std::string field_text() const;

  std::vector<std::string> words_;
  std::vector<std::string> files_;
  std::string operation_;
  std::map<std::string, std::string> fields_;
  std::map<std::string, bool> flags_;
};

}  // namespace deepgemm::cli
