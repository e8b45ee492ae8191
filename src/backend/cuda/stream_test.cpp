#include "backend/cuda/stream.hpp"

#include <optional>
#include <thread>

#include "backend/cuda/cuda_fixture.hpp"

namespace deepgemm::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CudaStreams : public CudaFixture {};

TEST_F(CudaStreams, AreMadeAndDestroyedInTheirContext) {
  {
    const auto stream = Stream::create(device(1));
    ASSERT_TRUE(stream.ok());
    EXPECT_EQ(fake_.streams.at(stream->get()).ordinal, 1);
    EXPECT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(current(), nullptr);
  }
  EXPECT_TRUE(fake_.streams.empty());
}

TEST_F(CudaStreams, AreDestroyedOnceWhenMoved) {
  std::optional<Stream> kept;
  {
    auto stream = Stream::create(device());
    kept = std::move(*stream);
  }
  EXPECT_EQ(fake_.streams.size(), 1U);
  kept.reset();
  EXPECT_EQ(fake_.count("cuStreamDestroy_v2"), 1);
}

TEST_F(CudaStreams, FromBeforeAResetAreNotGivenToTheDriver) {
  {
    const auto stream = Stream::create(device());
    fake_.reset_device(0);
  }
  EXPECT_EQ(fake_.count("cuStreamDestroy_v2"), 0);
}

TEST_F(CudaStreams, OfTheParentAreLeftAloneInAForkedChild) {
  auto stream = std::make_unique<Stream>(std::move(*Stream::create(device())));
  EXPECT_TRUE(holds_in_child([&] {
    const size_t before = fake_.calls().size();
    const bool refused = !stream->synchronize().ok();
    stream.reset();
    return refused && fake_.calls().size() == before;
  }));
}

TEST_F(CudaStreams, ReportThatTheyCannotBeMade) {
  fake_.fail("cuStreamCreate", CuResult::kMisalignedAddress);
  const auto stream = Stream::create(device());
  ASSERT_FALSE(stream.ok());
  EXPECT_THAT(stream.error().message, HasSubstr("had already failed before this call"));
}

TEST_F(CudaStreams, ShowAFaultOfTheirWorkWhenWaitedFor) {
  const auto stream = Stream::create(device());
  fake_.fault(0, CuResult::kIllegalAddress);
  const auto done = stream->synchronize();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, DEEPGEMM_ERROR_DEVICE);
  EXPECT_THAT(done.error().message, AllOf(HasSubstr("Waiting for a stream on cuda:0"),
                                          HasSubstr("of this call or of earlier work"),
                                          Not(HasSubstr("had already failed"))));
}

TEST_F(CudaStreams, MustBeOfTheDeviceOfTheOperands) {
  const CuStream own = fake_.make_stream(0);
  const CuStream other = fake_.make_stream(1);
  EXPECT_TRUE(check_stream(device(0), own).ok());
  EXPECT_TRUE(check_stream(device(0), nullptr).ok());
  const auto wrong = check_stream(device(0), other);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(wrong.error().message, AllOf(HasSubstr("no stream of cuda:0"), HasSubstr("null")));
  EXPECT_FALSE(check_stream(device(0), reinterpret_cast<CuStream>(0x77)).ok());
}

TEST_F(CudaStreams, TellWhetherTheyAreCaptured) {
  const auto guard = ContextGuard::enter(device());
  const CuStream plain = fake_.make_stream(0);
  const CuStream captured = fake_.make_stream(0, kCaptureActive);
  EXPECT_FALSE(*is_capturing(driver(), plain));
  EXPECT_FALSE(*is_capturing(driver(), nullptr));
  EXPECT_TRUE(*is_capturing(driver(), captured));
  EXPECT_EQ(*captured_graph(driver(), captured), fake_.streams.at(captured).graph);
  EXPECT_EQ(*captured_graph(driver(), plain), nullptr);
  EXPECT_EQ(fake_.streams.at(captured).capture, kCaptureActive);  // still
}

TEST_F(CudaStreams, WithABrokenCaptureAreRefused) {
  const auto guard = ContextGuard::enter(device());
  const auto broken = is_capturing(driver(), fake_.make_stream(0, kCaptureBroken));
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(broken.error().message, HasSubstr("end it and capture again"));
}

TEST_F(CudaStreams, OfNobodyAndTheDefaultOneDuringACaptureAreRefusedByName) {
  const auto guard = ContextGuard::enter(device());
  const auto nobody = is_capturing(driver(), reinterpret_cast<CuStream>(0x77));
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(nobody.error().message, HasSubstr("0x77"));
  fake_.fail("cuStreamIsCapturing", CuResult::kCaptureImplicit);
  const auto implicit = is_capturing(driver(), nullptr);
  ASSERT_FALSE(implicit.ok());
  EXPECT_THAT(implicit.error().message, HasSubstr("launch into the captured stream"));
}

TEST_F(CudaStreams, HaveNoGraphToTellWhereTheDriverWouldLeaveSomethingOut) {
  const auto guard = ContextGuard::enter(device());
  fake_.fail("cuStreamGetCaptureInfo_v2", CuResult::kLossyQuery);
  const auto graph = captured_graph(driver(), fake_.make_stream(0, kCaptureActive));
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(*graph, nullptr);
}

TEST_F(CudaStreams, AreNotDisturbedByARelaxedThread) {
  const auto mode = [&] {
    int now = kCaptureGlobal;
    driver().exchange_capture_mode(&now);
    int back = now;
    driver().exchange_capture_mode(&back);
    return now;
  };
  EXPECT_EQ(mode(), kCaptureGlobal);
  {
    const RelaxedCapture relaxed(driver());
    EXPECT_EQ(mode(), kCaptureRelaxed);
    std::thread([&] { EXPECT_EQ(mode(), kCaptureGlobal); }).join();
  }
  EXPECT_EQ(mode(), kCaptureGlobal);
}

TEST_F(CudaStreams, AreTimedByEvents) {
  const auto stream = Stream::create(device());
  auto start = Event::create(device(), Event::Time::kMeasured);
  auto end = Event::create(device(), Event::Time::kMeasured);
  ASSERT_TRUE(start.ok() && end.ok());
  EXPECT_FALSE(elapsed_ms(device(), *start, *end).ok());  // not recorded
  ASSERT_TRUE(start->record(stream->get()).ok());
  ASSERT_TRUE(end->record(stream->get()).ok());
  ASSERT_TRUE(end->synchronize().ok());
  EXPECT_EQ(*elapsed_ms(device(), *start, *end), 1.0);
}

TEST_F(CudaStreams, WaitForEventsOfOthers) {
  auto event = Event::create(device(), Event::Time::kNone);
  const auto stream = Stream::create(device());
  ASSERT_TRUE(event->record(stream->get()).ok());
  EXPECT_TRUE(event->make_wait(nullptr).ok());
  EXPECT_FALSE(event->make_wait(reinterpret_cast<CuStream>(0x77)).ok());
  for (const FakeCall& call : fake_.calls()) {
    if (call.name != "cuEventCreate") continue;
    EXPECT_EQ(call.arguments[1], uint64_t{kEventDisableTiming});
  }
}

}  // namespace
}  // namespace deepgemm::cuda
