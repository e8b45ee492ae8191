// Memory, disk and compiler together.

#include "jit/pipeline.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include "base/trace.hpp"
#include "build_config.hpp"
#include "jit/cache_admin.hpp"
#include "jit/faulty_files.hpp"
#include "jit/log_capture.hpp"
#include "pipeline_fixture.hpp"

namespace deepgemm::jit {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class PipelineTest : public PipelineFixture {
 protected:
  // As a new process would do it.
  int fresh_answer(const CompilerSearch& search, int answer) {
    DiskCache cache(cache_settings());
    Pipeline pipeline;
    return answer_of(pipeline.build(answer_source(answer), search, cache));
  }
};

TEST_F(PipelineTest, CompilesOnceThenTakesDiskThenMemory) {
  const CompilerSearch search = good();
  DiskCache cache(cache_settings());
  Pipeline first;
  EXPECT_EQ(answer_of(first.build(answer_source(1), search, cache)), 1);
  EXPECT_EQ(answer_of(first.build(answer_source(1), search, cache)), 1);
  EXPECT_EQ(first.counters().compiles, 1u);
  EXPECT_EQ(first.counters().misses, 1u);
  EXPECT_EQ(first.counters().memory_hits, 1u);
  EXPECT_GT(first.counters().compile_seconds, 0);
  Pipeline second;
  EXPECT_EQ(answer_of(second.build(answer_source(1), search, cache)), 1);
  EXPECT_EQ(second.counters().disk_hits, 1u);
  EXPECT_EQ(second.counters().compiles, 0u);
  EXPECT_EQ(compiles(), 1u);
}

TEST_F(PipelineTest, HeaderByteOrCompilerVersionIsAMissAndAMovedInstallIsAHit) {
  EXPECT_EQ(fresh_answer(good(), 1), 1);
  EXPECT_EQ(fresh_answer(good(), 2), 2);
  EXPECT_EQ(compiles(), 2u);
  EXPECT_EQ(fresh_answer(fake(compile_script(), "12.2.1"), 1), 1);
  EXPECT_EQ(compiles(), 3u);
  EXPECT_EQ(fresh_answer(fake(compile_script(), "12.2.0", "moved/elsewhere/g++"), 1), 1);
  EXPECT_EQ(compiles(), 3u);
}

TEST_F(PipelineTest, SecondContainerOnTheSameDirectoryCompilesNothing) {
  const CompilerSearch search = good();
  for (int answer = 1; answer <= 2; ++answer) fresh_answer(search, answer);
  fs::rename(directory_ / "cache", directory_ / "mounted");
  DiskCacheSettings settings = cache_settings();
  settings.directory = directory_ / "mounted";
  DiskCache cache(settings);
  Pipeline pipeline;
  for (int answer = 1; answer <= 2; ++answer) {
    EXPECT_EQ(answer_of(pipeline.build(answer_source(answer), search, cache)), answer);
  }
  EXPECT_EQ(pipeline.counters().compiles, 0u);
}

TEST_F(PipelineTest, ThreadsAskingAtOnceCompileOnce) {
  const CompilerSearch search = fake("sleep 0.3\n" + compile_script());
  DiskCache cache(cache_settings());
  Pipeline pipeline;
  std::vector<std::thread> threads;
  std::vector<int> answers(32);
  for (size_t i = 0; i < answers.size(); ++i) {
    threads.emplace_back([&, i] {
      const int wanted = 1 + static_cast<int>(i % 2);
      answers[i] = answer_of(pipeline.build(answer_source(wanted), search, cache));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], 1 + static_cast<int>(i % 2));
  EXPECT_EQ(compiles(), 2u);
  EXPECT_EQ(pipeline.counters().compiles, 2u);
  EXPECT_EQ(pipeline.counters().shared + pipeline.counters().memory_hits, 30u);
}

TEST_F(PipelineTest, FailureReachesEveryWaiterAndIsNotRemembered) {
  DiskCache cache(cache_settings());
  Pipeline pipeline;
  const CompilerSearch broken = fake("sleep 0.2; echo broken; exit 1");
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto result = pipeline.build(answer_source(1), broken, cache);
      if (!result.ok() && result.error().code == DEEPGEMM_ERROR_COMPILE_FAILED) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 8);
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), good(), cache)), 1);
}

TEST_F(PipelineTest, TriesTheNextCompilerWhenOneIsBroken) {
  CompilerSearch search = fake("exit 1", "12.2.0", "broken/g++");
  search.compilers.push_back(fake(compile_script(), "13.1.0", "good/g++").compilers.at(0));
  DiskCache cache(cache_settings());
  Pipeline pipeline;
  LogCapture log;
  EXPECT_EQ(answer_of(pipeline.build(answer_source(2), search, cache)), 2);
  EXPECT_EQ(pipeline.counters().failures, 1u);
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING, "broken/g++"), 1u);
  Pipeline next;  // finds the second compiler's result without asking the first again
  EXPECT_EQ(answer_of(next.build(answer_source(2), search, cache)), 2);
  EXPECT_EQ(next.counters().failures, 0u);
}

TEST_F(PipelineTest, WithoutACompilerACachedKernelServes) {
  EXPECT_EQ(fresh_answer(good(), 1), 1);
  const CompilerSearch none;
  EXPECT_EQ(fresh_answer(none, 1), 1);
  DiskCache cache(cache_settings());
  Pipeline pipeline;
  const auto result = pipeline.build(answer_source(2), none, cache);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_COMPILER_MISSING);
}

TEST_F(PipelineTest, CompilesNothingWhereThatIsOff) {
  EXPECT_EQ(fresh_answer(good(), 1), 1);
  Pipeline pipeline;
  DiskCache cache(cache_settings());
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), good(), cache, false)), 1);
  const auto other = fake(compile_script(), "13.1.0", "other/g++");  // did not make the kernel
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), other, cache, false)), 1);
  const auto result = pipeline.build(answer_source(2), good(), cache, false);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  EXPECT_EQ(compiles(), 1u);
}

TEST_F(PipelineTest, ResultThatCannotBeLoadedIsNotKept) {
  const CompilerSearch search = fake("printf '\\177ELFgarbage' > kernel.so");
  DiskCache cache(cache_settings());
  Pipeline pipeline;
  const auto result = pipeline.build(answer_source(1), search, cache);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("cannot be loaded"), std::string::npos);
  EXPECT_TRUE(list_entries(system_files(), cache_settings().directory).empty());
}

TEST_F(PipelineTest, CachedKernelThatCannotBeLoadedIsMadeAgain) {
  const CompilerSearch search = good();
  DiskCache cache(cache_settings());
  Binary garbage;
  garbage.bytes.assign(100, 'x');
  const Source source = answer_source(1);
  const CompilerIdentity& identity = search.compilers[0]->identity();
  ASSERT_NE(cache.publish(source, identity, cache.key_of(source, identity), garbage), "");
  LogCapture log;
  EXPECT_EQ(fresh_answer(search, 1), 1);
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING, "was bad"), 1u) << log.all();
  EXPECT_EQ(fresh_answer(search, 1), 1);
  EXPECT_EQ(compiles(), 1u);
}

TEST_F(PipelineTest, RejectedKernelIsMadeAgain) {
  const CompilerSearch search = good();
  DiskCache cache(cache_settings());
  Pipeline pipeline;
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
  pipeline.reject(answer_source(1), search, cache, "the driver refused it");
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
  EXPECT_EQ(compiles(), 2u);
}

TEST_F(PipelineTest, WorksWithoutAnyDirectory) {
  DiskCache cache(DiskCacheSettings{});
  Pipeline pipeline;
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), good(), cache)), 1);
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), good(), cache)), 1);
  EXPECT_EQ(compiles(), 1u);
}

TEST_F(PipelineTest, AnyFaultOfTheFileSystemOnlyCostsTheCache) {
  const CompilerSearch search = good();
  for (const int error : {EEXIST, ENOSPC, ESTALE, EROFS, EBUSY, ENOENT, EIO, EACCES}) {
    for (const char* broken :
         {"rename", "write", "mkdir", "read", "inspect", "list", "touch", ""}) {
      SCOPED_TRACE(std::string(broken) + ": " + std::strerror(error));
      FaultyFiles files([&](const std::string& call, const std::string&) {
        return *broken == '\0' || call == broken ? error : 0;
      });
      DiskCacheSettings settings = cache_settings();
      settings.files = &files;
      DiskCache cache(settings);
      Pipeline pipeline;
      EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
    }
  }
}

TEST_F(PipelineTest, KeepsABoundedNumberAndNeverUnloadsWhatIsUsed) {
  PipelineSettings settings;
  settings.kept_modules = 2;
  Pipeline pipeline(settings);
  DiskCache cache(cache_settings());
  const CompilerSearch search = good();
  const auto first = pipeline.build(answer_source(1), search, cache);
  for (int answer = 2; answer < 6; ++answer) {
    EXPECT_EQ(answer_of(pipeline.build(answer_source(answer), search, cache)), 2);
  }
  EXPECT_EQ(answer_of(first), 1);
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
  EXPECT_EQ(pipeline.counters().disk_hits, 1u);
  EXPECT_EQ(answer_of(pipeline.build(answer_source(5), search, cache)), 2);
  EXPECT_EQ(pipeline.counters().memory_hits, 1u);
}

TEST_F(PipelineTest, SaysThatItStillCompiles) {
  PipelineSettings settings;
  settings.progress_interval = std::chrono::milliseconds(200);
  Pipeline pipeline(settings);
  DiskCache cache(cache_settings());
  LogCapture log;
  const CompilerSearch search = fake("sleep 1\n" + compile_script());
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
  EXPECT_GE(log.count(DEEPGEMM_LOG_INFO, "Compiling kernel 'answer'"), 3u) << log.all();
  EXPECT_LE(log.count(DEEPGEMM_LOG_INFO, "Compiling kernel 'answer'"), 8u) << log.all();
}

TEST_F(PipelineTest, TracesEachCompile) {
  if (!build_config::kEnableDebugTracing) GTEST_SKIP() << "this build records no trace";
  const auto traced = [] {
    size_t found = 0;
    for (const base::TraceEvent& event : base::trace_buffer().snapshot().events) {
      found += event.category == std::string("compile") && event.name == "answer";
    }
    return found;
  };
  const CompilerSearch search = good();
  const size_t before = traced();
  EXPECT_EQ(fresh_answer(search, 1), 1);
  EXPECT_EQ(fresh_answer(search, 1), 1);  // from disk
  EXPECT_EQ(traced(), before + 1);
}

// A process that holds the lock and neither finishes nor dies.
TEST_F(PipelineTest, WaitsForAnotherProcessOnlySoLong) {
  const CompilerSearch search = good();
  DiskCache cache(cache_settings());
  fresh_answer(search, 2);  // makes the directory
  const WorkLock held = cache.lock(cache.key_of(answer_source(1), search.compilers[0]->identity()));
  ASSERT_EQ(held.state(), WorkLock::State::kHeld);
  PipelineSettings settings;
  settings.lock_wait = std::chrono::milliseconds(300);
  Pipeline pipeline(settings);
  LogCapture log;
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
  EXPECT_GE(seconds_since(begin), 0.3);
  EXPECT_LT(seconds_since(begin), 5);
  EXPECT_EQ(log.count(DEEPGEMM_LOG_INFO, "by another process"), 1u) << log.all();
}

TEST_F(PipelineTest, TakesOverFromAProcessThatWasKilled) {
  const CompilerSearch slow = fake("sleep 30\n" + compile_script());
  DiskCache cache(cache_settings());
  const pid_t child = ::fork();
  if (child == 0) {
    Pipeline pipeline;
    (void)pipeline.build(answer_source(1), slow, cache);
    ::_exit(0);
  }
  while (compiles() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::thread killer([child] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::kill(child, SIGKILL);
  });
  Pipeline pipeline;
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(answer_of(pipeline.build(answer_source(1), good(), cache)), 1);
  EXPECT_LT(seconds_since(begin), 5);
  killer.join();
  ::waitpid(child, nullptr, 0);
}

TEST_F(PipelineTest, ForkedProcessBuildsWhileItsParentStillDoes) {
  const CompilerSearch search = fake("sleep 0.5\n" + compile_script());
  DiskCache cache(cache_settings());
  Pipeline pipeline;
  std::thread builder(
      [&] { EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1); });
  while (compiles() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const auto module = pipeline.build(answer_source(1), search, cache);
    ::_exit(module.ok() && answer_of(**module) == 1 ? 0 : 1);
  }
  builder.join();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Places that cannot be used, as the environment may name them: built all the same.
TEST_F(PipelineTest, EveryPlaceEndsInAKernel) {
  std::ofstream(directory_ / "file") << "x";
  fs::create_directories(directory_ / "readonly");
  fs::permissions(directory_ / "readonly", fs::perms::owner_read | fs::perms::owner_exec);
  fs::create_directories(directory_ / "open");
  ASSERT_EQ(::chmod((directory_ / "open").c_str(), 0777), 0);
  const CompilerSearch search = good();
  const char* old_home = ::getenv("HOME");
  const std::string home = old_home == nullptr ? "" : old_home;
  for (const std::string& place :
       {std::string(), directory_ / "file", directory_ / "file/below", directory_ / "readonly",
        directory_ / "open", std::string("/proc/none"), std::string("relative"),
        directory_ / "with space/'quote'/é/-dash"}) {
    SCOPED_TRACE(place);
    for (const char* variable : {"DEEPGEMM_CACHE_DIR", "HOME", "XDG_CACHE_HOME"}) {
      ::unsetenv("HOME");
      ::unsetenv("XDG_CACHE_HOME");
      ASSERT_EQ(::setenv(variable, place.c_str(), 1), 0);
      DiskCache cache(disk_cache_settings_from_environment());
      ::unsetenv(variable);
      Pipeline pipeline;
      EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
      EXPECT_TRUE(cache.status().usable || !cache.status().reason.empty()) << variable;
    }
  }
  ::setenv("HOME", home.c_str(), 1);
  fs::remove_all("relative");
}

TEST_F(PipelineTest, WarmLoadFromDiskIsQuick) {
  const CompilerSearch search = good();
  DiskCache cache(cache_settings());
  {
    Pipeline pipeline;
    EXPECT_EQ(answer_of(pipeline.build(answer_source(1), search, cache)), 1);
  }
  std::vector<double> times;
  for (int i = 0; i < 51; ++i) {
    Pipeline pipeline;
    const Clock::time_point begin = Clock::now();
    const auto module = pipeline.build(answer_source(1), search, cache);
    times.push_back(seconds_since(begin));
    ASSERT_TRUE(module.ok());
    ASSERT_EQ(pipeline.counters().disk_hits, 1u);
  }
  std::sort(times.begin(), times.end());
  std::cout << "load from disk: best " << times[0] * 1e6 << " us, median " << times[25] * 1e6
            << " us, slowest " << times[50] * 1e6 << " us\n";
  if (*build_config::kSanitizers == '\0') {
    EXPECT_LT(times[0], 0.0032);  // the best, because other programs may use the machine
  }
}

}  // namespace
}  // namespace deepgemm::jit
