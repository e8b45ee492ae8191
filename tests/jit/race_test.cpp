// Many processes start at once on one cache directory; some are killed at any moment.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "jit/cache_admin.hpp"
#include "pipeline_fixture.hpp"

namespace deepgemm::jit {
namespace {

constexpr int kRounds = 20;
constexpr int kProcesses = 64;
constexpr int kKernels = 6;

class RaceTest : public PipelineFixture {
 protected:
  // What one process does; 0 when every kernel gave its answer.
  int work(const CompilerSearch& search, unsigned seed, int wait_for) {
    char byte = 0;
    if (::read(wait_for, &byte, 1) < 0) return 9;  // the end of the pipe starts all of them
    ::alarm(60);
    PipelineSettings settings;
    settings.lock_wait = std::chrono::milliseconds(2000);
    Pipeline pipeline(settings);
    DiskCache cache(cache_settings());
    for (int i = 0; i < kKernels; ++i) {
      const int kernel = 1 + static_cast<int>((static_cast<unsigned>(i) + seed) % kKernels);
      const auto module = pipeline.build(answer_source(kernel), search, cache);
      if (!module.ok()) return 1;
      if (answer_of(**module) != std::min(kernel, 2)) return 2;
    }
    return 0;
  }

  // Starts all, kills some of them, and counts those that ended by themselves but not with 0.
  int round(const CompilerSearch& search, std::mt19937& random, int& killed) {
    int gate[2];
    EXPECT_EQ(::pipe(gate), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      const unsigned seed = static_cast<unsigned>(random());
      const pid_t child = ::fork();
      if (child == 0) {
        ::close(gate[1]);
        ::_exit(work(search, seed, gate[0]));
      }
      EXPECT_GT(child, 0);
      children.push_back(child);
    }
    ::close(gate[0]);
    ::close(gate[1]);
    for (size_t i = 0; i < children.size(); i += 3) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
      ::kill(children[i], SIGKILL);
    }
    int wrong = 0;
    for (const pid_t child : children) {
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        ++killed;
      } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        ++wrong;
      }
    }
    return wrong;
  }
};

TEST_F(RaceTest, ManyProcessesWithSomeKilledLeaveOnlyWholeEntries) {
  const CompilerSearch search = good();
  ASSERT_EQ(search.compilers.size(), 1u);
  std::mt19937 random(20240607);
  int killed = 0;
  for (int i = 0; i < kRounds; ++i) {
    SCOPED_TRACE("round " + std::to_string(i));
    // Every other round starts cold, the others on what the killed ones left.
    if (i % 2 == 0) std::filesystem::remove_all(cache_settings().directory);
    EXPECT_EQ(round(search, random, killed), 0);
    const auto entries = verify_entries(system_files(), cache_settings().directory);
    EXPECT_EQ(entries.size(), static_cast<size_t>(kKernels));
    for (const CheckedEntry& entry : entries) EXPECT_EQ(entry.fault, "") << entry.stored.path;
    EXPECT_FALSE(std::filesystem::exists(cache_settings().directory + "/bad"));
  }
  EXPECT_GT(killed, 0);
  // The lock saves work: without it every process of a cold round would compile everything.
  EXPECT_LT(compiles(), static_cast<size_t>(3 * kRounds / 2 * kKernels + killed));
  std::cout << kRounds * kProcesses << " processes, " << killed << " killed, " << compiles()
            << " compiles of " << kRounds / 2 * kKernels << " needed\n";
}

TEST_F(RaceTest, ProcessesThatClearTheCacheMeanwhileHarmNobody) {
  const CompilerSearch search = good();
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      int failure = 0;
      for (int repeat = 0; repeat < 5 && failure == 0; ++repeat) {
        failure = work(search, static_cast<unsigned>(i), gate[0]);
      }
      ::_exit(failure);
    }
    children.push_back(child);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < end) {
    clear_entries(system_files(), cache_settings().directory);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

}  // namespace
}  // namespace deepgemm::jit
