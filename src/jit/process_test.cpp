#include "jit/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/temporary_directory.hpp"

namespace deepgemm::jit {
namespace {

using State = ProcessEnd::State;

Command shell(const std::string& script) {
  Command command;
  command.arguments = {"/bin/sh", "-c", script};
  command.environment = {"PATH=/usr/bin:/bin"};
  return command;
}

ProcessEnd run(const Command& command) {
  base::Result<ProcessEnd> end = run_process(command);
  EXPECT_TRUE(end.ok()) << (end.ok() ? "" : end.error().message);
  return end.ok() ? *end : ProcessEnd{};
}

TEST(Process, TellsExitStatusAndBothOutputsInOrder) {
  const ProcessEnd end = run(shell("echo one; echo two >&2; echo three; exit 7"));
  EXPECT_EQ(end.state, State::kExited);
  EXPECT_EQ(end.code, 7);
  EXPECT_EQ(end.output, "one\ntwo\nthree\n");
  EXPECT_FALSE(end.may_have_succeeded());
  EXPECT_EQ(describe(end), "exited with status 7");
}

TEST(Process, TellsTheSignal) {
  const ProcessEnd end = run(shell("kill -SEGV $$"));
  EXPECT_EQ(end.state, State::kSignalled);
  EXPECT_EQ(end.code, SIGSEGV);
  EXPECT_NE(describe(end).find("signal 11"), std::string::npos);
}

TEST(Process, EndsAtTheTimeLimitWithAllItsChildren) {
  base::TemporaryDirectory directory;
  Command command = shell("(sleep 1; echo alive > late) & sleep 30");
  command.directory = directory.path();
  command.time_limit = std::chrono::milliseconds(200);
  const ProcessEnd end = run(command);
  EXPECT_EQ(end.state, State::kTimedOut);
  EXPECT_GE(end.seconds, 0.2);
  EXPECT_LT(end.seconds, 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_FALSE(std::filesystem::exists(directory / "late"));
}

TEST(Process, DoesNotWaitForChildrenThatKeepTheOutputOpen) {
  const ProcessEnd end = run(shell("sleep 30 & echo done"));
  EXPECT_EQ(end.state, State::kExited);
  EXPECT_EQ(end.output, "done\n");
  EXPECT_LT(end.seconds, 5);
}

TEST(Process, KeepsBeginningAndEndOfALongOutput) {
  const ProcessEnd end =
      run(shell("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last"));
  EXPECT_EQ(end.state, State::kExited);
  EXPECT_EQ(end.written, 6u + 3000000u + 5u);
  EXPECT_LT(end.output.size(), kOutputKept + 100);
  EXPECT_TRUE(end.output.starts_with("first\n"));
  EXPECT_TRUE(end.output.ends_with("last\n"));
  EXPECT_NE(end.output.find("bytes left out"), std::string::npos);
}

TEST(Process, StopsAProgramThatWritesEndlessly) {
  const ProcessEnd end = run(shell("yes endless >&2"));
  EXPECT_EQ(end.state, State::kTooMuchOutput);
  EXPECT_LT(end.output.size(), kOutputKept + 100);
}

TEST(Process, PassesNoOpenFileAndNoVariable) {
  const int file = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  ASSERT_EQ(::setenv("DEEPGEMM_TEST_VARIABLE", "set", 1), 0);
  const ProcessEnd end =
      run(shell("ls /proc/self/fd | wc -l; env | grep -c DEEPGEMM_TEST; read x"));
  ::unsetenv("DEEPGEMM_TEST_VARIABLE");
  ::close(file);
  EXPECT_EQ(end.output, "4\n0\n");  // three and that of `ls` itself; `read` finds the end of input
}

TEST(Process, StartsWithDefaultSignalsAndInItsDirectory) {
  base::TemporaryDirectory directory;
  struct sigaction ignore = {}, old = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &old);
  Command command = shell("grep SigIgn /proc/self/status; grep SigBlk /proc/self/status; pwd -P");
  command.directory = directory.path();
  const ProcessEnd end = run(command);
  ::sigaction(SIGPIPE, &old, nullptr);
  uint64_t ignored = 0, blocked = 0;
  char place[4096] = {};
  ASSERT_EQ(
      std::sscanf(end.output.c_str(), "SigIgn: %lx SigBlk: %lx %4095s", &ignored, &blocked, place),
      3);
  EXPECT_EQ(ignored & ~uint64_t{0x180000000}, 0u);  // 32 and 33 are the C library's own
  EXPECT_EQ(blocked, 0u);
  EXPECT_EQ(place, std::filesystem::canonical(directory.path()).string());
}

TEST(Process, IsUnknownWhereChildrenAreIgnored) {
  struct sigaction ignore = {}, old = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGCHLD, &ignore, &old);
  const ProcessEnd end = run(shell("echo out; exit 3"));
  ::sigaction(SIGCHLD, &old, nullptr);
  EXPECT_EQ(end.state, State::kUnknown);
  EXPECT_EQ(end.output, "out\n");
  EXPECT_TRUE(end.may_have_succeeded());
}

TEST(Process, SaysWhyAProgramCannotStart) {
  base::TemporaryDirectory directory;
  Command command;
  command.arguments = {directory / "absent"};
  EXPECT_EQ(run_process(command).error().code, DEEPGEMM_ERROR_IO);
  EXPECT_NE(run_process(command).error().message.find("No such file"), std::string::npos);
  command.arguments = {directory.path()};
  EXPECT_NE(run_process(command).error().message.find("ermission denied"), std::string::npos);
}

TEST(Process, WorksWithStandardFilesClosed) {
  const int in = ::dup(0), out = ::dup(1), err = ::dup(2);
  ::close(0), ::close(1), ::close(2);
  base::Result<ProcessEnd> end = run_process(shell("cat; echo yes; echo no >&2"));
  ::dup2(in, 0), ::dup2(out, 1), ::dup2(err, 2);
  ::close(in), ::close(out), ::close(err);
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->output, "yes\nno\n");
}

TEST(Process, RunsInManyThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(16);
  for (size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back(
        [&outputs, i] { outputs[i] = run(shell("echo " + std::to_string(i))).output; });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i], std::to_string(i) + "\n");
}

TEST(Process, QuotesACommandSoThatAShellReadsItBack) {
  const std::vector<std::string> arguments = {"plain-1.0", "", "two words", "it's", "$HOME", "é*"};
  const ProcessEnd end = run(shell("printf '<%s>' " + quote_command(arguments)));
  EXPECT_EQ(end.output, "<plain-1.0><><two words><it's><$HOME><é*>");
}

TEST(Process, TakesTheLastLines) {
  EXPECT_EQ(last_lines("a\nb\nc\n\n", 2), "b\nc");
  EXPECT_EQ(last_lines("a", 3), "a");
  EXPECT_EQ(last_lines("", 3), "");
}

}  // namespace
}  // namespace deepgemm::jit
