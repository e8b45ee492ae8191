#include "jit/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "jit/descriptor.hpp"

namespace deepgemm::jit {
namespace {

using Clock = std::chrono::steady_clock;
using State = ProcessEnd::State;

// Keeps the beginning and the end of what is added.
class BoundedText {
 public:
  void add(const char* data, size_t size) {
    total_ += size;
    const size_t first = std::min(size, kHead - head_.size());
    head_.append(data, first);
    tail_.append(data + first, size - first);
    if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
  }
  uint64_t total() const { return total_; }
  std::string text() const {
    const std::string tail = tail_.size() > kTail ? tail_.substr(tail_.size() - kTail) : tail_;
    const uint64_t left_out = total_ - head_.size() - tail.size();
    if (left_out == 0) return head_ + tail;
    return fmt::format("{}\n... {} bytes left out ...\n{}", head_, left_out, tail);
  }

 private:
  static constexpr size_t kHead = kOutputKept / 4;
  static constexpr size_t kTail = kOutputKept - kHead;
  std::string head_, tail_;
  uint64_t total_ = 0;
};

struct Child {
  pid_t pid = -1;
  Descriptor output;
};

// Above the three standard ones, which may be closed in this process.
Descriptor above_standard(int file) {
  const Descriptor low(file);
  return Descriptor(::fcntl(file, F_DUPFD_CLOEXEC, 3));
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// What posix_spawn is told; frees it.
class SpawnSettings {
 public:
  SpawnSettings(int output, const std::string& directory) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 1);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 2);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    if (!directory.empty()) {
      ::posix_spawn_file_actions_addchdir_np(&actions_, directory.c_str());
    }
    sigset_t signals;
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    ::sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  int spawn(pid_t* pid, const Command& command) {
    const std::vector<char*> arguments = pointers(command.arguments);
    const std::vector<char*> environment = pointers(command.environment);
    return ::posix_spawn(pid, arguments[0], &actions_, &attributes_, arguments.data(),
                         environment.data());
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

base::Result<Child> start(const Command& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return base::make_error(DEEPGEMM_ERROR_IO, "Cannot start '{}': no pipe: {}.",
                            command.arguments[0], std::generic_category().message(errno));
  }
  Child child{-1, above_standard(ends[0])};
  const Descriptor write_end = above_standard(ends[1]);
  if (!child.output.valid() || !write_end.valid()) {
    return base::make_error(DEEPGEMM_ERROR_IO, "Cannot start '{}': too many open files.",
                            command.arguments[0]);
  }
  ::fcntl(child.output.get(), F_SETFL, O_NONBLOCK);
  const int error = SpawnSettings(write_end.get(), command.directory).spawn(&child.pid, command);
  if (error != 0) {
    return base::make_error(DEEPGEMM_ERROR_IO, "Cannot start '{}': {}.", command.arguments[0],
                            std::generic_category().message(error));
  }
  return child;
}

// False at the end of the output.
bool read_available(int file, BoundedText& output) {
  char buffer[1 << 16];
  while (output.total() <= kOutputLimit) {
    const ssize_t got = ::read(file, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    output.add(buffer, static_cast<size_t>(got));
  }
  return true;
}

// Without collecting it, so that its group can still be killed by its number.
bool has_ended(pid_t pid) {
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return errno != EINTR;
  }
  return info.si_pid == pid;
}

void wait_a_moment(const Child& child, bool open) {
  if (open) {
    pollfd wait = {child.output.get(), POLLIN, 0};
    // Children of the program may hold the pipe after its end, hence the limit.
    ::poll(&wait, 1, 20);
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// A process that the kernel cannot end (it waits for a dead disk) is left behind.
void collect(pid_t pid, ProcessEnd& end) {
  const Clock::time_point give_up = Clock::now() + std::chrono::seconds(2);
  int status = 0;
  for (;;) {
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got == pid) break;
    if ((got < 0 && errno != EINTR) || Clock::now() > give_up) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (end.state != State::kUnknown) return;  // we killed it
  if (WIFEXITED(status)) {
    end.state = State::kExited;
    end.code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    end.state = State::kSignalled;
    end.code = WTERMSIG(status);
  }
}

}  // namespace

base::Result<ProcessEnd> run_process(const Command& command) {
  const Clock::time_point begin = Clock::now();
  DEEPGEMM_TRY_ASSIGN(child, start(command));
  BoundedText output;
  ProcessEnd end;
  bool open = true;
  while (!has_ended(child.pid)) {
    wait_a_moment(child, open);
    if (open) open = read_available(child.output.get(), output);
    if (output.total() > kOutputLimit) {
      end.state = State::kTooMuchOutput;
      break;
    }
    if (Clock::now() - begin >= command.time_limit) {
      end.state = State::kTimedOut;
      break;
    }
  }
  ::kill(-child.pid, SIGKILL);
  collect(child.pid, end);
  if (open) read_available(child.output.get(), output);
  end.output = output.text();
  end.written = output.total();
  end.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return end;
}

std::string describe(const ProcessEnd& end) {
  switch (end.state) {
    case State::kExited:
      return fmt::format("exited with status {}", end.code);
    case State::kSignalled:
      return fmt::format("was killed by signal {} ({})", end.code, ::strsignal(end.code));
    case State::kTimedOut:
      return fmt::format("was stopped after {:.1f} s", end.seconds);
    case State::kTooMuchOutput:
      return fmt::format("was stopped after writing {} MiB of messages", end.written >> 20);
    case State::kUnknown:
      break;
  }
  return "ended in an unknown way";
}

std::string quote_command(const std::vector<std::string>& arguments) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char letter : argument) line += letter == '\'' ? "'\\''" : std::string(1, letter);
    line += '\'';
  }
  return line;
}

std::string last_lines(const std::string& text, size_t count) {
  size_t end = text.size();
  while (end > 0 && text[end - 1] == '\n') --end;
  size_t begin = end;
  for (; begin > 0; --begin) {
    if (text[begin - 1] == '\n' && --count == 0) break;
  }
  return text.substr(begin, end - begin);
}

}  // namespace deepgemm::jit
