// Import and export undo each other, for every format, group size, shard and activation order.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "layout/checkpoint_testing.hpp"

namespace deepgemm::layout {
namespace {

constexpr deepgemm_weight_format_t kFormats[] = {
    WEIGHT_FORMAT_AWQ_GEMM,
    WEIGHT_FORMAT_AWQ_GEMV,
    WEIGHT_FORMAT_GPTQ_V1,
    WEIGHT_FORMAT_GPTQ_V2,
    WEIGHT_FORMAT_FP8_BLOCK,
    WEIGHT_FORMAT_INT8_CHANNEL,
    WEIGHT_FORMAT_COMPRESSED_TENSORS,
};

bool has_groups(deepgemm_weight_format_t format) {
  return format != WEIGHT_FORMAT_FP8_BLOCK && format != WEIGHT_FORMAT_INT8_CHANNEL;
}

bool has_act_order(deepgemm_weight_format_t format) {
  return format == WEIGHT_FORMAT_GPTQ_V1 || format == WEIGHT_FORMAT_GPTQ_V2 ||
         format == WEIGHT_FORMAT_COMPRESSED_TENSORS;
}

Declaration any_declaration(deepgemm_weight_format_t format) {
  Declaration d;
  d.format = format;
  d.k = *rc::gen::inRange<int64_t>(1, 200);
  d.n = *rc::gen::inRange<int64_t>(1, 40);
  d.zeros = has_groups(format) && *rc::gen::arbitrary<bool>();
  d.shard_offset = *rc::gen::inRange<int64_t>(0, 1000);
  d.scale_precision = *rc::gen::element(PRECISION_FP16, PRECISION_BF16, PRECISION_FP32);
  d.group_size = *rc::gen::element(-1, 1, 3, 16, 32, 48, 64, 128, 300);
  if (format == WEIGHT_FORMAT_AWQ_GEMM) d.n = 8 * div_up(d.n, 8);
  if (format == WEIGHT_FORMAT_AWQ_GEMV) {
    d.k = 8 * div_up(d.k, 8);
    d.group_size = *rc::gen::element(32, 64, 128, 300);
  }
  if (format == WEIGHT_FORMAT_FP8_BLOCK) {
    d.group_size = 128;
    d.n = *rc::gen::inRange<int64_t>(1, 300);
  }
  if (format == WEIGHT_FORMAT_INT8_CHANNEL) d.group_size = -1;
  if (!has_groups(format)) d.bits = 8;
  if (has_act_order(format)) {
    d.bits = *rc::gen::element(4, 8);
    d.g_idx = *rc::gen::arbitrary<bool>();
    if (d.g_idx) d.groups = d.group_size == -1 ? 1 : *rc::gen::inRange<int64_t>(1, 9);
  }
  return d;
}

gemm_precision_t precision_of(const Declaration& d) {
  if (d.format == WEIGHT_FORMAT_FP8_BLOCK) return PRECISION_FP8_E4M3;
  if (d.bits == 8) return PRECISION_INT8;
  if (d.format == WEIGHT_FORMAT_COMPRESSED_TENSORS) return PRECISION_INT4;
  return d.format == WEIGHT_FORMAT_GPTQ_V1 || d.format == WEIGHT_FORMAT_GPTQ_V2
             ? PRECISION_INT4_GPTQ
             : PRECISION_INT4_AWQ;
}

QuantizedWeights random_weights(const Declaration& d, std::mt19937& random) {
  std::uniform_int_distribution<int> code(0, d.bits == 4 ? 15 : 255);
  std::uniform_real_distribution<double> scale(0.0, 4.0);
  const int64_t groups = d.group_count();
  QuantizedWeights w;
  w.k = d.k;
  w.n = d.n;
  w.precision = precision_of(d);
  w.group_size = d.group_size == -1 ? d.k : d.group_size;
  w.block_n = d.format == WEIGHT_FORMAT_FP8_BLOCK ? 128 : 1;
  w.group_offset = d.g_idx || d.group_size == -1 ? 0 : d.shard_offset % d.group_size;
  w.scale_precision = d.scale_precision;
  for (int64_t i = 0; i < d.k * d.n; ++i) w.codes.push_back(static_cast<uint8_t>(code(random)));
  for (int64_t i = 0; i < groups * div_up(d.n, w.block_n); ++i) {
    w.scales.push_back(static_cast<float>(base::round_to(d.scale_precision, scale(random))));
  }
  for (int64_t i = 0; d.zeros && i < groups * d.n; ++i) {
    w.zeros.push_back(static_cast<uint8_t>(code(random)));
  }
  if (!d.g_idx) return w;
  std::uniform_int_distribution<int32_t> group(0, static_cast<int32_t>(groups) - 1);
  const int64_t offset = d.group_size == -1 ? 0 : d.shard_offset % w.group_size;
  bool plain = groups == div_up(d.k + offset, w.group_size);
  for (int64_t k = 0; k < d.k; ++k) {
    w.g_idx.push_back(group(random));
    plain = plain && w.g_idx.back() == (k + offset) / w.group_size;
  }
  if (plain) {  // says nothing: the importer drops it
    w.g_idx.clear();
    w.group_offset = offset;
  }
  return w;
}

TEST(Checkpoint, ImportOfAnExportGivesTheSameWeights) {
  for (const auto format : kFormats) {
    EXPECT_TRUE(rc::check([format] {
      const Declaration d = any_declaration(format);
      std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
      const QuantizedWeights weights = random_weights(d, random);
      TensorBuffers tensors(d);
      const auto done = export_tensors(weights, tensors.view());
      if (!done.ok()) RC_FAIL(done.error().message);
      RC_ASSERT(tensors.guards_untouched());
      const auto back = import_tensors(tensors.view());
      if (!back.ok()) RC_FAIL(back.error().message);
      RC_ASSERT(*back == weights);
    })) << "format "
        << static_cast<int>(format);
  }
}

// Sizes for which the format has no padding, so that every bit of its tensors has a meaning.
Declaration any_unpadded_declaration(deepgemm_weight_format_t format) {
  Declaration d = any_declaration(format);
  d.n = 8 * div_up(d.n, 8);
  d.k = 8 * div_up(d.k, 8);
  if (format == WEIGHT_FORMAT_AWQ_GEMV) {
    d.k = 1024;
    d.shard_offset = 0;
    d.group_size = *rc::gen::element(32, 64, 128);
  }
  return d;
}

TEST(Checkpoint, ExportOfAnImportGivesTheSameBytes) {
  for (const auto format : kFormats) {
    EXPECT_TRUE(rc::check([format] {
      const Declaration d = any_unpadded_declaration(format);
      std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
      std::uniform_int_distribution<int> byte(0, 255);
      TensorBuffers given(d);
      for (auto* buffer : {&given.weight, &given.zeros}) {
        for (size_t i = 0; i + TensorBuffers::kGuard < buffer->size(); ++i) {
          (*buffer)[i] = static_cast<uint8_t>(byte(random));
        }
      }
      // Every finite scale that is not negative, subnormals included.
      const int size = d.scale_precision == PRECISION_FP32 ? 4 : 2;
      const uint32_t limit = d.scale_precision == PRECISION_FP16   ? 0x7BFF
                             : d.scale_precision == PRECISION_BF16 ? 0x7F7F
                                                                   : 0x7F7FFFFF;
      std::uniform_int_distribution<uint32_t> scale(0, limit);
      const auto scale_bytes = given.scales.size() - TensorBuffers::kGuard;
      for (size_t i = 0; i < scale_bytes; i += static_cast<size_t>(size)) {
        const uint32_t bits = scale(random);
        std::memcpy(given.scales.data() + i, &bits, static_cast<size_t>(size));
      }
      std::uniform_int_distribution<int32_t> group(0, static_cast<int32_t>(d.group_count()) - 1);
      for (int64_t k = 0; d.g_idx && k < d.k; ++k)
        given.g_idx[static_cast<size_t>(k)] = group(random);

      const auto weights = import_tensors(given.view());
      if (!weights.ok()) RC_FAIL(weights.error().message);
      TensorBuffers back(d);
      if (!d.zeros) back.zeros = given.zeros;
      if (!d.g_idx) back.g_idx = given.g_idx;
      const auto done = export_tensors(*weights, back.view());
      if (!done.ok()) RC_FAIL(done.error().message);
      RC_ASSERT(back == given);
    })) << "format "
        << static_cast<int>(format);
  }
}

// Padding may hold anything: it is not read, and comes back as zero.
TEST(Checkpoint, IgnoresThePaddingOfTheLastWord) {
  TensorBuffers t({.format = WEIGHT_FORMAT_GPTQ_V2, .k = 9, .n = 1, .group_size = -1});
  TensorBuffers::put(t.weight, std::vector<uint32_t>{0x76543210, 0xABCDEFA5});
  TensorBuffers::put(t.zeros, std::vector<uint32_t>{0xFFFFFFF4});
  TensorBuffers::put(t.scales, std::vector<uint16_t>{0x3C00});
  const QuantizedWeights w = imported(t);
  EXPECT_EQ(w.codes.back(), 5);
  TensorBuffers back(t.declaration);
  ASSERT_TRUE(export_tensors(w, back.view()).ok());
  EXPECT_EQ(TensorBuffers::get<uint32_t>(back.weight), (std::vector<uint32_t>{0x76543210, 0x5}));
  EXPECT_EQ(TensorBuffers::get<uint32_t>(back.zeros), (std::vector<uint32_t>{0x4}));
}

TEST(Checkpoint, SymmetricWeightsFillAZeroTensorWithTheMiddle) {
  const Declaration without{
      .format = WEIGHT_FORMAT_COMPRESSED_TENSORS, .k = 8, .n = 8, .zeros = false};
  std::mt19937 random(1);
  Declaration exact = without;
  exact.scale_precision = PRECISION_FP16;
  const QuantizedWeights w = random_weights(exact, random);
  Declaration v1 = without;
  v1.format = WEIGHT_FORMAT_GPTQ_V1;
  v1.zeros = true;
  TensorBuffers t(v1);
  ASSERT_TRUE(export_tensors(w, t.view()).ok());
  EXPECT_EQ(TensorBuffers::get<uint32_t>(t.zeros), (std::vector<uint32_t>{0x77777777}));
}

TEST(Checkpoint, AcceptsEmptyMatrices) {
  for (const auto format : kFormats) {
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{0, 8}, {128, 0}, {0, 0}}) {
      Declaration d{.format = format, .k = k, .n = n, .shard_offset = 5};
      if (!has_groups(format)) d.bits = 8;
      deepgemm_weight_tensors_t tensors = TensorBuffers(d).view();
      tensors.weight = tensors.scales = tensors.zeros = nullptr;
      tensors.weight_bytes = tensors.scales_bytes = tensors.zeros_bytes = 0;
      tensors.group_size = 0;
      const auto weights = import_tensors(tensors);
      ASSERT_TRUE(weights.ok()) << weights.error().message;
      EXPECT_TRUE(weights->codes.empty());
      EXPECT_TRUE(export_tensors(*weights, tensors).ok());
    }
  }
}

// ---- Shards
// ------------------------------------------------------------------------------------------

// Copies blocks of `bytes` from rows of a matrix: columns [first, last) of `cols`, rows [top,
// bottom).
std::vector<uint8_t> cut(const std::vector<uint8_t>& matrix, int64_t bytes, int64_t cols,
                         int64_t top, int64_t bottom, int64_t first, int64_t last) {
  std::vector<uint8_t> result;
  for (int64_t r = top; r < bottom; ++r) {
    const auto row = matrix.begin() + r * cols * bytes;
    result.insert(result.end(), row + first * bytes, row + last * bytes);
  }
  result.resize(result.size() + TensorBuffers::kGuard, TensorBuffers::kFill);
  return result;
}

// Rows k0 ... k1 - 1 of 4-bit or FP8 weights with FP16 or FP32 scales, as a sharded checkpoint has
// them.
TensorBuffers shard(const TensorBuffers& whole, int64_t k0, int64_t k1) {
  Declaration d = whole.declaration;
  const int64_t groups = whole.declaration.group_count();
  const int64_t g0 = k0 / d.group_size;
  const int64_t g1 = div_up(k1, d.group_size);
  d.k = k1 - k0;
  d.shard_offset = k0;
  TensorBuffers result(d);
  switch (d.format) {
    case WEIGHT_FORMAT_AWQ_GEMM:
      result.weight = cut(whole.weight, 4, d.n / 8, k0, k1, 0, d.n / 8);
      result.zeros = cut(whole.zeros, 4, d.n / 8, g0, g1, 0, d.n / 8);
      result.scales = cut(whole.scales, 2, d.n, g0, g1, 0, d.n);
      break;
    case WEIGHT_FORMAT_GPTQ_V1:
    case WEIGHT_FORMAT_GPTQ_V2:
      result.weight = cut(whole.weight, 4, d.n, k0 / 8, k1 / 8, 0, d.n);
      result.zeros = cut(whole.zeros, 4, d.n / 8, g0, g1, 0, d.n / 8);
      result.scales = cut(whole.scales, 2, d.n, g0, g1, 0, d.n);
      break;
    case WEIGHT_FORMAT_COMPRESSED_TENSORS:
      result.weight = cut(whole.weight, 4, whole.declaration.k / 8, 0, d.n, k0 / 8, k1 / 8);
      result.zeros = cut(whole.zeros, 4, groups, 0, d.n / 8, g0, g1);
      result.scales = cut(whole.scales, 2, groups, 0, d.n, g0, g1);
      break;
    default:  // FP8 blocks
      result.weight = cut(whole.weight, 1, whole.declaration.k, 0, d.n, k0, k1);
      result.scales = cut(whole.scales, 4, groups, 0, div_up(d.n, 128), g0, g1);
  }
  return result;
}

// y = x * W in double; the test values are such that every sum is exact.
std::vector<double> product(const std::vector<double>& x, int64_t first,
                            const QuantizedWeights& w) {
  std::vector<double> y(static_cast<size_t>(w.n), 0.0);
  for (int64_t k = 0; k < w.k; ++k) {
    for (int64_t n = 0; n < w.n; ++n) {
      y[static_cast<size_t>(n)] += x[static_cast<size_t>(first + k)] * weight_value(w, k, n);
    }
  }
  return y;
}

void expect_shards_to_sum_up(const QuantizedWeights& whole, const QuantizedWeights& one,
                             const QuantizedWeights& two) {
  ASSERT_EQ(one.k + two.k, whole.k);
  for (int64_t n = 0; n < whole.n; ++n) {
    for (int64_t k = 0; k < one.k; ++k)
      ASSERT_EQ(weight_value(one, k, n), weight_value(whole, k, n));
    for (int64_t k = 0; k < two.k; ++k) {
      ASSERT_EQ(weight_value(two, k, n), weight_value(whole, one.k + k, n)) << k << " " << n;
    }
  }
  std::vector<double> x;
  for (int64_t k = 0; k < whole.k; ++k) x.push_back(static_cast<double>(k * 7 % 15 - 7));
  std::vector<double> sum = product(x, 0, one);
  const std::vector<double> rest = product(x, one.k, two);
  for (size_t n = 0; n < sum.size(); ++n) sum[n] += rest[n];
  EXPECT_EQ(sum, product(x, 0, whole));
}

// Codes that are small numbers and scales of few bits keep sums exact.
QuantizedWeights exact_weights(const Declaration& d) {
  std::mt19937 random(17);
  Declaration with_precision = d;
  with_precision.scale_precision =
      d.format == WEIGHT_FORMAT_FP8_BLOCK ? PRECISION_FP32 : PRECISION_FP16;
  QuantizedWeights w = random_weights(with_precision, random);
  std::uniform_int_distribution<int> steps(64, 255);
  for (float& scale : w.scales) scale = static_cast<float>(steps(random)) / 128;
  if (w.precision == PRECISION_FP8_E4M3) {
    for (uint8_t& code : w.codes)
      code = static_cast<uint8_t>((code & 0x9F) | 0x20);  // 0.125 ... 15
  }
  return w;
}

TEST(Shards, ThatStartInsideAGroupSumUpToTheWhole) {
  for (const auto format : {WEIGHT_FORMAT_AWQ_GEMM, WEIGHT_FORMAT_GPTQ_V1, WEIGHT_FORMAT_GPTQ_V2,
                            WEIGHT_FORMAT_COMPRESSED_TENSORS, WEIGHT_FORMAT_FP8_BLOCK}) {
    Declaration d{.format = format, .k = 464, .n = 24, .group_size = 16};
    if (format == WEIGHT_FORMAT_FP8_BLOCK) {
      d.bits = 8;
      d.group_size = 128;
      d.zeros = false;
      d.n = 130;
    }
    const QuantizedWeights whole = exact_weights(d);
    TensorBuffers tensors(d);
    ASSERT_TRUE(export_tensors(whole, tensors.view()).ok());
    for (const int64_t at : {232, 240, 8, 456}) {
      TensorBuffers first = shard(tensors, 0, at);
      TensorBuffers second = shard(tensors, at, d.k);
      const QuantizedWeights one = imported(first);
      const QuantizedWeights two = imported(second);
      EXPECT_EQ(two.group_offset, at % d.group_size);
      expect_shards_to_sum_up(whole, one, two);
    }
  }
}

TEST(Shards, OfAnActivationOrderSumUpWithAllScales) {
  const Declaration d{
      .format = WEIGHT_FORMAT_GPTQ_V1, .k = 512, .n = 8, .group_size = 128, .g_idx = true};
  QuantizedWeights whole = exact_weights(d);
  whole.g_idx.clear();
  for (int k = 0; k < 512; ++k) whole.g_idx.push_back(k / 128);
  std::mt19937 random(23);
  std::shuffle(whole.g_idx.begin(), whole.g_idx.end(), random);
  whole.group_offset = 0;
  TensorBuffers tensors(d);
  ASSERT_TRUE(export_tensors(whole, tensors.view()).ok());

  std::vector<QuantizedWeights> parts;
  for (const int64_t k0 : {0, 256}) {
    Declaration part = d;
    part.k = 256;
    part.shard_offset = k0;
    part.groups = 4;
    TensorBuffers t(part);
    t.weight = cut(tensors.weight, 4, d.n, k0 / 8, k0 / 8 + 32, 0, d.n);
    t.zeros = tensors.zeros;
    t.scales = tensors.scales;
    std::copy(tensors.g_idx.begin() + k0, tensors.g_idx.begin() + k0 + 256, t.g_idx.begin());
    parts.push_back(imported(t));
    EXPECT_EQ(parts.back().groups(), 4);
  }
  expect_shards_to_sum_up(whole, parts[0], parts[1]);
}

// ---- Groups
// ------------------------------------------------------------------------------------------

TEST(GroupSize, MinusOneEqualsK) {
  for (const auto format :
       {WEIGHT_FORMAT_AWQ_GEMM, WEIGHT_FORMAT_GPTQ_V2, WEIGHT_FORMAT_COMPRESSED_TENSORS}) {
    const Declaration whole{.format = format, .k = 72, .n = 8, .group_size = -1};
    const QuantizedWeights w = exact_weights(whole);
    TensorBuffers minus_one(whole);
    ASSERT_TRUE(export_tensors(w, minus_one.view()).ok());
    Declaration by_k = whole;
    by_k.group_size = 72;
    TensorBuffers k_rows = minus_one;
    k_rows.declaration = by_k;
    EXPECT_EQ(imported(k_rows), imported(minus_one));
    EXPECT_EQ(imported(minus_one), w);
  }
}

TEST(GroupSize, LargerThanKIsOneGroup) {
  const Declaration d{.format = WEIGHT_FORMAT_GPTQ_V2, .k = 40, .n = 8, .group_size = 128};
  const QuantizedWeights w = exact_weights(d);
  TensorBuffers t(d);
  ASSERT_TRUE(export_tensors(w, t.view()).ok());
  EXPECT_EQ(imported(t), w);
  EXPECT_EQ(w.groups(), 1);
}

TEST(GroupSize, MinusOneAllowsAGIdxOfZeros) {
  const Declaration d{
      .format = WEIGHT_FORMAT_GPTQ_V1, .k = 16, .n = 8, .group_size = -1, .g_idx = true};
  Declaration plain = d;
  plain.g_idx = false;
  const QuantizedWeights w = exact_weights(plain);
  TensorBuffers t(d);
  ASSERT_TRUE(export_tensors(w, t.view()).ok());
  EXPECT_EQ(std::count(t.g_idx.begin(), t.g_idx.begin() + 16, 0), 16);
  EXPECT_EQ(imported(t), w);  // and the importer drops it again
}

}  // namespace
}  // namespace deepgemm::layout
