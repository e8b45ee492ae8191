// Compares our declarations of the driver's interface with cuda.h, where a toolkit has it.
#include <gtest/gtest.h>

#ifdef DEEPGEMM_TEST_CUDA_HEADER

// With it the header also declares calls of earlier versions, which are in our table.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#endif

// Older headers lack some of the results.
#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000

#include <cstddef>
#include <type_traits>

#include "backend/cuda/driver.hpp"

namespace deepgemm::cuda {
namespace {

TEST(CudaHeader, HasOurConstants) {
#define DEEPGEMM_CUDA_CONSTANT(name, official, number) EXPECT_EQ(name, static_cast<int>(official));
#include "backend/cuda/driver_constants.inc"
#undef DEEPGEMM_CUDA_CONSTANT
}

TEST(CudaHeader, HasOurResults) {
#define DEEPGEMM_CUDA_RESULT(name, official, number, kind, meaning) \
  EXPECT_EQ(number, static_cast<int>(official));
#include "backend/cuda/driver_results.inc"
#undef DEEPGEMM_CUDA_RESULT
  EXPECT_EQ(static_cast<int>(CUDA_SUCCESS), 0);
}

// Arguments are passed alike: as pointers, as floating point, or as integers of one size.
template <class Ours, class Theirs>
constexpr bool kAlike =
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_floating_point_v<Ours> ==
        std::is_floating_point_v<Theirs>;

// Without arguments both are empty packs, and of unequal lengths there is no match at all.
template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class... Ours, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct Same<CuResult (*)(Ours...), CUresult (*)(Theirs...)>
    : std::bool_constant<(kAlike<Ours, Theirs> && ...)> {
};

TEST(CudaHeader, HasOurCallsWithTheirParameters) {
#define DEEPGEMM_CUDA_CALL(member, symbol, parameters) \
  EXPECT_TRUE((Same<decltype(Driver::member), decltype(&::symbol)>::value)) << #symbol;
#include "backend/cuda/driver_api.inc"
#undef DEEPGEMM_CUDA_CALL
  // The comparison can tell.
  EXPECT_FALSE((Same<CuResult (*)(int), CUresult (*)(size_t)>::value));
  EXPECT_FALSE((Same<CuResult (*)(int), CUresult (*)(int, int)>::value));
}

#define EXPECT_SAME_PLACE(Ours, our_member, Theirs, their_member)        \
  EXPECT_EQ(offsetof(Ours, our_member), offsetof(Theirs, their_member)); \
  EXPECT_EQ(sizeof(Ours::our_member), sizeof(Theirs::their_member))

TEST(CudaHeader, LaysOutStructuresAsWeDo) {
  EXPECT_EQ(sizeof(CuUuid), sizeof(CUuuid));
  EXPECT_EQ(sizeof(CuPointer), sizeof(CUdeviceptr));
  EXPECT_EQ(sizeof(CuAccessWindow), sizeof(CUaccessPolicyWindow));
  EXPECT_SAME_PLACE(CuAccessWindow, base, CUaccessPolicyWindow, base_ptr);
  EXPECT_SAME_PLACE(CuAccessWindow, bytes, CUaccessPolicyWindow, num_bytes);
  EXPECT_SAME_PLACE(CuAccessWindow, hit_ratio, CUaccessPolicyWindow, hitRatio);
  EXPECT_SAME_PLACE(CuAccessWindow, hit, CUaccessPolicyWindow, hitProp);
  EXPECT_SAME_PLACE(CuAccessWindow, miss, CUaccessPolicyWindow, missProp);
  EXPECT_EQ(sizeof(CuLaunchAttribute), sizeof(CUlaunchAttribute));
  EXPECT_SAME_PLACE(CuLaunchAttribute, id, CUlaunchAttribute, id);
  EXPECT_SAME_PLACE(CuLaunchAttribute, value, CUlaunchAttribute, value);
  EXPECT_EQ(sizeof(CuLaunchConfig), sizeof(CUlaunchConfig));
  EXPECT_SAME_PLACE(CuLaunchConfig, grid_x, CUlaunchConfig, gridDimX);
  EXPECT_SAME_PLACE(CuLaunchConfig, block_x, CUlaunchConfig, blockDimX);
  EXPECT_SAME_PLACE(CuLaunchConfig, dynamic_shared_bytes, CUlaunchConfig, sharedMemBytes);
  EXPECT_SAME_PLACE(CuLaunchConfig, stream, CUlaunchConfig, hStream);
  EXPECT_SAME_PLACE(CuLaunchConfig, attributes, CUlaunchConfig, attrs);
  EXPECT_SAME_PLACE(CuLaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
  EXPECT_EQ(sizeof(CuPoolProperties), sizeof(CUmemPoolProps));
  EXPECT_SAME_PLACE(CuPoolProperties, allocation, CUmemPoolProps, allocType);
  EXPECT_SAME_PLACE(CuPoolProperties, export_handles, CUmemPoolProps, handleTypes);
  EXPECT_SAME_PLACE(CuPoolProperties, location, CUmemPoolProps, location.type);
  EXPECT_SAME_PLACE(CuPoolProperties, location_id, CUmemPoolProps, location.id);
}

}  // namespace
}  // namespace deepgemm::cuda

#else

TEST(CudaHeader, HasOurDeclarations) {
  GTEST_SKIP() << "no cuda.h of CUDA 13.0 or newer was found when this was built; CUDA_HOME tells "
                  "CMake where a toolkit is";
}

#endif
