// The worked examples of docs/formats.md: literal words in, weights out, and the same words back.
// They are computed by hand, so that an error of packing order cannot cancel out between both
// directions.
#include <gtest/gtest.h>

#include <cmath>

#include "layout/checkpoint_testing.hpp"

namespace deepgemm::layout {
namespace {

using Words = std::vector<uint32_t>;
using Halves = std::vector<uint16_t>;
using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr uint16_t kHalf = 0x3800;  // FP16 codes of the scales in the examples
constexpr uint16_t kOne = 0x3C00;
constexpr uint16_t kTwo = 0x4000;

void expect_exported_bytes(const QuantizedWeights& weights, const TensorBuffers& original) {
  TensorBuffers copy(original.declaration);
  const auto done = export_tensors(weights, copy.view());
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(TensorBuffers::get<uint8_t>(copy.weight), TensorBuffers::get<uint8_t>(original.weight));
  EXPECT_EQ(TensorBuffers::get<uint8_t>(copy.scales), TensorBuffers::get<uint8_t>(original.scales));
  if (copy.declaration.zeros) {
    EXPECT_EQ(TensorBuffers::get<uint8_t>(copy.zeros), TensorBuffers::get<uint8_t>(original.zeros));
  }
  EXPECT_TRUE(copy.guards_untouched());
}

TEST(AwqGemmExample, ReadsAndWritesTheDocumentedWords) {
  TensorBuffers t({.format = WEIGHT_FORMAT_AWQ_GEMM, .k = 2, .n = 8, .group_size = 2});
  TensorBuffers::put(t.weight, Words{0x75316420, 0xFDB9ECA8});
  TensorBuffers::put(t.zeros, Words{0x02461357});
  TensorBuffers::put(t.scales, Halves{kOne, kTwo, kHalf, kOne, kOne, kOne, kOne, kHalf});
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.precision, PRECISION_INT4_AWQ);
  EXPECT_EQ(w.codes, (Bytes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(w.zeros, (Bytes{7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(weight_value(w, 0, 0), -7.0);
  EXPECT_EQ(weight_value(w, 0, 1), -10.0);  // 2 * (1 - 6)
  EXPECT_EQ(weight_value(w, 1, 2), 2.5);    // 0.5 * (10 - 5)
  EXPECT_EQ(weight_value(w, 1, 7), 7.5);    // 0.5 * (15 - 0)
  expect_exported_bytes(w, t);
}

TEST(AwqGemm, PutsColumnJIntoNibble04152637) {
  const int nibble_of_column[] = {0, 4, 1, 5, 2, 6, 3, 7};
  for (int column = 0; column < 8; ++column) {
    TensorBuffers t({.format = WEIGHT_FORMAT_AWQ_GEMM, .k = 1, .n = 16, .group_size = 1});
    TensorBuffers::put(t.weight, Words{0, 0xFu << (4 * nibble_of_column[column])});
    TensorBuffers::put(t.zeros, Words{0x5u << (4 * nibble_of_column[column]), 0});
    TensorBuffers::put(t.scales, Halves(16, kOne));
    const QuantizedWeights w = imported(t);
    for (int n = 0; n < 16; ++n) {
      EXPECT_EQ(w.codes[static_cast<size_t>(n)], n == 8 + column ? 15 : 0);
      EXPECT_EQ(w.zeros[static_cast<size_t>(n)], n == column ? 5 : 0);
    }
  }
}

TEST(AwqGemvExample, ReadsAndWritesTheDocumentedWords) {
  // Two groups of 32 rows; 2 zero points need one word, rounded up to four for groups of 32.
  TensorBuffers t({.format = WEIGHT_FORMAT_AWQ_GEMV, .k = 64, .n = 2, .group_size = 32});
  Words words(16, 0x88888888);
  words[0] = 0x76543210;  // column 0, rows 0 ... 7
  words[4] = 0xFEDCBA98;  // column 0, rows 32 ... 39
  words[8] = 0x0000000F;  // column 1, row 0
  TensorBuffers::put(t.weight, words);
  TensorBuffers::put(t.zeros, Words{0x00000018, 0, 0, 0, 0x00000008, 0, 0, 0});
  Halves scales(64, 0);
  scales[0] = kOne;   // column 0, group 0
  scales[1] = kTwo;   // column 0, group 1
  scales[32] = kOne;  // column 1, group 0
  scales[33] = kHalf;
  TensorBuffers::put(t.scales, scales);
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(weight_value(w, 3, 0), -5.0);   // 3 - 8
  EXPECT_EQ(weight_value(w, 33, 0), 16.0);  // 2 * (9 - 1)
  EXPECT_EQ(weight_value(w, 0, 1), 7.0);    // 15 - 8
  EXPECT_EQ(weight_value(w, 40, 1), 4.0);   // 0.5 * (8 - 0)
  expect_exported_bytes(w, t);
}

TEST(GptqV1Example, StoresTheZeroPointLessOne) {
  TensorBuffers t({.format = WEIGHT_FORMAT_GPTQ_V1, .k = 8, .n = 8, .group_size = 8});
  TensorBuffers::put(t.weight, Words{0x76543210, 0xFEDCBA98, 0, 0, 0, 0, 0, 0xF0000000});
  TensorBuffers::put(t.zeros, Words{0xF6543217});
  TensorBuffers::put(t.scales, Halves{kOne, kTwo, kOne, kOne, kOne, kOne, kOne, kHalf});
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.precision, PRECISION_INT4_GPTQ);
  EXPECT_EQ(w.zeros, (Bytes{8, 2, 3, 4, 5, 6, 7, 0}));  // the stored 15 wraps: 15 + 1 = 0 modulo 16
  EXPECT_EQ(weight_value(w, 0, 0), -8.0);
  EXPECT_EQ(weight_value(w, 7, 0), -1.0);
  EXPECT_EQ(weight_value(w, 2, 1), 16.0);  // 2 * (10 - 2)
  EXPECT_EQ(weight_value(w, 7, 7), 7.5);   // 0.5 * (15 - 0)
  expect_exported_bytes(w, t);
}

TEST(GptqV2Example, StoresTheZeroPointAsItIs) {
  TensorBuffers t({.format = WEIGHT_FORMAT_GPTQ_V2, .k = 8, .n = 8, .group_size = 8});
  TensorBuffers::put(t.weight, Words{0x76543210, 0xFEDCBA98, 0, 0, 0, 0, 0, 0xF0000000});
  TensorBuffers::put(t.zeros, Words{0x07654328});
  TensorBuffers::put(t.scales, Halves{kOne, kTwo, kOne, kOne, kOne, kOne, kOne, kHalf});
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.zeros, (Bytes{8, 2, 3, 4, 5, 6, 7, 0}));
  EXPECT_EQ(weight_value(w, 2, 1), 16.0);
  expect_exported_bytes(w, t);

  // The same weights as version 1: only the zero points change.
  Declaration v1 = t.declaration;
  v1.format = WEIGHT_FORMAT_GPTQ_V1;
  TensorBuffers converted(v1);
  ASSERT_TRUE(export_tensors(w, converted.view()).ok());
  EXPECT_EQ(converted.weight, t.weight);
  EXPECT_EQ(TensorBuffers::get<uint32_t>(converted.zeros), (Words{0xF6543217}));
}

TEST(GptqSymmetric, StoresSevenOrEight) {
  for (const auto& [format, bits, word] : {std::tuple{WEIGHT_FORMAT_GPTQ_V1, 4, 0x77777777u},
                                           {WEIGHT_FORMAT_GPTQ_V2, 4, 0x88888888u},
                                           {WEIGHT_FORMAT_GPTQ_V1, 8, 0x7F7F7F7Fu},
                                           {WEIGHT_FORMAT_GPTQ_V2, 8, 0x80808080u}}) {
    TensorBuffers t({.format = format, .k = 8, .n = 32 / bits, .bits = bits, .group_size = 8});
    TensorBuffers::put(t.zeros, Words{word});
    TensorBuffers::put(t.scales, Halves(static_cast<size_t>(32 / bits), kOne));
    const QuantizedWeights w = imported(t);
    EXPECT_EQ(w.zeros, Bytes(static_cast<size_t>(32 / bits), bits == 4 ? 8 : 128));
    EXPECT_EQ(suspicious_zeros(w), "");
  }
}

TEST(Gptq8BitExample, PutsFourRowsIntoAWord) {
  TensorBuffers t({.format = WEIGHT_FORMAT_GPTQ_V1, .k = 5, .n = 2, .bits = 8, .group_size = 4});
  TensorBuffers::put(t.weight, Words{0x03020100, 0xFF807F01, 0x00000009, 0x000000AA});
  TensorBuffers::put(t.zeros, Words{0x0000007F, 0x0000FF00});  // groups 0 and 1, columns 0 and 1
  TensorBuffers::put(t.scales, Halves{kOne, kTwo, kOne, kHalf});
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.precision, PRECISION_INT8);
  EXPECT_EQ(w.codes, (Bytes{0, 1, 1, 127, 2, 128, 3, 255, 9, 170}));
  EXPECT_EQ(w.zeros, (Bytes{128, 1, 1, 0}));
  EXPECT_EQ(weight_value(w, 3, 1), 508.0);  // 2 * (255 - 1)
  EXPECT_EQ(weight_value(w, 4, 1), 85.0);   // 0.5 * (170 - 0)
  expect_exported_bytes(w, t);
}

TEST(GptqActOrderExample, TakesTheGroupOfEachRowFromGIdx) {
  TensorBuffers t(
      {.format = WEIGHT_FORMAT_GPTQ_V2, .k = 8, .n = 1, .group_size = 4, .g_idx = true});
  TensorBuffers::put(t.weight, Words{0x99999999});
  TensorBuffers::put(t.zeros, Words{0x00000008, 0x00000007});
  TensorBuffers::put(t.scales, Halves{kOne, kTwo});
  const std::vector<int32_t> order = {0, 1, 1, 0, 0, 1, 0, 1};
  std::copy(order.begin(), order.end(), t.g_idx.begin());
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.g_idx, order);
  EXPECT_EQ(weight_value(w, 0, 0), 1.0);  // 9 - 8
  EXPECT_EQ(weight_value(w, 1, 0), 4.0);  // 2 * (9 - 7)
  expect_exported_bytes(w, t);
}

TEST(CompressedTensorsExample, ReadsAndWritesTheDocumentedWords) {
  TensorBuffers t({.format = WEIGHT_FORMAT_COMPRESSED_TENSORS, .k = 10, .n = 2, .group_size = 8});
  // Column 0: signed codes -8 ... 1; column 1: all 7. Stored with 8 added.
  TensorBuffers::put(t.weight, Words{0x76543210, 0x00000098, 0xFFFFFFFF, 0x000000FF});
  TensorBuffers::put(t.zeros, Words{0x00000058, 0x0000000F});     // [1 word of columns][2 groups]
  TensorBuffers::put(t.scales, Halves{kOne, kTwo, kHalf, kOne});  // [column][group]
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.precision, PRECISION_INT4);
  EXPECT_EQ(w.zeros, (Bytes{8, 5, 15, 0}));  // [group][column]; signed: 0, -3, 7, -8
  EXPECT_EQ(weight_value(w, 0, 0), -8.0);    // 1 * (-8 - 0)
  EXPECT_EQ(weight_value(w, 9, 0), -12.0);   // 2 * (1 - 7)
  EXPECT_EQ(weight_value(w, 0, 1), 5.0);     // 0.5 * (7 - -3)
  EXPECT_EQ(weight_value(w, 9, 1), 15.0);    // 1 * (7 - -8)
  expect_exported_bytes(w, t);
}

TEST(CompressedTensors8BitExample, IsSymmetricWithoutZeroPoints) {
  TensorBuffers t({.format = WEIGHT_FORMAT_COMPRESSED_TENSORS,
                   .k = 3,
                   .n = 2,
                   .bits = 8,
                   .group_size = -1,
                   .zeros = false,
                   .scale_precision = PRECISION_BF16});
  TensorBuffers::put(t.weight, Words{0x0081807F, 0x00FF8000});
  TensorBuffers::put(t.scales, Halves{0x3F80, 0x4000});  // BF16: 1 and 2
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.scale_precision, PRECISION_BF16);
  EXPECT_EQ(weight_value(w, 0, 0), -1.0);
  EXPECT_EQ(weight_value(w, 1, 0), 0.0);
  EXPECT_EQ(weight_value(w, 2, 0), 1.0);
  EXPECT_EQ(weight_value(w, 0, 1), -256.0);
  EXPECT_EQ(weight_value(w, 2, 1), 254.0);
  expect_exported_bytes(w, t);
}

TEST(Fp8BlockExample, ScalesBlocksOf128By128) {
  TensorBuffers t({.format = WEIGHT_FORMAT_FP8_BLOCK,
                   .k = 130,
                   .n = 129,
                   .bits = 8,
                   .group_size = 128,
                   .zeros = false});
  Bytes codes(130 * 129, 0x38);  // 1.0
  codes[129] = 0xB8;             // column 0, row 129: -1.0
  codes[128 * 130 + 2] = 0x7E;   // column 128, row 2: 448
  TensorBuffers::put(t.weight, codes);
  TensorBuffers::put(t.scales, Floats{1.0f, 2.0f, 0.25f, 3.0f});  // [block of N][block of K]
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.precision, PRECISION_FP8_E4M3);
  EXPECT_EQ(w.scales, (Floats{1.0f, 0.25f, 2.0f, 3.0f}));  // [block of K][block of N]
  EXPECT_EQ(weight_value(w, 129, 0), -2.0);
  EXPECT_EQ(weight_value(w, 2, 128), 112.0);
  EXPECT_EQ(weight_value(w, 128, 128), 3.0);
  expect_exported_bytes(w, t);
}

TEST(Int8ChannelExample, ScalesEachColumn) {
  TensorBuffers t({.format = WEIGHT_FORMAT_INT8_CHANNEL,
                   .k = 3,
                   .n = 2,
                   .bits = 8,
                   .group_size = -1,
                   .zeros = false});
  TensorBuffers::put(t.weight, Bytes{0xFF, 0x00, 0x7F, 0x80, 0x01, 0x02});
  TensorBuffers::put(t.scales, Floats{0.5f, 2.0f});
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(weight_value(w, 0, 0), -0.5);
  EXPECT_EQ(weight_value(w, 2, 0), 63.5);
  EXPECT_EQ(weight_value(w, 0, 1), -256.0);
  EXPECT_EQ(weight_value(w, 2, 1), 4.0);
  expect_exported_bytes(w, t);
}

}  // namespace
}  // namespace deepgemm::layout
