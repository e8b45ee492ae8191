#include "backend/cuda/shared_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepgemm::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SharedLibrary, OpensTheFirstThatIsThereAndFindsItsFunctions) {
  const char* const names[] = {"libnone_such.so.1", "libm.so.6", "libc.so.6"};
  const auto library = SharedLibrary::open(names);
  ASSERT_TRUE(library.ok()) << library.error().message;
  EXPECT_THAT(library->path(), HasSubstr("libm.so.6"));
  EXPECT_NE(library->symbol("cosf"), nullptr);
  EXPECT_EQ(library->symbol("deepgemm_none_such"), nullptr);
}

TEST(SharedLibrary, SaysOfEachWhyItDoesNotOpen) {
  const char* const names[] = {"libnone_such.so.1", "/none/such.so"};
  const auto library = SharedLibrary::open(names);
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, DEEPGEMM_ERROR_IO);
  EXPECT_THAT(library.error().message,
              AllOf(HasSubstr("libnone_such.so.1"), HasSubstr("/none/such.so")));
}

}  // namespace
}  // namespace deepgemm::cuda
