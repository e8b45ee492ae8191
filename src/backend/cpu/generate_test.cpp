#include "backend/cpu/generate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <vector>

#include "backend/cpu/launch_test_support.hpp"
#include "jit/service.hpp"

namespace deepgemm::cpu {
namespace {

using testing::HasSubstr;

TEST(GeneratedSource, IsWholeAndNamesItsKernel) {
  const jit::Source source = stream_source(WordFormat::kInt4, 3, Isa::kGeneric);
  EXPECT_THAT(source.text, HasSubstr("stream<WordFormat::kInt4, 3, true>"));
  EXPECT_EQ(source.symbols, std::vector<std::string>{"deepgemm_kernel_cpu_stream"});
  ASSERT_FALSE(source.headers.empty());
  for (const jit::Header& header : source.headers) {
    EXPECT_THAT(header.text, testing::Not(HasSubstr("immintrin"))) << header.name;
    EXPECT_THAT(header.text, HasSubstr("namespace deepgemm::cpu")) << header.name;
  }
}

Case int4_case(Isa isa, int64_t m) {
  Case c;
  c.path = contract::PathId::kW4A16;
  c.isa = isa;
  c.m = m;
  c.n = 200;
  c.k = 300;
  c.a = PRECISION_FP16;
  c.b = PRECISION_INT4_AWQ;
  c.block_m = 8;
  c.block_n = 256;
  c.exact = false;
  WeightCase weights;
  weights.k = c.k;
  weights.n = c.n;
  weights.group_size = 64;
  weights.exact = false;
  c.weights = random_weights(weights);
  return c;
}

// A kernel for exactly the rows of the plan gives the bits of those compiled ahead of time, which a
// plan for more rows uses.
TEST(GeneratedKernel, GivesTheBitsOfTheKernelsAheadOfTime) {
  if (jit::process_service().compilers(jit::Language::kCpp)->compilers.empty()) {
    GTEST_SKIP() << "no C++ compiler was found at run time";
  }
  for (const Isa isa : runnable_isas()) {
    for (const int64_t m : {3, 5, 6, 7}) {
      Product generated(int4_case(isa, m));
      const auto made = generated.executable();
      ASSERT_TRUE(made.ok());
      EXPECT_THAT(kernel_note(**made), HasSubstr("compiled for"));
      generated.launch();
      generated.expect_within_bound();
      Case more = int4_case(isa, 8);
      more.rows = m;
      Product split(more);
      const auto plain = split.executable();
      ASSERT_TRUE(plain.ok());
      EXPECT_EQ(kernel_note(**plain), "");
      split.launch();
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < more.n; ++j) {
          ASSERT_EQ(generated.result(0, i, j), split.result(0, i, j)) << isa_name(isa) << " " << m;
        }
      }
    }
  }
}

TEST(GeneratedKernel, IsReplacedWithANoteWhereNothingCanBeCompiled) {
  ASSERT_EQ(setenv("DEEPGEMM_CXX", "/nonexistent/compiler", 1), 0);
  ASSERT_EQ(setenv("DEEPGEMM_CACHE_DIR", "/nonexistent/deepgemm", 1), 0);
  const ExactStream exact = make_exact_stream(WordFormat::kFp16, 7, Isa::kGeneric);
  EXPECT_EQ(exact.call, nullptr);
  EXPECT_THAT(exact.note, HasSubstr("ahead of time"));
  EXPECT_THAT(exact.note, HasSubstr("/nonexistent/compiler"));
  unsetenv("DEEPGEMM_CXX");
  unsetenv("DEEPGEMM_CACHE_DIR");
}

}  // namespace
}  // namespace deepgemm::cpu
