// Reproducibility and threads.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "backend/cpu/launch_test_support.hpp"
#include "base/formats.hpp"

namespace deepgemm::cpu {
namespace {

using contract::PathId;

struct FormatCase {
  PathId path;
  gemm_precision_t a, b, c;
};
constexpr FormatCase kFormats[] = {
    {PathId::kFp32, PRECISION_FP32, PRECISION_FP32, PRECISION_FP32},
    {PathId::kFp64, PRECISION_FP64, PRECISION_FP64, PRECISION_FP64},
    {PathId::kBf16, PRECISION_BF16, PRECISION_BF16, PRECISION_BF16},
    {PathId::kInt8, PRECISION_INT8, PRECISION_INT8, PRECISION_FP32},
    {PathId::kW4A16, PRECISION_FP16, PRECISION_INT4_AWQ, PRECISION_FP16},
};

Case random_case(const FormatCase& format, int64_t m) {
  Case c;
  c.operation = GEMM_OP_NT;
  c.path = format.path;
  c.a = format.a;
  c.b = format.b;
  c.c = format.c;
  c.m = m;
  c.n = 70;
  c.k = 600;
  c.exact = false;
  if (base::is_int4(format.b)) {
    WeightCase weights;
    weights.k = c.k;
    weights.n = c.n;
    weights.exact = false;
    weights.outliers = 3;
    c.weights = random_weights(weights);
  }
  return c;
}

TEST(BatchInvariance, ARowHasTheSameBitsAloneAndWithinAnyM) {
  ThreadPool pool(3);
  for (const Isa isa : runnable_isas()) {
    for (const FormatCase& format : kFormats) {
      // Tiles as a planner takes them: other sizes for other M, block_k the same.
      const auto make = [&](int64_t m) {
        Case c = random_case(format, m);
        c.isa = isa;
        c.block_m = m <= 8 ? 8 : 64;
        c.block_n = m <= 16 ? 64 : 256;
        c.pool = m % 2 == 0 ? &pool : nullptr;
        return c;
      };
      Product alone(make(1));
      alone.launch();
      for (const int64_t m : {2, 3, 7, 16, 17, 64, 129, 1024}) {
        Product many(make(m));
        const int64_t row = m / 2;
        for (int64_t p = 0; p < 600; ++p) many.a().set(0, row, p, alone.a().get(0, 0, p));
        for (int64_t p = 0; p < 600 && !base::is_int4(format.b); ++p) {
          for (int64_t j = 0; j < 70; ++j) many.b().set(0, j, p, alone.b().get(0, j, p));
        }
        many.launch();
        for (int64_t j = 0; j < 70; ++j) {
          const double first = alone.result(0, 0, j);
          const double second = many.result(0, row, j);
          ASSERT_EQ(std::memcmp(&first, &second, sizeof(first)), 0)
              << isa_name(isa) << " m " << m << " column " << j;
        }
      }
    }
  }
}

TEST(Reproducibility, BitsDoNotDependOnThreadsOrRuns) {
  ThreadPool four(4);
  ThreadPool one(1);
  for (const FormatCase& format : kFormats) {
    Case c = random_case(format, 150);
    c.block_m = 16;
    c.block_n = 32;
    c.pool = &one;
    Product single(c);
    single.launch();
    c.pool = &four;
    for (int run = 0; run < 3; ++run) {
      Product threaded(c);
      threaded.launch();
      EXPECT_TRUE(single.c().same_bytes(threaded.c())) << c.text();
    }
  }
}

TEST(Threads, ManyCallersLaunchRandomShapesAtOnce) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  for (uint64_t caller = 0; caller < 16; ++caller) {
    callers.emplace_back([&, caller] {
      for (uint64_t round = 0; round < 6; ++round) {
        const uint64_t seed = caller * 101 + round * 7;
        Case c;
        c.m = static_cast<int64_t>(1 + seed % 40);
        c.n = static_cast<int64_t>(1 + seed * 3 % 90);
        c.k = static_cast<int64_t>(1 + seed * 5 % 70);
        c.block_m = 8;
        c.block_n = 32;
        c.pool = &pool;
        c.seed = seed;
        Product product(c);
        product.launch();
        product.expect_exact();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Threads, OneExecutableServesManyCallers) {
  ThreadPool pool(2);
  Case c;
  c.m = 40;
  c.n = 100;
  c.block_m = 8;
  c.block_n = 32;
  c.pool = &pool;
  Product expected(c);
  expected.launch();
  const auto executable = expected.executable();
  ASSERT_TRUE(executable.ok());
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      Product own(c);
      std::vector<uint8_t> workspace(workspace_bytes(**executable) + 64);
      const auto address = reinterpret_cast<uintptr_t>(workspace.data());
      for (int round = 0; round < 5; ++round) {
        launch(**executable, own.operands(), workspace.data() + (64 - address % 64) % 64);
        own.expect_exact();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace deepgemm::cpu
