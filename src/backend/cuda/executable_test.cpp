#include "backend/cuda/executable.hpp"

#include "backend/cuda/cuda_fixture.hpp"

namespace deepgemm::cuda {
namespace {

using ::testing::HasSubstr;

// A plan's choice on the fake GPU, with kernels that do not run.
class CudaExecutable : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    workspaces_ = std::make_unique<StreamWorkspaces>(device());
    memory_.resize(1 << 16);
    fake_.add_allocation(memory_.data(), {.bytes = memory_.size(), .type = kMemoryTypeDevice});
  }
  void TearDown() override {
    workspaces_.reset();
    CudaFixture::TearDown();
  }

  intent::Problem problem(const std::string& line) {
    const auto spec = intent::parse_line(line);
    return *intent::resolve(spec->intent, spec->m, spec->n, spec->k);
  }
  schedule::Choice choice(const char* family, const schedule::KernelConfig& config,
                          contract::PathId path = contract::PathId::kBf16) {
    schedule::Choice made;
    made.path = path;
    made.family = schedule::find_family(family);
    made.config = config;
    made.threads = 132;
    return made;
  }
  std::shared_ptr<const Executable> make(const intent::Problem& problem,
                                         const schedule::Choice& choice,
                                         const schedule::Choice* fallback = nullptr) {
    auto made = Executable::create(device(), *workspaces_, problem, choice, fallback,
                                   [this](Device& on, const jit::Source& source) {
                                     ++modules_;
                                     return Module::load(on, fake_image(source.symbols.front()),
                                                         source.name);
                                   });
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? *made : nullptr;
  }
  void destroy_graphs() {
    while (!fake_.graphs.empty()) driver().graph_destroy(fake_.graphs.begin()->first);
  }
  LaunchOperands operands(int64_t m, size_t offset = 0) {
    LaunchOperands given;
    given.a = memory_.data() + offset;
    given.b = memory_.data() + 4096 + offset;
    given.c = memory_.data() + 8192 + offset;
    given.m = m;
    return given;
  }

  alignas(64) std::vector<uint8_t> memory_;
  std::unique_ptr<StreamWorkspaces> workspaces_;
  int modules_ = 0;
};

constexpr schedule::KernelConfig kTile = {64, 64, 64, 32, 32, 64, 4, 1, 1};
constexpr schedule::KernelConfig kSplit = {64, 64, 64, 32, 32, 64, 4, 4, 1};
constexpr schedule::KernelConfig kSkinny = {8, 32, 512, 8, 32, 64, 4, 1, 1};

TEST_F(CudaExecutable, LaunchesABlockForEachTileUpToWhatTheGpuHolds) {
  const auto small = make(problem("nt m=100 n=200 k=64 a=bf16"), choice("sm80", kTile));
  ASSERT_TRUE(small->launch(operands(100), nullptr, nullptr).ok());
  EXPECT_EQ(fake_.launches.back().config.grid_x, 2U * 4U);
  EXPECT_EQ(fake_.launches.back().config.block_x, 128U);
  ASSERT_TRUE(small->launch(operands(7), nullptr, nullptr).ok()) << "fewer rows than planned";
  EXPECT_EQ(fake_.launches.back().config.grid_x, 4U);
  schedule::Choice few = choice("sm80", kTile);
  few.threads = 5;
  const auto partition = make(problem("nt m=100 n=200 k=64 a=bf16"), few);
  ASSERT_TRUE(partition->launch(operands(100), nullptr, nullptr).ok());
  EXPECT_EQ(fake_.launches.back().config.grid_x, 5U) << "blocks keep to the SMs they are given";
}

TEST_F(CudaExecutable, GivesEachStreamAWorkspaceAndReservesItBefore) {
  const auto made = make(problem("nt m=64 n=64 k=4096 a=bf16"), choice("sm80", kSplit));
  EXPECT_GT(made->workspace_bytes(), size_t{64 * 64 * 4 * 4} - 1);
  const CuStream streams[] = {fake_.make_stream(0), fake_.make_stream(0)};
  std::vector<const void*> partials;
  fake_.on_launch = [&](const FakeLaunch&, void** parameters) {
    partials.push_back(static_cast<kernel::GemmArguments*>(parameters[0])->partials);
  };
  fake_.forget_calls();
  for (const CuStream stream : {streams[0], streams[1], streams[0]}) {
    ASSERT_TRUE(made->launch(operands(64), nullptr, stream).ok());
  }
  EXPECT_EQ(partials[0], partials[2]);
  EXPECT_NE(partials[0], partials[1]);
  EXPECT_EQ(fake_.count("cuMemAllocFromPoolAsync") + fake_.count("cuMemAlloc_v2"), 0)
      << "a launch takes no memory";
}

// Counters of one plan must not lie where another plan keeps its sums.
TEST_F(CudaExecutable, PlansFindTheirCountersAtOnePlace) {
  const auto wide = make(problem("nt m=64 n=8192 k=4096 a=bf16"), choice("sm80", kSplit));
  const auto narrow = make(problem("nt m=64 n=64 k=4096 a=bf16"), choice("sm80", kSplit));
  std::vector<kernel::GemmArguments> seen;
  fake_.on_launch = [&](const FakeLaunch&, void** parameters) {
    seen.push_back(*static_cast<kernel::GemmArguments*>(parameters[0]));
  };
  ASSERT_TRUE(wide->launch(operands(64), nullptr, nullptr).ok());
  ASSERT_TRUE(narrow->launch(operands(64), nullptr, nullptr).ok());
  EXPECT_EQ(seen[0].counters, seen[1].counters);
  EXPECT_EQ(seen[0].partials, seen[1].partials);
  EXPECT_GE(static_cast<const std::byte*>(seen[0].partials) -
                reinterpret_cast<const std::byte*>(seen[0].counters),
            8192 / 64 * 4);
}

TEST_F(CudaExecutable, KeepsNoSpareThatIsTooSmallForLaterPlans) {
  const auto narrow = make(problem("nt m=64 n=64 k=4096 a=bf16"), choice("sm80", kSplit));
  EXPECT_EQ(workspaces_->buffers(), size_t{StreamWorkspaces::kSpares});
  const auto wide = make(problem("nt m=64 n=8192 k=4096 a=bf16"), choice("sm80", kSplit));
  EXPECT_EQ(workspaces_->buffers(), size_t{StreamWorkspaces::kSpares});
  ASSERT_TRUE(narrow->launch(operands(64), nullptr, nullptr).ok());
  const auto again = make(problem("nt m=64 n=64 k=4096 a=bf16"), choice("sm80", kSplit));
  EXPECT_EQ(workspaces_->buffers(), size_t{StreamWorkspaces::kSpares} + 1) << "one is in use";
}

TEST_F(CudaExecutable, ClearsTheCountersOfTheCallersWorkspace) {
  const auto made = make(problem("nt m=64 n=64 k=4096 a=bf16"), choice("sm80", kSplit));
  std::vector<uint8_t> workspace(made->workspace_bytes(), 0xFF);
  fake_.add_allocation(workspace.data(), {.bytes = workspace.size(), .type = kMemoryTypeDevice});
  ASSERT_TRUE(made->launch(operands(64), workspace.data(), nullptr).ok());
  EXPECT_EQ(workspace[0], 0);
  EXPECT_EQ(workspace[3], 0);
  EXPECT_EQ(workspace.back(), 0xFF);
}

TEST_F(CudaExecutable, CompilesForUnalignedAddressesAtTheirFirstLaunch) {
  const auto made = make(problem("nt m=64 n=64 k=64 a=bf16"), choice("sm80", kTile));
  EXPECT_EQ(modules_, 1);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(made->launch(operands(64, 2), nullptr, nullptr).ok());
  }
  EXPECT_EQ(modules_, 2);
  const auto odd = made->launch(operands(64, 1), nullptr, nullptr);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(odd.error().message, HasSubstr("A: "));
}

TEST_F(CudaExecutable, NeitherCompilesNorAllocatesForACapturedStream) {
  const auto made = make(problem("nt m=64 n=64 k=4096 a=bf16"), choice("sm80", kSplit));
  const CuStream stream = fake_.make_stream(0, kCaptureActive);
  const auto cold = made->launch(operands(64, 2), nullptr, stream);
  ASSERT_FALSE(cold.ok());
  EXPECT_EQ(cold.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  ASSERT_TRUE(made->prepare_all().ok());
  fake_.forget_calls();
  EXPECT_TRUE(made->launch(operands(64, 2), nullptr, stream).ok());
  EXPECT_EQ(fake_.count("cuMemAllocFromPoolAsync") + fake_.count("cuModuleLoadDataEx"), 0);
  // Graph by graph until nothing is left of what was reserved.
  int captured = 1;
  base::Result<void> last;
  for (; captured < 100; ++captured) {
    last = made->launch(operands(64), nullptr, fake_.make_stream(0, kCaptureActive));
    if (!last.ok()) break;
  }
  EXPECT_EQ(captured, StreamWorkspaces::kSpares);
  EXPECT_EQ(last.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  EXPECT_THAT(last.error().message, HasSubstr("workspace"));
  destroy_graphs();
  EXPECT_TRUE(made->launch(operands(64), nullptr, fake_.make_stream(0, kCaptureActive)).ok())
      << "what graphs that have gone held is free";
  destroy_graphs();
}

TEST_F(CudaExecutable, TurnsToTheFallbackWhereTheFamilyNeedsAlignedAddresses) {
  const auto p = problem("nt m=8 n=64 k=512 a=bf16");
  const schedule::Choice fallback = choice("sm80", {16, 64, 64, 16, 16, 64, 4, 1, 1});
  const auto made = make(p, choice("skinny", kSkinny), &fallback);
  ASSERT_TRUE(made->launch(operands(8), nullptr, nullptr).ok());
  EXPECT_EQ(fake_.launches.back().kernel, "deepgemm_kernel_skinny");
  ASSERT_TRUE(made->launch(operands(8, 2), nullptr, nullptr).ok());
  EXPECT_EQ(fake_.launches.back().kernel, "deepgemm_kernel_sm80");
  const auto alone = make(p, choice("skinny", kSkinny));
  const auto refused = alone->launch(operands(8, 2), nullptr, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(refused.error().message, HasSubstr("aligned"));
}

TEST_F(CudaExecutable, SaysWhatOfL2WasSetAside) {
  const auto made = make(problem("nt m=8 n=64 k=64 a=bf16 lb=row/l2"), choice("sm80", kTile));
  EXPECT_THAT(made->note(), HasSubstr("L2 set aside"));
  ASSERT_TRUE(made->launch(operands(8), nullptr, nullptr).ok());
  const CuLaunchAttribute* window = fake_.launches.back().attribute(kLaunchAccessWindow);
  ASSERT_NE(window, nullptr);
  EXPECT_EQ(window->value.window.base, operands(8).b);
}

TEST_F(CudaExecutable, IsStaleAfterAReset) {
  const auto made = make(problem("nt m=8 n=64 k=64 a=bf16"), choice("sm80", kTile));
  EXPECT_TRUE(made->is_current());
  fake_.reset_device(0);
  EXPECT_FALSE(made->is_current());
  const auto launched = made->launch(operands(8), nullptr, nullptr);
  ASSERT_FALSE(launched.ok());
  EXPECT_EQ(launched.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
}

}  // namespace
}  // namespace deepgemm::cuda
