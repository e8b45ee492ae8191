#include "backend/cpu/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "backend/cpu/launch_test_support.hpp"
#include "schedule/family.hpp"

namespace deepgemm::cpu {
namespace {

using contract::PathId;

constexpr gemm_operation_t kOperations[] = {GEMM_OP_NN, GEMM_OP_NT, GEMM_OP_TN, GEMM_OP_TT};
constexpr int64_t kRagged[] = {1, 7, 17, 63, 64, 65, 127, 129};

// ---- Shapes, formats, layouts -------------------------------------------------------------------

TEST(Launch, IsExactOnSmallIntegersForEveryRaggedShape) {
  uint64_t seed = 0;
  for (const int64_t m : kRagged) {
    for (const int64_t n : kRagged) {
      for (const int64_t k : kRagged) {
        Case c;
        c.operation = kOperations[seed % 4];
        c.m = m;
        c.n = n;
        c.k = k;
        c.seed = ++seed;
        Product product(c);
        product.launch();
        product.expect_exact();
      }
    }
  }
}

struct FormatCase {
  PathId path;
  gemm_precision_t a, b, c;
};
constexpr FormatCase kFormats[] = {
    {PathId::kFp64, PRECISION_FP64, PRECISION_FP64, PRECISION_FP64},
    {PathId::kFp32Acc64, PRECISION_FP32, PRECISION_FP32, PRECISION_FP32},
    {PathId::kFp32, PRECISION_FP32, PRECISION_FP32, PRECISION_FP32},
    {PathId::kFp32, PRECISION_FP16, PRECISION_FP32, PRECISION_BF16},
    {PathId::kFp16, PRECISION_FP16, PRECISION_FP16, PRECISION_FP16},
    {PathId::kFp16, PRECISION_FP16, PRECISION_FP16, PRECISION_FP32},
    {PathId::kBf16, PRECISION_BF16, PRECISION_BF16, PRECISION_BF16},
    {PathId::kFp8, PRECISION_FP8_E4M3, PRECISION_FP8_E4M3, PRECISION_FP16},
    {PathId::kFp8, PRECISION_FP8_E5M2, PRECISION_FP8_E4M3, PRECISION_FP8_E4M3},
    {PathId::kInt8, PRECISION_INT8, PRECISION_INT8, PRECISION_FP32},
    {PathId::kInt8, PRECISION_INT8, PRECISION_INT8, PRECISION_INT8},
    {PathId::kW8A16, PRECISION_FP16, PRECISION_INT8, PRECISION_FP16},
    {PathId::kW8A16, PRECISION_BF16, PRECISION_FP8_E4M3, PRECISION_BF16},
};

TEST(Launch, HandlesEveryFormatOperationAndInstructionSet) {
  uint64_t seed = 0;
  for (const FormatCase& format : kFormats) {
    for (const gemm_operation_t operation : kOperations) {
      for (const Isa isa : runnable_isas()) {
        Case c;
        c.operation = operation;
        c.path = format.path;
        c.a = format.a;
        c.b = format.b;
        c.c = format.c;
        c.m = 19;
        c.n = 71;
        c.k = 300;
        c.isa = isa;
        c.seed = ++seed;
        expect_exact(c);
        if (format.c != PRECISION_INT8) expect_bounded(c);
      }
    }
  }
}

TEST(Launch, ReadsAndWritesEveryForm) {
  uint64_t seed = 0;
  const Form inputs[] = {Form::kRows,     Form::kColumns,  Form::kPadded, Form::kScattered,
                         Form::kReversed, Form::kRepeated, Form::kBlocked};
  const Form outputs[] = {Form::kRows,      Form::kColumns,  Form::kPadded,
                          Form::kScattered, Form::kReversed, Form::kBlocked};
  for (const Form form_a : inputs) {
    for (const Form form_b : inputs) {
      for (const gemm_operation_t operation : kOperations) {
        Case c;
        c.operation = operation;
        c.form_a = form_a;
        c.form_b = form_b;
        c.form_c = outputs[seed % std::size(outputs)];
        c.a = seed % 2 == 0 ? PRECISION_FP32 : PRECISION_BF16;
        c.b = seed % 3 == 0 ? PRECISION_FP16 : PRECISION_FP32;
        c.m = 37;
        c.n = 50;
        c.k = 45;
        c.batch = 1 + static_cast<int64_t>(seed % 3);
        c.block_m = 16;
        c.block_n = 33;
        c.block_k = 20;
        c.beta = seed % 2 == 0 ? 0 : 0.5;
        c.seed = ++seed;
        expect_exact(c);
      }
    }
  }
}

TEST(Launch, AcceptsAddressesThatAreNoMultipleOfTheElement) {
  for (const FormatCase& format : kFormats) {
    Case c;
    c.path = format.path;
    c.a = format.a;
    c.b = format.b;
    c.c = format.c;
    c.misaligned = 1;
    c.beta = 1;
    c.bias = c.residual = true;
    expect_exact(c);
  }
}

TEST(Launch, TakesOneRowWithAnyStride) {
  Case c;
  c.m = 1;
  for (const Form form : {Form::kScattered, Form::kReversed, Form::kColumns}) {
    c.form_a = c.form_c = form;
    expect_exact(c);
  }
}

TEST(Launch, ObeysEveryTileSize) {
  uint64_t seed = 0;
  for (const int32_t block_m : {1, 5, 64, 200}) {
    for (const int32_t block_n : {1, 31, 32, 65, 256}) {
      for (const int32_t block_k : {1, 17, 256, 257, 1024}) {
        Case c;
        c.m = 67;
        c.n = 131;
        c.k = 523;
        c.block_m = block_m;
        c.block_n = block_n;
        c.block_k = block_k;
        c.seed = ++seed;
        expect_exact(c);
      }
    }
  }
}

// ---- Edges of the definition --------------------------------------------------------------------

TEST(Launch, EmptyProductsWriteNothingAndReadNothing) {
  for (const auto& [m, n] : {std::pair(0, 5), std::pair(5, 0), std::pair(0, 0)}) {
    Case c;
    c.m = m;
    c.n = n;
    c.batch = 2;
    Product product(c);
    product.launch();
    product.expect_guards_untouched();
  }
}

TEST(Launch, KOfZeroLeavesBetaC0AndTheEpilogue) {
  for (const double beta : {0.0, 0.5}) {
    Case c;
    c.k = 0;
    c.beta = beta;
    c.bias = true;
    c.activation = GEMM_ACTIVATION_RELU;
    expect_exact(c);
  }
}

TEST(Launch, BetaOfZeroNeverReadsC) {
  for (const int64_t m : {1, 17}) {
    for (const gemm_precision_t precision : {PRECISION_FP32, PRECISION_FP16, PRECISION_FP8_E4M3}) {
      Case c;  // C is filled with NaN
      c.m = m;
      c.n = 33;
      c.c = precision;
      expect_exact(c);
    }
  }
}

TEST(Launch, AlphaOfZeroDoesNotReadAOrB) {
  Case c;
  c.alpha = 0;
  c.beta = 1;
  c.bias = true;
  Product product(c);
  for (int64_t i = 0; i < c.m; ++i) product.a().set(0, i, 3, std::nan(""));
  product.b().set(0, 3, 3, std::numeric_limits<double>::infinity());
  product.launch();
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) ASSERT_TRUE(std::isfinite(product.result(0, i, j)));
  }
}

TEST(Launch, ANanOrInfinityStaysInItsRowAndColumn) {
  for (const Isa isa : runnable_isas()) {
    Case c;
    c.m = 20;
    c.n = 45;
    c.isa = isa;
    Product product(c);
    product.a().set(0, 19, 39, std::nan(""));  // last row, last k: next to the padding
    product.b().set(0, 0, 44, std::numeric_limits<double>::infinity());
    product.launch();
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const double value = product.result(0, i, j);
        if (i == 19) {
          ASSERT_TRUE(std::isnan(value));
        } else if (j != 44) {
          ASSERT_TRUE(std::isfinite(value)) << i << "," << j;
        } else {
          ASSERT_FALSE(std::isfinite(value)) << i;  // inf, or NaN where A is 0
        }
      }
    }
  }
}

TEST(Launch, FewerRowsThanPlannedLeaveTheOthersUntouched) {
  for (const gemm_operation_t operation : kOperations) {
    for (const Form form : {Form::kRows, Form::kBlocked, Form::kColumns}) {
      for (const int64_t rows : {0, 1, 9, 40}) {
        Case c;
        c.operation = operation;
        c.form_a = c.form_c = form;
        c.m = 40;
        c.rows = rows;
        c.batch = 2;
        c.residual = true;
        expect_exact(c);
      }
    }
  }
}

TEST(Launch, OverflowOfTheOutputFormatFollowsTheFormat) {
  for (const auto& [precision, expected] :
       {std::pair(PRECISION_FP16, std::numeric_limits<double>::infinity()),
        std::pair(PRECISION_FP8_E4M3, 448.0), std::pair(PRECISION_INT8, 127.0)}) {
    Case c;
    c.c = precision;
    c.alpha = 1e6;
    Product product(c);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t p = 0; p < c.k; ++p) product.a().set(0, i, p, 2);
    }
    for (int64_t p = 0; p < c.k; ++p) {
      for (int64_t j = 0; j < c.n; ++j) product.b().set(0, p, j, 1);
    }
    product.launch();
    EXPECT_EQ(product.result(0, 0, 0), expected);
  }
}

TEST(Launch, PartialSumsMayExceedTheRangeOfFp16) {
  Case c;
  c.path = PathId::kFp16;
  c.a = c.b = c.c = PRECISION_FP16;
  c.k = 64;
  Product product(c);
  for (int64_t p = 0; p < c.k; ++p) {
    for (int64_t i = 0; i < c.m; ++i) product.a().set(0, i, p, p < 32 ? 1000 : -1000);
    for (int64_t j = 0; j < c.n; ++j) product.b().set(0, p, j, p == 63 ? 99 : 100);
  }
  product.launch();  // sums reach 3.2 million and come back to 1000
  EXPECT_EQ(product.result(0, 3, 4), 1000);
}

TEST(Launch, KeepsSubnormalOperandsAndResults) {
  for (const Isa isa : runnable_isas()) {
    Case c;
    c.path = PathId::kFp16;
    c.a = c.b = c.c = PRECISION_FP16;
    c.k = 3;
    c.isa = isa;
    Product product(c);
    for (int64_t p = 0; p < c.k; ++p) {
      for (int64_t i = 0; i < c.m; ++i) product.a().set(0, i, p, p == 0 ? 0x1p-24 : 0);
      for (int64_t j = 0; j < c.n; ++j) product.b().set(0, p, j, 1);
    }
    product.launch();
    EXPECT_EQ(product.result(0, 0, 0), 0x1p-24);
  }
}

// ---- Epilogue -----------------------------------------------------------------------------------

TEST(Epilogue, IsExactForBiasResidualAlphaAndBeta) {
  uint64_t seed = 0;
  for (const gemm_precision_t precision : {PRECISION_FP32, PRECISION_FP16, PRECISION_BF16}) {
    for (const double alpha : {1.0, -2.0, 0.5}) {
      for (const double beta : {0.0, 1.0, -0.25}) {
        Case c;
        c.alpha = alpha;
        c.beta = beta;
        c.bias = seed % 2 == 0;
        c.residual = seed % 3 != 0;
        c.c = precision;
        c.bias_precision = c.residual_precision = precision;
        c.activation = seed % 2 == 0 ? GEMM_ACTIVATION_RELU : GEMM_ACTIVATION_NONE;
        c.batch = 2;
        c.seed = ++seed;
        expect_exact(c);
      }
    }
  }
}

TEST(Epilogue, ActivationsStayWithinTheBound) {
  for (const gemm_activation_t activation :
       {GEMM_ACTIVATION_RELU, GEMM_ACTIVATION_GELU, GEMM_ACTIVATION_GELU_TANH, GEMM_ACTIVATION_SILU,
        GEMM_ACTIVATION_SWIGLU}) {
    for (const PathId path : {PathId::kFp32, PathId::kFp32Acc64}) {
      Case c;
      c.activation = activation;
      c.path = path;
      c.n = 90;
      c.alpha = 1.5;
      c.beta = 0.75;
      c.bias = c.residual = true;
      c.block_n = 32;
      expect_bounded(c);
    }
  }
}

TEST(Epilogue, SwigluPairsGateAndUpColumnsForEveryWidth) {
  for (const int64_t half : {1, 15, 16, 17, 33, 64}) {
    for (const bool packed : {false, true}) {
      for (const int32_t block_n : {1, 32, 50, 128}) {
        Case c;
        c.activation = GEMM_ACTIVATION_SWIGLU;
        c.n = 2 * half;
        c.bias = true;
        c.block_n = block_n;
        if (packed) {
          c.path = PathId::kW4A16;
          c.b = PRECISION_INT4_AWQ;
          WeightCase weights;
          weights.n = c.n;
          weights.k = c.k;
          c.weights = random_weights(weights);
        }
        expect_bounded(c);
      }
    }
  }
}

TEST(Launch, RefusesWhatThisBackendDoesNotExecute) {
  const auto refusal = [](const Case& description, const char* words) {
    Product product(description);
    const auto made = product.executable();
    ASSERT_FALSE(made.ok()) << words;
    EXPECT_EQ(made.error().code, DEEPGEMM_ERROR_UNSUPPORTED);
    EXPECT_THAT(made.error().message, testing::HasSubstr(words));
  };
  for (const PathId path : {PathId::kTf32, PathId::kTf32x3, PathId::kTf32Bf16, PathId::kBf16x3}) {
    Case c;
    c.path = path;
    refusal(c, "tensor cores");
  }
  Case c;
  c.block_k = 0;
  refusal(c, "block_k is 0");
  c.block_k = 100000;
  refusal(c, "block_k is 100000");
  c = {};
  c.path = PathId::kInt8;
  refusal(c, "path int8");

  schedule::Choice choice;
  choice.family = schedule::find_family("simt");
  ASSERT_NE(choice.family, nullptr);
  const auto made = make_executable(Product({}).problem(), choice);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, testing::HasSubstr("simt"));
}

}  // namespace
}  // namespace deepgemm::cpu
