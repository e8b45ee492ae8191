#include "runtime/memory_range.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "layout/matrix_layout.hpp"

namespace deepgemm::runtime {
namespace {

layout::MatrixLayout strided(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
  layout::MatrixLayout layout;
  layout.rows = rows;
  layout.cols = cols;
  layout.row_stride = row_stride;
  layout.col_stride = col_stride;
  return layout;
}

MemoryRange range_at(const float* data, const layout::MatrixLayout& layout) {
  const auto range = matrix_range(data, layout, PRECISION_FP32);
  EXPECT_TRUE(range.ok());
  return range.ok() ? *range : MemoryRange{};
}

TEST(MemoryRange, CoversTheElementsTouched) {
  std::array<float, 100> data = {};
  const MemoryRange range = range_at(data.data(), strided(3, 4, 10, 1));
  EXPECT_EQ(range.first, reinterpret_cast<uintptr_t>(data.data()));
  EXPECT_EQ(range.last - range.first, (2 * 10 + 4) * sizeof(float));
}

TEST(MemoryRange, EmptyMatricesOverlapNothing) {
  std::array<float, 100> data = {};
  const MemoryRange empty = range_at(data.data(), strided(0, 4, 4, 1));
  EXPECT_TRUE(empty.empty());
  EXPECT_FALSE(may_overlap(empty, range_at(data.data(), strided(3, 4, 4, 1))));
}

TEST(MemoryRange, AdjacentMatricesDoNotOverlap) {
  std::array<float, 100> data = {};
  const auto layout = strided(3, 4, 4, 1);
  const MemoryRange first = range_at(data.data(), layout);
  EXPECT_FALSE(may_overlap(first, range_at(data.data() + 12, layout)));
  EXPECT_TRUE(may_overlap(first, range_at(data.data() + 11, layout)));
}

TEST(MemoryRange, ColumnSlicesOfOneBufferDoNotOverlap) {
  std::array<float, 100> data = {};
  const MemoryRange left = range_at(data.data(), strided(5, 4, 10, 1));
  EXPECT_FALSE(may_overlap(left, range_at(data.data() + 4, strided(5, 6, 10, 1))));
  EXPECT_TRUE(may_overlap(left, range_at(data.data() + 3, strided(5, 6, 10, 1))));
  // A slice that wraps into the next row meets the first column again.
  EXPECT_TRUE(may_overlap(left, range_at(data.data() + 5, strided(5, 6, 10, 1))));
}

// Against the set of touched bytes: a shared byte is never missed, and for runs of equal pitch none
// is invented.
TEST(MemoryRange, AgreesWithTheSetOfTouchedElements) {
  std::array<float, 4096> data = {};
  std::mt19937 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int64_t apart = 0;
  for (int i = 0; i < 4000; ++i) {
    const int64_t pitch = draw(4, 12);
    std::array<layout::MatrixLayout, 2> layouts;
    std::array<int64_t, 2> starts = {};
    std::array<std::set<int64_t>, 2> touched;
    for (size_t j = 0; j < 2; ++j) {
      const bool transposed = random() % 2 == 0;
      const int64_t runs = draw(2, 4);
      const int64_t length = draw(2, 4);
      layouts[j] = transposed ? strided(length, runs, 1, pitch) : strided(runs, length, pitch, 1);
      starts[j] = draw(0, 40);
      for (int64_t r = 0; r < runs; ++r) {
        for (int64_t c = 0; c < length; ++c) touched[j].insert(starts[j] + r * pitch + c);
      }
    }
    bool shared = false;
    for (const int64_t element : touched[0]) shared = shared || touched[1].contains(element);
    const bool answer = may_overlap(range_at(data.data() + starts[0], layouts[0]),
                                    range_at(data.data() + starts[1], layouts[1]));
    if (shared) {
      ASSERT_TRUE(answer) << "case " << i;
    }
    apart += !answer;
  }
  EXPECT_GT(apart, 1000);
}

}  // namespace
}  // namespace deepgemm::runtime
