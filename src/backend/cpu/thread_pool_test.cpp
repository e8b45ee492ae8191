#include "backend/cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace deepgemm::cpu {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

TEST(ThreadPool, RunsEveryItemOnce) {
  ThreadPool pool(4);
  for (const int64_t items : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(items));
    pool.parallel_for(items, 0, [&](int64_t item, int) { ++runs[static_cast<size_t>(item)]; });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
  }
}

TEST(ThreadPool, ResultsAreVisibleToTheCallerWithoutSynchronisation) {
  ThreadPool pool(3);
  std::vector<int64_t> squares(500);
  for (int round = 0; round < 100; ++round) {
    pool.parallel_for(500, 0, [&](int64_t i, int) { squares[static_cast<size_t>(i)] = i * round; });
    for (int64_t i = 0; i < 500; ++i) ASSERT_EQ(squares[static_cast<size_t>(i)], i * round);
  }
}

TEST(ThreadPool, ASlotIsUsedByOneBodyAtATimeAndStaysBelowTheLimit) {
  ThreadPool pool(4);
  for (const int limit : {0, 1, 2, 3, 9}) {
    std::vector<std::atomic<int>> busy(4);
    std::atomic<int> clashes = 0;
    std::atomic<int> beyond = 0;
    const int bound = limit == 0 ? 4 : std::min(limit, 4);
    pool.parallel_for(300, limit, [&](int64_t, int slot) {
      if (slot < 0 || slot >= bound) {
        ++beyond;
        return;
      }
      if (busy[static_cast<size_t>(slot)].fetch_add(1) != 0) ++clashes;
      std::this_thread::yield();
      busy[static_cast<size_t>(slot)].fetch_sub(1);
    });
    EXPECT_EQ(clashes.load(), 0);
    EXPECT_EQ(beyond.load(), 0);
  }
}

TEST(ThreadPool, SeveralThreadsWorkOnOneRegion) {
  ThreadPool pool(2);
  // Each of the two items waits for the other: one thread alone would never finish.
  std::atomic<int> arrived = 0;
  pool.parallel_for(2, 0, [&](int64_t, int) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

TEST(ThreadPool, RegionsOfManyCallersQueue) {
  ThreadPool pool(3);
  constexpr int kCallers = 8;
  std::atomic<int64_t> total = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 200; ++round) {
        const int64_t items = (caller + round) % 9;
        std::vector<int> seen(static_cast<size_t>(items));
        pool.parallel_for(items, 1 + round % 4, [&](int64_t item, int) {
          ++seen[static_cast<size_t>(item)];
          ++total;
        });
        for (const int count : seen) ASSERT_EQ(count, 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  int64_t expected = 0;
  for (int caller = 0; caller < kCallers; ++caller) {
    for (int round = 0; round < 200; ++round) expected += (caller + round) % 9;
  }
  EXPECT_EQ(total.load(), expected);
}

TEST(ThreadPool, ABodyMayStartARegionOfItsOwn) {
  ThreadPool pool(3);
  std::atomic<int> inner = 0;
  pool.parallel_for(6, 0, [&](int64_t, int) {
    pool.parallel_for(5, 0, [&](int64_t, int slot) { inner += slot == 0 ? 1 : 100; });
  });
  EXPECT_EQ(inner.load(), 30);
}

TEST(ThreadPool, WorkersThatParkedWakeUpAgain) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // much longer than the spin time
    std::atomic<int> arrived = 0;
    pool.parallel_for(2, 0, [&](int64_t, int) {
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(ThreadPool, StartsAndEndsWithoutWork) {
  for (int round = 0; round < 20; ++round) {
    ThreadPool unused(3);
    ThreadPool started(3);
    started.start();
    ThreadPool none(0);
    EXPECT_EQ(none.threads(), 1);
  }
}

int run_in_child(ThreadPool& pool) {
  std::atomic<int> arrived = 0;
  pool.parallel_for(2, 0, [&](int64_t, int) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
  return arrived.load() == 2 ? 0 : 1;
}

TEST(ThreadPool, AForkedChildHasThreadsOfItsOwn) {
  if (kSanitizer) {
    GTEST_SKIP() << "the thread sanitizer ends children that start threads, and a lock of the "
                    "address sanitizer's allocator may be held when the process is forked";
  }
  ThreadPool pool(2);
  std::atomic<bool> stop = false;
  std::thread busy([&] {  // so that the fork happens while regions run
    while (!stop) pool.parallel_for(8, 0, [](int64_t, int) {});
  });
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(10);  // a hang ends as a signal
      _exit(run_in_child(pool));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(run_in_child(pool), 0);
}

}  // namespace
}  // namespace deepgemm::cpu
