#include "backend/cuda/device.hpp"

#include <barrier>
#include <chrono>
#include <thread>

#include "backend/cuda/cuda_fixture.hpp"

namespace deepgemm::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaDevices : public CudaFixture {};

TEST_F(CudaDevices, HaveTheFactsOfTheDriver) {
  EXPECT_EQ(platform_->device_count(), 2);
  const DeviceFacts& facts = device(1).facts();
  EXPECT_EQ(facts.ordinal, 1);
  EXPECT_EQ(facts.title, "Fake H200");
  EXPECT_EQ(facts.sm, 90);
  EXPECT_EQ(facts.sms, 132);
  EXPECT_EQ(facts.shared_bytes_per_block, 232448);
  EXPECT_EQ(facts.l2_bytes, 62914560);
  EXPECT_EQ(facts.memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(facts.memory_bus_bits, 6144);
  EXPECT_TRUE(facts.memory_pools);
  EXPECT_FALSE(facts.integrated);
  EXPECT_EQ(facts.uuid, "GPU-a1010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_EQ(facts.pci, "0000:11:00.0");
  EXPECT_EQ(device(1).name(), "cuda:1");
}

TEST_F(CudaDevices, MarkAnInstanceByItsUuid) {
  fake_.devices[0].title = "NVIDIA H200 MIG 1g.18gb";
  const auto platform = Platform::create(fake_.driver());
  EXPECT_THAT((*(*platform)->device(0))->facts().uuid, ::testing::StartsWith("MIG-a001"));
}

TEST_F(CudaDevices, TakeAnAttributeThatTheDriverDoesNotKnowAsZero) {
  fake_.devices[0].attributes.erase(kDeviceClusterLaunch);
  fake_.devices[0].attributes.erase(kDevicePersistingL2);
  const auto platform = Platform::create(fake_.driver());
  const DeviceFacts& facts = (*(*platform)->device(0))->facts();
  EXPECT_FALSE(facts.clusters);
  EXPECT_EQ(facts.persisting_l2_bytes, 0);
}

TEST_F(CudaDevices, ThatDoNotAnswerLeaveTheOthersUsable) {
  fake_.fail("cuDeviceTotalMem_v2", CuResult::kUnknown);
  const auto platform = Platform::create(fake_.driver());
  ASSERT_TRUE(platform.ok());
  const auto broken = (*platform)->device(0);
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, AllOf(HasSubstr("cuda:0"), HasSubstr("999")));
  EXPECT_TRUE((*platform)->device(1).ok());
}

TEST_F(CudaDevices, RefuseANumberThatIsNone) {
  for (const int ordinal : {-1, 2}) {
    const auto device = platform_->device(ordinal);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(device.error().message, HasSubstr("sees 2 GPUs"));
  }
}

TEST_F(CudaDevices, TouchNoContextBeforeTheFirstUse) {
  EXPECT_EQ(fake_.count("cuDevicePrimaryCtxRetain"), 0);
  EXPECT_EQ(device().context(), nullptr);
}

TEST_F(CudaDevices, KeepTheirPrimaryContextUntilTheyGo) {
  {
    const auto guard = ContextGuard::enter(device());
    ASSERT_TRUE(guard.ok());
  }
  ASSERT_TRUE(ContextGuard::enter(device()).ok());
  EXPECT_EQ(fake_.count("cuDevicePrimaryCtxRetain"), 1);
  platform_.reset();
  EXPECT_EQ(fake_.devices[0].retained, 0);
  EXPECT_EQ(fake_.count("cuDevicePrimaryCtxRelease_v2"), 1);  // the other device was never used
}

TEST_F(CudaDevices, AreCurrentWithinTheirGuardOnly) {
  {
    const auto outer = ContextGuard::enter(device(0));
    EXPECT_EQ(current(), device(0).context());
    {
      const auto inner = ContextGuard::enter(device(1));
      EXPECT_EQ(current(), device(1).context());
      const auto again = ContextGuard::enter(device(1));
      EXPECT_EQ(current(), device(1).context());
    }
    EXPECT_EQ(current(), device(0).context());
  }
  EXPECT_EQ(current(), nullptr);
  EXPECT_EQ(fake_.count("cuCtxPushCurrent_v2"), 2);  // none for a context that was current
  EXPECT_EQ(fake_.count("cuCtxPopCurrent_v2"), 2);
}

TEST_F(CudaDevices, GetANewContextAfterAReset) {
  ASSERT_TRUE(ContextGuard::enter(device()).ok());
  const uint64_t generation = device().generation();
  fake_.reset_device(0);
  ASSERT_TRUE(ContextGuard::enter(device()).ok());
  EXPECT_EQ(device().generation(), generation + 1);
  EXPECT_EQ(fake_.devices[0].retained, 1);
  EXPECT_NE(fake_.devices[0].context, 0U);
}

TEST_F(CudaDevices, NoticeAContextThatSomeoneElseMadeAnew) {
  ASSERT_TRUE(ContextGuard::enter(device()).ok());
  const uint64_t generation = device().generation();
  fake_.reset_device(0);
  CuContext context = nullptr;  // same handle, other context
  fake_.driver().primary_retain(&context, 0);
  ASSERT_EQ(context, device().context());
  ASSERT_TRUE(ContextGuard::enter(device()).ok());
  EXPECT_EQ(device().generation(), generation + 1);
}

TEST_F(CudaDevices, ReportAContextThatCannotBeHad) {
  fake_.fail("cuDevicePrimaryCtxRetain", CuResult::kDeviceUnavailable);
  const auto guard = ContextGuard::enter(device());
  ASSERT_FALSE(guard.ok());
  EXPECT_EQ(guard.error().code, DEEPGEMM_ERROR_DEVICE);
  EXPECT_THAT(guard.error().message, AllOf(HasSubstr("cuda:0"), HasSubstr("exclusive mode")));
  EXPECT_TRUE(ContextGuard::enter(device()).ok());  // not kept
}

TEST_F(CudaDevices, AreRetainedOnceByThreadsThatStartAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 5;
  fake_.on_call = [](const std::string& name) {  // lets all see that there is no context yet
    if (name != "cuDevicePrimaryCtxRetain") return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  for (int round = 0; round < kRounds; ++round) {
    platform_ = std::move(*Platform::create(fake_.driver()));
    fake_.forget_calls();
    std::barrier start(kThreads);
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        const auto guard = ContextGuard::enter(device(i % 2));
        failures += !guard.ok() || current() != device(i % 2).context();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(failures, 0);
    ASSERT_EQ(fake_.count("cuDevicePrimaryCtxRetain"), 2);
    ASSERT_EQ(device(0).generation(), 1U);
  }
}

TEST_F(CudaDevices, RefuseToWorkInAForkedChild) {
  ASSERT_TRUE(ContextGuard::enter(device()).ok());
  EXPECT_TRUE(holds_in_child([&] {
    const auto guard = ContextGuard::enter(device());
    const auto pointer = platform_->pointer_facts(this);
    const size_t calls = fake_.calls().size();
    platform_.reset();  // must not call the driver either
    return !guard.ok() && guard.error().code == DEEPGEMM_ERROR_DEVICE &&
           guard.error().message.find("forked") != std::string::npos && !pointer.ok() &&
           fake_.calls().size() == calls;
  }));
  EXPECT_TRUE(ContextGuard::enter(device()).ok());  // the parent goes on
}

TEST_F(CudaDevices, WorkInAChildThatIsTheFirstToUseThem) {
  EXPECT_TRUE(holds_in_child([] { return !ForkWatch().forked() && ForkWatch().check().ok(); }));
}

TEST(CudaPlatform, OfThisProcessIsThatOfItsDriver) {
  const auto driver = process_driver();
  const auto platform = process_platform();
  ASSERT_EQ(platform.ok(), driver.ok());
  if (!platform.ok()) {
    EXPECT_EQ(platform.error().code, DEEPGEMM_ERROR_DEVICE);
    EXPECT_EQ(platform.error().message, driver.error().message);
    return;
  }
  EXPECT_EQ(&(*platform)->driver(), *driver);
  EXPECT_GT((*platform)->device_count(), 0);
  EXPECT_TRUE(holds_in_child([] { return !process_platform().ok(); }));
}

class CudaPointers : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    fake_.add_allocation(first_, {.bytes = 64, .ordinal = 0, .type = kMemoryTypeDevice});
    fake_.add_allocation(second_, {.bytes = 64, .ordinal = 1, .type = kMemoryTypeDevice});
    fake_.add_allocation(pinned_, {.bytes = 64, .ordinal = 1, .type = kMemoryTypeHost});
    fake_.add_allocation(managed_,
                         {.bytes = 64, .ordinal = 0, .type = kMemoryTypeDevice, .managed = true});
  }
  void* ordinary() { return &ordinary_; }
  base::Result<Device*> of(std::initializer_list<Operand> operands) {
    return platform_->device_of({operands.begin(), operands.size()});
  }

  // Addresses that the fake knows; nothing reads them.
  char* first_ = reinterpret_cast<char*>(0x100000);
  char* second_ = reinterpret_cast<char*>(0x200000);
  char* pinned_ = reinterpret_cast<char*>(0x300000);
  char* managed_ = reinterpret_cast<char*>(0x400000);
  int ordinary_ = 0;
};

TEST_F(CudaPointers, TellWhereTheyLie) {
  const auto facts = platform_->pointer_facts(second_ + 63);
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->kind, MemoryKind::kDevice);
  EXPECT_EQ(facts->ordinal, 1);
  EXPECT_EQ(facts->begin, reinterpret_cast<uint64_t>(second_));
  EXPECT_EQ(facts->bytes, 64U);
  EXPECT_EQ(platform_->pointer_facts(second_ + 64)->kind, MemoryKind::kPageable);
  EXPECT_EQ(platform_->pointer_facts(pinned_)->kind, MemoryKind::kPinned);
  EXPECT_EQ(platform_->pointer_facts(managed_)->kind, MemoryKind::kManaged);
  EXPECT_EQ(platform_->pointer_facts(ordinary())->kind, MemoryKind::kPageable);
  EXPECT_EQ(platform_->pointer_facts(nullptr)->kind, MemoryKind::kPageable);
}

TEST_F(CudaPointers, DecideTheDeviceOfALaunch) {
  EXPECT_EQ(*of({{"A", second_}, {"bias", nullptr}, {"C", second_ + 8}}), &device(1));
  // Memory that any device reaches does not outvote device memory.
  EXPECT_EQ(*of({{"A", pinned_}, {"B", managed_}, {"C", first_}}), &device(0));
  EXPECT_EQ(*of({{"A", pinned_}}), &device(1));
}

TEST_F(CudaPointers, OnTwoDevicesAreRefusedByName) {
  const auto device = of({{"A", first_}, {"B", pinned_}, {"C", second_}});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(device.error().message,
              AllOf(HasSubstr("A lies on cuda:0"), HasSubstr("C on cuda:1")));
}

TEST_F(CudaPointers, InOrdinaryMemoryAreRefusedUnlessTheDeviceReachesIt) {
  const auto device = of({{"A", first_}, {"B", ordinary()}});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(device.error().message, AllOf(HasSubstr("B ("), HasSubstr("cannot reach")));
  EXPECT_FALSE(of({{"B", ordinary()}}).ok());

  fake_.devices[0].attributes[kDevicePageableAccess] = 1;
  const auto reaching = Platform::create(fake_.driver());
  const Operand operands[] = {{"B", ordinary()}, {"A", first_}};
  EXPECT_TRUE((*reaching)->device_of(operands).ok());
}

TEST_F(CudaPointers, ThatAreAllNullTellNoDevice) {
  const auto device = of({{"A", nullptr}, {"B", nullptr}});
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.error().message, HasSubstr("all pointers are null"));
}

TEST_F(CudaPointers, ReportAnEarlierFault) {
  fake_.fail("cuPointerGetAttributes", CuResult::kIllegalAddress);
  const auto device = of({{"A", first_}});
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.error().message, HasSubstr("had already failed before this call"));
}

}  // namespace
}  // namespace deepgemm::cuda
