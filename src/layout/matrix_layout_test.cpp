#include "layout/matrix_layout.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/formats.hpp"

namespace deepgemm::layout {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

gemm_layout_t declare(gemm_physical_layout_t physical, int64_t batch_stride = 0,
                      int64_t row_stride = 0, int64_t col_stride = 0) {
  gemm_layout_t layout = {};
  layout.physical_layout = physical;
  layout.strides[0] = batch_stride;
  layout.strides[1] = row_stride;
  layout.strides[2] = col_stride;
  return layout;
}

MatrixLayout resolved(const gemm_layout_t& declared, int64_t batch, int64_t rows, int64_t cols,
                      bool is_output = false) {
  const auto result = resolve(declared, batch, rows, cols, "A", is_output);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : MatrixLayout{};
}

std::string refusal(const gemm_layout_t& declared, int64_t batch, int64_t rows, int64_t cols,
                    bool is_output = false) {
  const auto result = resolve(declared, batch, rows, cols, "C", is_output);
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  return result.error().message;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Every offset of a layout, found by walking it.
std::vector<int64_t> offsets(const MatrixLayout& layout) {
  std::vector<int64_t> result;
  for (int64_t b = 0; b < layout.batch; ++b) {
    for (int64_t r = 0; r < layout.rows; ++r) {
      for (int64_t c = 0; c < layout.cols; ++c) result.push_back(element_offset(layout, b, r, c));
    }
  }
  return result;
}

TEST(Resolve, TakesZeroStridesAsContiguous) {
  EXPECT_EQ(resolved(declare(LAYOUT_ROW_MAJOR), 2, 3, 5), (MatrixLayout{2, 3, 5, 15, 5, 1, false}));
  EXPECT_EQ(resolved(declare(LAYOUT_ANY), 2, 3, 5), (MatrixLayout{2, 3, 5, 15, 5, 1, false}));
  EXPECT_EQ(resolved(declare(LAYOUT_STREAMING), 2, 3, 5), (MatrixLayout{2, 3, 5, 15, 5, 1, false}));
  EXPECT_EQ(resolved(declare(LAYOUT_COL_MAJOR), 2, 3, 5), (MatrixLayout{2, 3, 5, 15, 1, 3, false}));
}

TEST(Resolve, ContinuesFromStridesThatAreGiven) {
  EXPECT_EQ(resolved(declare(LAYOUT_ROW_MAJOR, 0, 8, 0), 2, 3, 5),
            (MatrixLayout{2, 3, 5, 24, 8, 1, false}));
  EXPECT_EQ(resolved(declare(LAYOUT_ROW_MAJOR, 0, 0, 2), 2, 3, 5),
            (MatrixLayout{2, 3, 5, 30, 10, 2, false}));
  EXPECT_EQ(resolved(declare(LAYOUT_COL_MAJOR, 0, 0, 4), 2, 3, 5),
            (MatrixLayout{2, 3, 5, 20, 1, 4, false}));
  // Column-major by strides: the batch starts after the farthest element.
  EXPECT_EQ(resolved(declare(LAYOUT_ROW_MAJOR, 0, 1, 3), 2, 3, 5),
            (MatrixLayout{2, 3, 5, 15, 1, 3, false}));
}

TEST(Resolve, AllowsNegativeStridesForInputsAndOutputs) {
  const MatrixLayout layout = resolved(declare(LAYOUT_ROW_MAJOR, 0, -5, 0), 1, 3, 5, true);
  EXPECT_EQ(layout.row_stride, -5);
  const Extent range = *extent(layout);
  EXPECT_EQ(range.first, -10);
  EXPECT_EQ(range.last, 4);
  EXPECT_EQ(*buffer_bytes(layout, PRECISION_FP32), 60);
}

TEST(Resolve, IgnoresStridesOfDimensionsOfOneElement) {
  EXPECT_EQ(resolved(declare(LAYOUT_ROW_MAJOR, kLargest, 1, 1), 1, 1, 7, true),
            (MatrixLayout{1, 1, 7, 7, 7, 1, false}));
  EXPECT_EQ(resolved(declare(LAYOUT_ROW_MAJOR, 0, 0, GEMM_STRIDE_BROADCAST), 1, 4, 1, true),
            (MatrixLayout{1, 4, 1, 4, 1, 1, false}));
}

TEST(Resolve, RepeatsInputsThatAreBroadcast) {
  const MatrixLayout shared =
      resolved(declare(LAYOUT_ROW_MAJOR, GEMM_STRIDE_BROADCAST, 0, 0), 8, 3, 5);
  EXPECT_EQ(shared.batch_stride, 0);
  EXPECT_TRUE(overlaps_itself(shared));
  EXPECT_EQ(*buffer_bytes(shared, PRECISION_FP16), 30);
  const MatrixLayout row =
      resolved(declare(LAYOUT_ROW_MAJOR, 0, GEMM_STRIDE_BROADCAST, 0), 2, 3, 5);
  EXPECT_EQ(row, (MatrixLayout{2, 3, 5, 5, 0, 1, false}));
}

TEST(Resolve, RefusesOutputsWhoseElementsShareAnAddress) {
  const std::string broadcast =
      refusal(declare(LAYOUT_ROW_MAJOR, GEMM_STRIDE_BROADCAST, 0, 0), 8, 3, 5, true);
  EXPECT_TRUE(contains(broadcast, "strides[0] is GEMM_STRIDE_BROADCAST")) << broadcast;
  const std::string rows = refusal(declare(LAYOUT_ROW_MAJOR, 0, 4, 0), 1, 3, 5, true);
  EXPECT_TRUE(contains(rows, "share an address")) << rows;
  EXPECT_EQ(refusal(declare(LAYOUT_ROW_MAJOR, 0, 4, 0), 1, 3, 5, false), "");  // inputs may overlap
}

TEST(Resolve, RefusesShapesThatContradictAndNamesTheRightOne) {
  gemm_layout_t declared = declare(LAYOUT_ROW_MAJOR);
  declared.logical_shape[1] = 4096;
  const std::string message = refusal(declared, 1, 4000, 64);
  EXPECT_TRUE(contains(message, "logical_shape[1] (rows) is 4096")) << message;
  EXPECT_TRUE(contains(message, "set it to 4000")) << message;
  declared.logical_shape[1] = 4000;  // the advice works
  EXPECT_EQ(refusal(declared, 1, 4000, 64), "");

  declared.logical_shape[0] = 1;
  EXPECT_TRUE(contains(refusal(declared, 8, 4000, 64), "GEMM_STRIDE_BROADCAST"));
  declared.logical_shape[0] = 0;
  declared.logical_shape[2] = -64;
  EXPECT_TRUE(contains(refusal(declared, 1, 4000, 64), "is -64"));
}

TEST(Resolve, RefusesUnknownEnumerators) {
  gemm_layout_t declared = declare(static_cast<gemm_physical_layout_t>(7));
  EXPECT_TRUE(contains(refusal(declared, 1, 2, 2), "physical_layout is 7"));
  declared = declare(LAYOUT_ANY);
  declared.memory_space = static_cast<gemm_memory_space_t>(3);
  EXPECT_TRUE(contains(refusal(declared, 1, 2, 2), "memory_space is 3"));
  declared.memory_space = MEM_SPACE_DEFAULT;
  declared.access_pattern = static_cast<gemm_access_pattern_t>(3);
  EXPECT_TRUE(contains(refusal(declared, 1, 2, 2), "access_pattern is 3"));
}

TEST(Resolve, RefusesOffsetsBeyond63Bits) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_TRUE(contains(refusal(declare(LAYOUT_ROW_MAJOR), 1, big, big), "63 bits"));
  EXPECT_TRUE(contains(refusal(declare(LAYOUT_BLOCKED_16x16), 1, big, big), "63 bits"));
  EXPECT_TRUE(contains(refusal(declare(LAYOUT_ROW_MAJOR, 0, kLargest, 0), 1, 3, 5), "63 bits"));
  EXPECT_TRUE(contains(refusal(declare(LAYOUT_ROW_MAJOR, 0, -kLargest, 0), 1, 3, 5), "63 bits"));
  EXPECT_TRUE(
      contains(refusal(declare(LAYOUT_ROW_MAJOR, kLargest, 0, 0), kLargest, 1, 2), "63 bits"));
  EXPECT_TRUE(contains(refusal(declare(LAYOUT_ROW_MAJOR), 1, -1, 5), "rows"));
  // 64 experts of 4096 x 14336: beyond 32 bits, and fine.
  const MatrixLayout experts = resolved(declare(LAYOUT_ROW_MAJOR), 64, 4096, 14336);
  EXPECT_EQ(element_offset(experts, 63, 4095, 14335), int64_t{64} * 4096 * 14336 - 1);
  EXPECT_EQ(*buffer_bytes(experts, PRECISION_BF16), int64_t{64} * 4096 * 14336 * 2);
}

TEST(Resolve, RefusesBytesBeyond63BitsOnlyWhenTheyAreAskedFor) {
  const MatrixLayout layout =
      resolved(declare(LAYOUT_ROW_MAJOR), 1, int64_t{1} << 31, int64_t{1} << 30);
  EXPECT_EQ(*buffer_bytes(layout, PRECISION_INT4), int64_t{1} << 60);
  EXPECT_EQ(*buffer_bytes(layout, PRECISION_FP8_E4M3), int64_t{1} << 61);
  EXPECT_FALSE(buffer_bytes(layout, PRECISION_FP64).ok());
  EXPECT_FALSE(buffer_bytes(layout, PRECISION_DEFAULT).ok());
}

TEST(Resolve, RefusesStridesOfBlockedLayouts) {
  EXPECT_TRUE(
      contains(refusal(declare(LAYOUT_BLOCKED_16x16, 0, 64, 0), 1, 64, 64), "has no strides"));
  const MatrixLayout layout = resolved(declare(LAYOUT_BLOCKED_16x16), 2, 17, 33, true);
  EXPECT_EQ(layout, (MatrixLayout{2, 17, 33, 2 * 3 * 256, 0, 1, true}));
  EXPECT_EQ(*buffer_bytes(layout, PRECISION_FP16), 2 * 2 * 3 * 256 * 2);  // edge tiles are full
}

TEST(Resolve, AcceptsEmptyMatrices) {
  for (const auto physical : {LAYOUT_ROW_MAJOR, LAYOUT_COL_MAJOR, LAYOUT_BLOCKED_16x16}) {
    for (const auto& [b, r, c] :
         {std::array<int64_t, 3>{0, 3, 5}, {2, 0, 5}, {2, 3, 0}, {0, 0, 0}}) {
      const MatrixLayout layout = resolved(declare(physical), b, r, c, true);
      EXPECT_EQ(*buffer_bytes(layout, PRECISION_FP32), 0);
      EXPECT_FALSE(overlaps_itself(layout));
      EXPECT_TRUE(convert(nullptr, layout, nullptr, layout, PRECISION_FP32).ok());
    }
  }
}

TEST(ElementOffset, WalksTilesRowByRow) {
  const MatrixLayout layout = resolved(declare(LAYOUT_BLOCKED_16x16), 2, 20, 40);
  EXPECT_EQ(element_offset(layout, 0, 0, 15), 15);
  EXPECT_EQ(element_offset(layout, 0, 1, 0), 16);
  EXPECT_EQ(element_offset(layout, 0, 0, 16), 256);      // next tile to the right
  EXPECT_EQ(element_offset(layout, 0, 16, 0), 3 * 256);  // first tile of the second row of tiles
  EXPECT_EQ(element_offset(layout, 1, 17, 34), 6 * 256 + 5 * 256 + 16 + 2);
}

TEST(Transposed, SwapsRowsAndColumns) {
  const MatrixLayout layout = resolved(declare(LAYOUT_ROW_MAJOR, 0, 7, 0), 2, 3, 5);
  const MatrixLayout turned = transposed(layout);
  EXPECT_EQ(element_offset(turned, 1, 4, 2), element_offset(layout, 1, 2, 4));
  EXPECT_EQ(transposed(turned), layout);
}

// Bit offsets of INT4: two to a byte, also when negative strides start in the middle of one.
TEST(BufferBytes, CountsHalfBytes) {
  EXPECT_EQ(*buffer_bytes(resolved(declare(LAYOUT_ROW_MAJOR), 1, 3, 5), PRECISION_INT4), 8);
  const MatrixLayout backwards = resolved(declare(LAYOUT_ROW_MAJOR, 0, 0, -1), 1, 1, 4);
  EXPECT_EQ(*buffer_bytes(backwards, PRECISION_INT4), 3);  // elements -3 ... 0
}

TEST(OverlapsItself, AgreesWithWalkingAllElements) {
  std::mt19937 random(5);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  int overlapping = 0;
  constexpr int kCases = 20000;
  for (int i = 0; i < kCases; ++i) {
    const MatrixLayout layout{draw(1, 5),    draw(1, 7),    draw(1, 7), draw(-60, 60),
                              draw(-40, 40), draw(-12, 12), false};
    const std::vector<int64_t> all = offsets(layout);
    const std::set<int64_t> distinct(all.begin(), all.end());
    const bool overlaps = distinct.size() < all.size();
    overlapping += overlaps ? 1 : 0;
    ASSERT_EQ(overlaps_itself(layout), overlaps) << testing::PrintToString(all);
    ASSERT_EQ(extent(layout)->first, *distinct.begin());
    ASSERT_EQ(extent(layout)->last, *distinct.rbegin());
  }
  EXPECT_GT(overlapping, kCases / 10);  // both answers occur
  EXPECT_LT(overlapping, kCases * 9 / 10);
}

TEST(OverlapsItself, AnswersForInterleavedDimensionsOfAnySize) {
  // Offsets 6b + 10r + 15c, which no two of these elements share, and one step more, which two do.
  EXPECT_FALSE(overlaps_itself({5, 3, 2, 6, 10, 15, false}));
  EXPECT_TRUE(overlaps_itself({6, 4, 2, 6, 10, 15, false}));
  // Strides without a common divisor just large enough, beyond 2^31 elements.
  const int64_t n = (int64_t{1} << 20) + 1;
  EXPECT_FALSE(overlaps_itself({1, n - 1, n, 0, n, n - 1, false}));
  EXPECT_TRUE(overlaps_itself({1, n, n + 1, 0, n, n - 1, false}));
  EXPECT_TRUE(overlaps_itself({n, n, n, 1, 1, 1, false}));
}

std::vector<uint8_t> counting_bytes(int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(1 + i * 7 % 251);
  return bytes;
}

gemm_layout_t random_layout(int64_t rows, int64_t cols) {
  const auto physical = *rc::gen::element(LAYOUT_ROW_MAJOR, LAYOUT_COL_MAJOR, LAYOUT_BLOCKED_16x16);
  if (physical == LAYOUT_BLOCKED_16x16 || *rc::gen::arbitrary<bool>()) return declare(physical);
  const int64_t inner = *rc::gen::element<int64_t>(1, -1, 2, -3);
  const int64_t outer = (physical == LAYOUT_ROW_MAJOR ? cols : rows) * std::abs(inner) +
                        *rc::gen::inRange<int64_t>(0, 4);
  const int64_t signed_outer = *rc::gen::arbitrary<bool>() ? outer : -outer;
  return physical == LAYOUT_ROW_MAJOR ? declare(physical, 0, signed_outer, inner)
                                      : declare(physical, 0, inner, signed_outer);
}

RC_GTEST_PROP(Convert, MovesEveryElementAndTouchesNoOther, ()) {
  const int64_t batch = *rc::gen::inRange<int64_t>(1, 3);
  const int64_t rows = *rc::gen::inRange<int64_t>(1, 40);
  const int64_t cols = *rc::gen::inRange<int64_t>(1, 40);
  const auto precision =
      *rc::gen::element(PRECISION_FP64, PRECISION_FP32, PRECISION_BF16, PRECISION_INT8);
  const int64_t size = base::storage_bytes(precision, 1);
  const MatrixLayout from = resolved(random_layout(rows, cols), batch, rows, cols);
  const MatrixLayout to = resolved(random_layout(rows, cols), batch, rows, cols, true);
  const Extent source_range = *extent(from);
  const Extent target_range = *extent(to);
  const std::vector<uint8_t> source = counting_bytes(*buffer_bytes(from, precision));
  constexpr int64_t kGuard = 64;
  constexpr uint8_t kUntouched = 0xEE;
  std::vector<uint8_t> target(static_cast<size_t>(*buffer_bytes(to, precision) + 2 * kGuard),
                              kUntouched);
  std::vector<bool> written(target.size(), false);

  const uint8_t* origin = source.data() - source_range.first * size;
  uint8_t* destination = target.data() + kGuard - target_range.first * size;
  RC_ASSERT(convert(destination, to, origin, from, precision).ok());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const uint8_t* got = destination + element_offset(to, b, r, c) * size;
        RC_ASSERT(std::memcmp(got, origin + element_offset(from, b, r, c) * size,
                              static_cast<size_t>(size)) == 0);
        for (int64_t i = 0; i < size; ++i)
          written[static_cast<size_t>(got - target.data() + i)] = true;
      }
    }
  }
  for (size_t i = 0; i < target.size(); ++i) {
    if (written[i]) continue;
    const bool inside = i >= kGuard && i + kGuard < target.size();
    RC_ASSERT(target[i] ==
              (to.blocked && inside ? 0 : kUntouched));  // padding of edge tiles is zero
  }
}

TEST(Convert, RefusesWhatItCannotDo) {
  const MatrixLayout layout = resolved(declare(LAYOUT_ROW_MAJOR), 1, 3, 5);
  const MatrixLayout other = resolved(declare(LAYOUT_ROW_MAJOR), 1, 5, 3);
  const MatrixLayout shared =
      resolved(declare(LAYOUT_ROW_MAJOR, 0, GEMM_STRIDE_BROADCAST, 0), 1, 3, 5);
  std::vector<float> a(15), b(15);
  const auto code = [&](const auto& result) {
    return result.ok() ? DEEPGEMM_SUCCESS : result.error().code;
  };
  EXPECT_EQ(code(convert(b.data(), layout, a.data(), other, PRECISION_FP32)),
            DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(code(convert(nullptr, layout, a.data(), layout, PRECISION_FP32)),
            DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(code(convert(b.data(), layout, nullptr, layout, PRECISION_FP32)),
            DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(code(convert(b.data(), shared, a.data(), layout, PRECISION_FP32)),
            DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(code(convert(b.data(), layout, a.data(), shared, PRECISION_FP32)), DEEPGEMM_SUCCESS);
  EXPECT_EQ(code(convert(b.data(), layout, a.data(), layout, PRECISION_INT4)),
            DEEPGEMM_ERROR_UNSUPPORTED);
  EXPECT_EQ(code(convert(b.data(), layout, a.data(), layout, PRECISION_DEFAULT)),
            DEEPGEMM_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace deepgemm::layout
