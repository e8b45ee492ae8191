#include "base/trace.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/chrome_trace.hpp"
#include "base/files.hpp"
#include "base/temporary_directory.hpp"

namespace deepgemm::base {
namespace {

TEST(TraceBuffer, KeepsTheNewestEventsInOrder) {
  TraceBuffer buffer(3);
  for (int i = 0; i < 5; ++i) buffer.add({"plan", std::to_string(i), i, 1, 0});
  const TraceBuffer::Snapshot snapshot = buffer.snapshot();
  ASSERT_EQ(snapshot.events.size(), 3u);
  EXPECT_EQ(snapshot.events[0].name, "2");
  EXPECT_EQ(snapshot.events[1].name, "3");
  EXPECT_EQ(snapshot.events[2].name, "4");
  EXPECT_EQ(snapshot.lost, 2u);
}

TEST(TraceScope, CoversTheTimeOfScopesInsideIt) {
  TraceBuffer buffer(10);
  {
    const TraceScope outer(buffer, "plan", "outer");
    const TraceScope inner(buffer, "launch", "inner");
  }
  const std::vector<TraceEvent> events = buffer.snapshot().events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "inner");
  EXPECT_STREQ(events[1].category, "plan");
  EXPECT_LE(events[1].start_ns, events[0].start_ns);
  EXPECT_GE(events[1].start_ns + events[1].duration_ns, events[0].start_ns + events[0].duration_ns);
}

TEST(TraceScope, MayBeUsedByManyThreads) {
  TraceBuffer buffer(100000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&buffer] {
      for (int i = 0; i < 1000; ++i) const TraceScope scope(buffer, "launch", "x");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(buffer.snapshot().events.size(), 4000u);
}

TEST(ChromeTrace, IsJsonWithTimesInMicroseconds) {
  TraceBuffer buffer(2);
  buffer.add({"plan", "quote \" and \xFF", 1500, 250, 42});
  const auto document = nlohmann::json::parse(chrome_trace(buffer.snapshot()));
  ASSERT_EQ(document["traceEvents"].size(), 1u);
  const auto& event = document["traceEvents"][0];
  EXPECT_EQ(event["ph"], "X");
  EXPECT_EQ(event["cat"], "plan");
  EXPECT_EQ(event["ts"], 1.5);
  EXPECT_EQ(event["dur"], 0.25);
  EXPECT_EQ(event["tid"], 42);
  EXPECT_EQ(document["otherData"]["lost_events"], 0);
}

TEST(TraceMacro, EvaluatesTheNameOnlyInBuildsWithTracing) {
  int evaluated = 0;
  const size_t before =
      build_config::kEnableDebugTracing ? trace_buffer().snapshot().events.size() : 0;
  {
    DEEPGEMM_TRACE("plan", std::to_string(++evaluated));
    DEEPGEMM_TRACE("plan", "second scope");
  }
  EXPECT_EQ(evaluated, build_config::kEnableDebugTracing ? 1 : 0);
  if (build_config::kEnableDebugTracing) {
    EXPECT_EQ(trace_buffer().snapshot().events.size(), before + 2);
  }
}

TEST(WriteTrace, WritesAFileOrSaysThatTheBuildHasNone) {
  const TemporaryDirectory directory;
  const std::string path = directory / "trace.json";
  const Result<void> written = write_trace(path);
  if (build_config::kEnableDebugTracing) {
    ASSERT_TRUE(written.ok()) << written.error().message;
    const std::string text = *read_file(path, int64_t{1} << 30);
    EXPECT_TRUE(nlohmann::json::parse(text).contains("traceEvents"));
  } else {
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().code, DEEPGEMM_ERROR_UNSUPPORTED);
    EXPECT_FALSE(read_file(path, 1000).ok());
  }
}

}  // namespace
}  // namespace deepgemm::base
