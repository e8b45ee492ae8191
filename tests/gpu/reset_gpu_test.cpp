// A device that is reset under a program that goes on using the library.

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include <memory>

#include "plan_fixture.hpp"

namespace deepgemm::gpu_test {
namespace {

using testing::HasSubstr;

constexpr const char* kLine = "nt m=17 n=320 k=448 a=bf16";

// What another library in the process may do: everything of the context goes, also our memory.
bool reset_device() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  using Reset = int (*)(int);
  const auto reset = reinterpret_cast<Reset>(::dlsym(driver, "cuDevicePrimaryCtxReset_v2"));
  return reset != nullptr && reset(0) == 0;
}

class GpuReset : public GpuPlans {};

// Run in a process of its own: what the other tests hold would not survive.
TEST_F(GpuReset, DISABLED_InThisProcess) {
  auto before = std::make_unique<Product>(kLine);
  before->expect_verified();
  ASSERT_TRUE(reset_device());
  // Plans that are made now are as good as the first.
  auto after = std::make_unique<Product>(kLine);
  after->expect_verified();
  Product("nt m=300 n=64 k=64 a=fp32").expect_verified();
  // The old plan's kernel is gone, and that is said.
  before->args = after->args;
  EXPECT_EQ(before->launch(), DEEPGEMM_ERROR_NOT_PREPARED);
  EXPECT_THAT(deepgemm_last_error(), HasSubstr("reset"));
  after->expect_verified();
  ASSERT_TRUE(reset_device());
  Product(kLine).expect_verified();
  // Their memory went with the contexts; there is nothing to free.
  static_cast<void>(before.release());
  static_cast<void>(after.release());
}

TEST_F(GpuReset, PlansMadeAfterItWorkAndOlderOnesSaySo) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "reset", "--gtest_filter=GpuReset.DISABLED_InThisProcess",
            "--gtest_also_run_disabled_tests", nullptr);
    ::_exit(127);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace deepgemm::gpu_test
