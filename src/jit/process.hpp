// Runs a program without a shell and tells as data how it ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace deepgemm::jit {

struct Command {
  std::vector<std::string> arguments;    // the first is the program's path; PATH is not searched
  std::string directory;                 // that it runs in; empty: that of this process
  std::vector<std::string> environment;  // "NAME=value": all that the program gets
  std::chrono::milliseconds time_limit{300000};
};

struct ProcessEnd {
  enum class State {
    kExited,         // code: exit status
    kSignalled,      // code: signal
    kTimedOut,       // killed after the time limit
    kTooMuchOutput,  // killed after kOutputLimit
    kUnknown,        // this process ignores or collects its children elsewhere
  };
  State state = State::kUnknown;
  int code = 0;
  std::string output;    // standard output and error, in order; the middle is left out when long
  uint64_t written = 0;  // bytes that it wrote
  double seconds = 0;

  // Exited with 0, or nobody can tell: then its results decide.
  bool may_have_succeeded() const {
    return state == State::kUnknown || (state == State::kExited && code == 0);
  }
};

// Of a program's output at most this much is kept, and a program that writes more than the limit is
// killed.
inline constexpr size_t kOutputKept = size_t{64} << 10;
inline constexpr uint64_t kOutputLimit = uint64_t{64} << 20;

// The program gets no open files of this process, an empty standard input, default signal handling
// and a process group of its own, which is killed when the program ends or the time is over. IO
// when it cannot be started. Any thread.
base::Result<ProcessEnd> run_process(const Command& command);

// "exited with status 1", "was killed by signal 9 (Killed)", "was stopped after 5.0 s", ...
std::string describe(const ProcessEnd& end);

// The arguments as one could type them into a shell.
std::string quote_command(const std::vector<std::string>& arguments);

// The last `count` lines of a text.
std::string last_lines(const std::string& text, size_t count);

}  // namespace deepgemm::jit
