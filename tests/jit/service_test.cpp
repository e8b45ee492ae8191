// One object asked for kernels, in an environment that changes. The rows named are of the list of
// complaints in docs/cache.md.

#include "jit/service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "jit/log_capture.hpp"
#include "service_fixture.hpp"

namespace deepgemm::jit {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ServiceTest : public ServiceFixture {
 protected:
  static std::string message_of(const base::Result<std::shared_ptr<const Module>>& result) {
    return result.ok() ? "" : result.error().message;
  }
  // Exit status of `work` in a forked process; -1 when a signal ended it.
  static int in_child(const std::function<int()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      ::_exit(work());
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(ServiceTest, LooksForNothingBeforeItIsAsked) {
  LogCapture log;
  const Service service;
  EXPECT_FALSE(fs::exists(cache_directory()));
  EXPECT_EQ(log.all(), "");
}

TEST_F(ServiceTest, FindsCompilersOnceAndBuilds) {
  install();
  Service service;
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  const auto found = service.compilers(Language::kCpp);
  ASSERT_EQ(found->compilers.size(), 1u);
  EXPECT_EQ(found->compilers[0]->location(), directory_ / "bin/g++");
  install(compile_script(), "13.1.0");
  EXPECT_EQ(service.compilers(Language::kCpp), found);
  EXPECT_EQ(answer_of(service.build(answer_source(2))), 2);
  EXPECT_EQ(answer_of(service.build(answer_source(2))), 2);
  EXPECT_EQ(service.counters().compiles, 2u);
  EXPECT_EQ(service.counters().memory_hits, 1u);
  EXPECT_TRUE(service.cache_status().usable);
  EXPECT_EQ(service.cache_status().directory, cache_directory());
}

// J6, J11: variables that are set later count.
TEST_F(ServiceTest, SearchesAnewWhenASettingChanges) {
  install();
  Service service;
  const auto first = service.compilers(Language::kCpp);
  install(compile_script(), "13.1.0", "other/g++");
  set("DEEPGEMM_CXX", directory_ / "other/g++");
  const auto second = service.compilers(Language::kCpp);
  ASSERT_EQ(second->compilers.size(), 1u);
  EXPECT_EQ(second->compilers[0]->location(), directory_ / "other/g++");
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  set("DEEPGEMM_CXX", "");
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  EXPECT_EQ(service.counters().compiles, 2u);  // another version gives another kernel
}

TEST_F(ServiceTest, NvccPathReachesTheSearchForCudaAndNoOther) {
  install();
  Service service;
  const auto cpp = service.compilers(Language::kCpp);
  set("DEEPGEMM_NVCC_PATH", directory_ / "absent");
  EXPECT_EQ(service.nvcc_path(), directory_ / "absent");
  EXPECT_TRUE(service.compilers(Language::kCuda)->compilers.empty());
  EXPECT_THAT(service.compilers(Language::kCuda)->notes.at(0), HasSubstr("absent"));
  const std::string nvcc = directory_ / "toolkit/nvcc";
  write_script(nvcc, "nvcc: NVIDIA (R) Cuda compiler driver\nrelease 13.0, V13.0.88",
               "[ \"$1\" = --list-gpu-code ] && echo sm_80 sm_90");
  service.set_nvcc_path(nvcc);
  EXPECT_EQ(service.nvcc_path(), nvcc);
  const auto cuda = service.compilers(Language::kCuda);
  ASSERT_EQ(cuda->compilers.size(), 1u);
  EXPECT_EQ(cuda->compilers[0]->location(), nvcc);
  service.set_nvcc_path("");
  EXPECT_TRUE(service.compilers(Language::kCuda)->compilers.empty());
  EXPECT_EQ(service.compilers(Language::kCpp), cpp);
}

// J11: the directory named after the first use, and one that is missing.
TEST_F(ServiceTest, OpensTheCacheAnewWhenItsVariableChanges) {
  install();
  Service service;
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  set("DEEPGEMM_CACHE_DIR", directory_ / "missing/deep/cache");
  EXPECT_EQ(answer_of(service.build(answer_source(2))), 2);
  const DiskCache::Status status = service.cache_status();
  EXPECT_EQ(status.directory, directory_ / "missing/deep/cache");
  EXPECT_TRUE(status.usable) << status.reason;
  std::ofstream(directory_ / "file") << "x";
  set("DEEPGEMM_CACHE_DIR", directory_ / "file");
  EXPECT_FALSE(service.cache_status().usable);
  EXPECT_THAT(service.cache_status().reason, HasSubstr("file"));
}

// D3: whatever else there is, what was chosen is used, or nothing is.
TEST_F(ServiceTest, ExplicitChoicesWinOrFail) {
  install();
  set("XDG_CACHE_HOME", directory_ / "xdg");
  set("HOME", directory_ / "home");
  Service service;
  EXPECT_EQ(service.cache_status().directory, cache_directory());
  std::ofstream(directory_ / "file") << "x";
  set("DEEPGEMM_CACHE_DIR", directory_ / "file/below");
  EXPECT_EQ(service.cache_status().directory, "");
  EXPECT_FALSE(fs::exists(directory_ / "xdg"));
  EXPECT_FALSE(fs::exists(directory_ / "home"));
  set("DEEPGEMM_CXX", directory_ / "absent");
  const auto result = service.build(answer_source(1));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_COMPILER_MISSING);
  EXPECT_THAT(message_of(result), HasSubstr("DEEPGEMM_CXX: '" + (directory_ / "absent")));
}

TEST_F(ServiceTest, SaysWhichCompilerIsMissing) {
  Service service;
  const auto result = service.build(answer_source(1));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_COMPILER_MISSING);
  EXPECT_THAT(message_of(result), HasSubstr("Install g++"));
}

TEST_F(ServiceTest, StartsNoProgramWhereCompilingIsOff) {
  install();
  {
    Service service;
    EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  }
  std::ofstream script(directory_ / "bin/g++");
  script << "#!/bin/sh\n: > '" << (directory_ / "started") << "'\nexit 1\n";
  script.close();
  set("DEEPGEMM_JIT", "0");
  Service service;
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);  // of whichever compiler
  const auto result = service.build(answer_source(2));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  EXPECT_THAT(message_of(result), HasSubstr("DEEPGEMM_JIT=0"));
  EXPECT_THAT(message_of(result), HasSubstr(cache_directory()));
  set("DEEPGEMM_CACHE_DIR", "/proc/none");
  EXPECT_THAT(message_of(service.build(answer_source(2))), HasSubstr("no cache directory"));
  EXPECT_FALSE(fs::exists(directory_ / "started"));
}

TEST_F(ServiceTest, KeepsWhatWasCompiledBeforeItWasForbidden) {
  install();
  set("DEEPGEMM_CACHE_DIR", "/proc/none");
  Service service;
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  set("DEEPGEMM_JIT", "0");
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  EXPECT_EQ(service.counters().memory_hits, 1u);
}

TEST_F(ServiceTest, RefusesAnUnknownSwitch) {
  for (const char* value : {"off", "2", "-1", "1 "}) {
    set("DEEPGEMM_JIT", value);
    Service service;
    const auto result = service.build(answer_source(1));
    ASSERT_FALSE(result.ok()) << value;
    EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(message_of(result), HasSubstr("DEEPGEMM_JIT"));
  }
}

TEST_F(ServiceTest, RejectedKernelIsMadeAgain) {
  install();
  Service service;
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  service.reject(answer_source(1), "the device refused it");
  EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  EXPECT_EQ(compiles(), 2u);
}

// G7.
TEST_F(ServiceTest, ThreadsAskingAtOnceSearchAndCompileOnce) {
  install("sleep 0.2\n" + compile_script());
  Service service;
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<const CompilerSearch>> found(32);
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] {
      const int wanted = 1 + static_cast<int>(i % 2);
      EXPECT_EQ(answer_of(service.build(answer_source(wanted))), wanted);
      found[i] = service.compilers(Language::kCpp);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& search : found) EXPECT_EQ(search, found[0]);
  EXPECT_EQ(compiles(), 2u);
}

// J8: 64 kernels at once; each compiler leaves a file while it runs.
TEST_F(ServiceTest, RunsNoMoreCompilersThanThereIsRoomFor) {
  const std::string running = directory_ / "running";
  fs::create_directories(running);
  install(": > '" + running + "'/$$; ls '" + running + "' | wc -l >> '" + (directory_ / "counts") +
          "'; " + compile_script() + "; rm '" + running + "'/$$");
  Service service;
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&service, i] {
      EXPECT_EQ(answer_of(service.build(answer_source(1 + i))), std::min(1 + i, 2));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ifstream counts(directory_ / "counts");
  size_t lines = 0;
  for (int count = 0; counts >> count; ++lines) EXPECT_LE(count, usable_cpus());
  EXPECT_EQ(lines, 64u);
}

// G5: a fork while the parent searches, which takes as long as a compiler answers --version.
TEST_F(ServiceTest, ForkedProcessBuildsWhileItsParentSearches) {
  fs::create_directories(directory_ / "bin");
  std::ofstream script(directory_ / "bin/g++");
  script << "#!/bin/sh\nPATH=/usr/bin:/bin\nif [ \"$1\" = --version ]; then\n: > '"
         << (directory_ / "asked") << "'\nsleep 0.5\necho '" << gnu_version("12.2.0")
         << "'\nexit 0\nfi\n"
         << compile_script() << "\n";
  script.close();
  fs::permissions(directory_ / "bin/g++", fs::perms::owner_all);
  Service service;
  std::thread parent([&] { EXPECT_EQ(answer_of(service.build(answer_source(1))), 1); });
  while (!fs::exists(directory_ / "asked")) std::this_thread::yield();
  EXPECT_EQ(in_child([&] { return answer_of(service.build(answer_source(1))) == 1 ? 0 : 1; }), 0);
  parent.join();
}

// D4: the second container on the directory that the first one filled.
TEST_F(ServiceTest, SecondProcessOnTheMountedDirectoryCompilesNothing) {
  install();
  const auto build_both = [this] {
    Service service;
    for (int answer = 1; answer <= 2; ++answer) {
      if (answer_of(service.build(answer_source(answer))) != answer) return -1;
    }
    return static_cast<int>(service.counters().compiles);
  };
  EXPECT_EQ(in_child(build_both), 2);
  fs::rename(cache_directory(), directory_ / "mounted");
  set("DEEPGEMM_CACHE_DIR", directory_ / "mounted");
  EXPECT_EQ(in_child(build_both), 0);
}

// D5: a network of its own, in which nothing is up.
TEST_F(ServiceTest, NeedsNoNetwork) {
  install();
  const int status = in_child([] {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return 77;
    Service service;
    return answer_of(service.build(answer_source(1))) == 1 ? 0 : 1;
  });
  if (status == 77) GTEST_SKIP() << "not allowed to make a network namespace";
  EXPECT_EQ(status, 0);
}

// D2: a user without an entry, as containers choose one, and no place that it may write.
class UnknownUserTest : public ServiceTest {
 protected:
  // What `work` gives in a process of that user; 77 when such a process cannot read the build.
  int as_unknown_user(const std::function<int()>& work) {
    fs::permissions(directory_.path(), fs::perms(0755));
    return in_child([&] {
      constexpr uid_t kUnknown = 54321;
      if (::geteuid() == 0 && (::setresgid(kUnknown, kUnknown, kUnknown) != 0 ||
                               ::setresuid(kUnknown, kUnknown, kUnknown) != 0)) {
        return 77;
      }
      return ::access(DEEPGEMM_SAMPLE_1, R_OK) == 0 ? work() : 77;
    });
  }
  // 0: built from memory alone, with one warning and a reason that can be shown.
  static int build_without_directory() {
    LogCapture log;
    Service service;
    for (int answer = 1; answer <= 2; ++answer) {
      if (answer_of(service.build(answer_source(answer))) != answer) return 1;
      if (answer_of(service.build(answer_source(answer))) != answer) return 2;
    }
    const DiskCache::Status status = service.cache_status();
    if (status.usable || status.reason.empty()) return 3;
    if (log.count(DEEPGEMM_LOG_WARNING) != 1) return 4;
    return service.counters().compiles == 2 ? 0 : 5;
  }
};

TEST_F(UnknownUserTest, BuildsWhereNothingCanBeWritten) {
  install();
  fs::create_directories(directory_ / "home");
  fs::permissions(directory_ / "home", fs::perms(0555));
  std::ofstream(directory_ / "file") << "x";
  struct Case {
    const char* variable;
    std::string value;
  };
  const std::vector<Case> cases = {{"HOME", ""},
                                   {"HOME", directory_ / "home"},
                                   {"HOME", "/nonexistent"},
                                   {"XDG_CACHE_HOME", directory_ / "home"},
                                   {"DEEPGEMM_CACHE_DIR", directory_ / "home"},
                                   {"DEEPGEMM_CACHE_DIR", directory_ / "file"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(std::string(one.variable) + "=" + one.value);
    for (const char* name : {"DEEPGEMM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) set(name, "");
    set(one.variable, one.value);
    const int status = as_unknown_user(build_without_directory);
    if (status == 77) GTEST_SKIP() << "another user cannot be taken on, or cannot read the build";
    EXPECT_EQ(status, 0);
  }
}

TEST_F(UnknownUserTest, ReadsACacheThatTheImageBrings) {
  install();
  {
    Service service;
    EXPECT_EQ(answer_of(service.build(answer_source(1))), 1);
  }
  for (const auto& entry : fs::recursive_directory_iterator(cache_directory())) {
    fs::permissions(entry.path(), fs::perms(entry.is_directory() ? 0555 : 0444));
  }
  fs::permissions(cache_directory(), fs::perms(0555));
  const int status = as_unknown_user([] {
    Service service;
    if (answer_of(service.build(answer_source(1))) != 1) return 1;
    if (service.counters().disk_hits != 1) return 2;
    if (answer_of(service.build(answer_source(2))) != 2) return 3;
    return service.counters().compiles == 1 ? 0 : 4;
  });
  for (const auto& entry : fs::recursive_directory_iterator(cache_directory())) {
    if (entry.is_directory()) fs::permissions(entry.path(), fs::perms(0755));
  }
  fs::permissions(cache_directory(), fs::perms(0755));
  if (status == 77) GTEST_SKIP() << "another user cannot be taken on, or cannot read the build";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace deepgemm::jit
