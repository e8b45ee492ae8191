// import_tensors and export_tensors, for every format that checkpoint.hpp describes.
#include "layout/checkpoint.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <vector>

#include "base/formats.hpp"
#include "layout/quantized_weights.hpp"

namespace deepgemm::layout {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoint words are little-endian");

const FormatRule* find_rule(deepgemm_weight_format_t format) {
  switch (format) {
    case WEIGHT_FORMAT_AWQ_GEMM:
      return &kAwqGemm;
    case WEIGHT_FORMAT_AWQ_GEMV:
      return &kAwqGemv;
    case WEIGHT_FORMAT_GPTQ_V1:
      return &kGptqV1;
    case WEIGHT_FORMAT_GPTQ_V2:
      return &kGptqV2;
    case WEIGHT_FORMAT_COMPRESSED_TENSORS:
      return &kCompressedTensors;
    case WEIGHT_FORMAT_FP8_BLOCK:
      return &kFp8Block;
    case WEIGHT_FORMAT_INT8_CHANNEL:
      return &kInt8Channel;
    case WEIGHT_FORMAT_DENSE:
      break;
  }
  return nullptr;
}

int64_t element_bytes(gemm_precision_t precision) { return base::storage_bytes(precision, 1); }

// ---- From the declaration to a Checkpoint
// ----------------------------------------------------------

base::Result<const FormatRule*> check_declaration(const deepgemm_weight_tensors_t& t) {
  const FormatRule* rule = find_rule(t.format);
  if (rule == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "Weight format {} is no checkpoint format; give one of "
                            "WEIGHT_FORMAT_AWQ_GEMM ... WEIGHT_FORMAT_INT8_CHANNEL.",
                            static_cast<int>(t.format));
  }
  const int64_t limit = std::numeric_limits<int64_t>::max() / 64;
  if (t.in_features < 0 || t.out_features < 0 ||
      (t.out_features > 0 && t.in_features > limit / t.out_features)) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}: in_features {} x out_features {} is negative or too large.",
                            rule->name, t.in_features, t.out_features);
  }
  if (t.group_size < -1) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}: group_size is {}; give -1 for the whole K, 0 for 128, or a size.",
                            rule->name, t.group_size);
  }
  if (t.shard_offset < 0) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}: shard_offset is {}; it must be 0 or more.", rule->name,
                            t.shard_offset);
  }
  for (const int64_t reserved : t.reserved) {
    if (reserved != 0) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "{}: a reserved field is {}; zero-initialise the struct.", rule->name,
                              reserved);
    }
  }
  if (t.g_idx != nullptr && !rule->has_g_idx) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "{}: g_idx is given, but the format has no activation order; set it to NULL.", rule->name);
  }
  if (t.zeros != nullptr && (!rule->has_zeros || (t.symmetric && rule == &kCompressedTensors))) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT, "{}: zeros is given, but {}; set it to NULL.", rule->name,
        rule->has_zeros ? "symmetric is true" : "the format has no zero points");
  }
  return rule;
}

base::Result<void> choose_precision(const deepgemm_weight_tensors_t& t, Checkpoint& c) {
  const FormatRule& rule = *c.rule;
  const int default_bits = rule.precision_4bit == PRECISION_DEFAULT ? 8 : 4;
  c.bits = t.bits == 0 ? default_bits : t.bits;
  if (c.bits == 4) c.precision = rule.precision_4bit;
  if (c.bits == 8) c.precision = rule.precision_8bit;
  if ((c.bits != 4 && c.bits != 8) || c.precision == PRECISION_DEFAULT) {
    const bool both =
        rule.precision_4bit != PRECISION_DEFAULT && rule.precision_8bit != PRECISION_DEFAULT;
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "{} with {} bits is not supported; this format is read with {} bits.",
                            rule.name, t.bits,
                            both                ? "4 or 8"
                            : default_bits == 4 ? "4"
                                                : "8");
  }
  c.scale_precision =
      t.scale_precision == PRECISION_DEFAULT ? rule.scale_precision : t.scale_precision;
  if (c.scale_precision != PRECISION_FP16 && c.scale_precision != PRECISION_BF16 &&
      c.scale_precision != PRECISION_FP32) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}: scale_precision must be FP16, BF16 or FP32, not {}.", rule.name,
                            static_cast<int>(c.scale_precision));
  }
  return {};
}

base::Result<void> choose_groups(const deepgemm_weight_tensors_t& t, Checkpoint& c) {
  const int64_t whole = std::max<int64_t>(c.k, 1);
  const int64_t declared = t.group_size == -1 ? whole : t.group_size == 0 ? 128 : t.group_size;
  const int64_t fixed = c.rule->group_size == -1 ? whole : c.rule->group_size;
  if (fixed != 0 && t.group_size != 0 && declared != fixed) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "{}: group_size is {}, but the format has {}; set it to {}.", c.rule->name, t.group_size,
        c.rule->group_size == -1 ? "one scale for the whole K" : "blocks of 128",
        c.rule->group_size);
  }
  c.group_size = fixed != 0 ? fixed : declared;
  const bool one_group = c.rule->group_size == -1 || t.group_size == -1;
  c.group_offset = one_group || c.k == 0 ? 0 : t.shard_offset % c.group_size;
  c.groups = Packing::ceil_div(c.k + c.group_offset, c.group_size);
  return {};
}

// With an activation order the tensors may hold the scales of all groups of the unsharded matrix,
// or in any case those that g_idx names.
base::Result<void> count_ordered_groups(const deepgemm_weight_tensors_t& t, int64_t named,
                                        Checkpoint& c) {
  if (t.group_size == -1 && named > 1) {
    return base::make_error(
        DEEPGEMM_ERROR_FORMAT,
        "{}: group_size -1 means one group, but g_idx names group {}; give the group "
        "size of the checkpoint.",
        c.rule->name, named - 1);
  }
  c.group_offset = 0;
  c.groups = std::max(Packing::ceil_div(c.k, c.group_size), named);
  const int64_t group_bytes = c.n * element_bytes(c.scale_precision);
  if (t.scales_bytes == 0 || group_bytes == 0) return {};
  if (t.scales_bytes % group_bytes != 0 || t.scales_bytes / group_bytes < named) {
    return base::make_error(
        DEEPGEMM_ERROR_FORMAT,
        "{}: scales_bytes is {}, but g_idx names {} groups of {} bytes each; it must "
        "be a multiple of {} and at least {}.",
        c.rule->name, t.scales_bytes, named, group_bytes, group_bytes, named * group_bytes);
  }
  c.groups = t.scales_bytes / group_bytes;
  return {};
}

base::Result<void> check_size(const Checkpoint& c, const char* field, int64_t given,
                              int64_t wanted) {
  if (given == 0 || given == wanted) return {};
  return base::make_error(
      DEEPGEMM_ERROR_INVALID_ARGUMENT,
      "{}: {} is {}, but K = {}, N = {}, {} bits and {} groups of {} need {} bytes.", c.rule->name,
      field, given, c.k, c.n, c.bits, c.groups, c.group_size, wanted);
}

base::Result<void> check_buffers(const deepgemm_weight_tensors_t& t, const Checkpoint& c) {
  DEEPGEMM_TRY(check_size(c, "weight_bytes", t.weight_bytes, c.codes.bytes()));
  DEEPGEMM_TRY(check_size(c, "scales_bytes", t.scales_bytes,
                          c.scale_rows * c.scale_cols * element_bytes(c.scale_precision)));
  if (t.zeros != nullptr) {
    DEEPGEMM_TRY(check_size(c, "zeros_bytes", t.zeros_bytes, c.zeros.bytes()));
  }
  if (c.k == 0 || c.n == 0) return {};
  if (t.weight == nullptr || t.scales == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, "{}: {} is null; give the tensor.",
                            c.rule->name, t.weight == nullptr ? "weight" : "scales");
  }
  return {};
}

// `named_groups`: one more than the largest entry of g_idx, or 0 without an activation order.
base::Result<Checkpoint> describe(const deepgemm_weight_tensors_t& t, int64_t named_groups) {
  DEEPGEMM_TRY_ASSIGN(rule, check_declaration(t));
  Checkpoint c;
  c.rule = rule;
  c.k = t.in_features;
  c.n = t.out_features;
  DEEPGEMM_TRY(choose_precision(t, c));
  DEEPGEMM_TRY(choose_groups(t, c));
  if (named_groups > 0) DEEPGEMM_TRY(count_ordered_groups(t, named_groups, c));
  DEEPGEMM_TRY(rule->place(c));
  DEEPGEMM_TRY(check_buffers(t, c));
  return c;
}

// ---- Words and scales
// --------------------------------------------------------------------------------

uint32_t load_word(const void* words, int64_t index, int word_bits) {
  if (word_bits == 8) return static_cast<const uint8_t*>(words)[index];
  uint32_t word;
  std::memcpy(&word, static_cast<const char*>(words) + index * 4, sizeof(word));
  return word;
}

void merge_word(void* words, int64_t index, int word_bits, uint32_t bits) {
  if (word_bits == 8) {
    static_cast<uint8_t*>(words)[index] = static_cast<uint8_t>(bits);
    return;
  }
  const uint32_t word = load_word(words, index, word_bits) | bits;
  std::memcpy(static_cast<char*>(words) + index * 4, &word, sizeof(word));
}

// Canonical matrices are [rows][N]; a transposed one is visited as (column, row).
size_t canonical_index(bool transposed, int64_t n, int64_t row, int64_t col) {
  return static_cast<size_t>(transposed ? col * n + row : row * n + col);
}

int64_t stored_scale(const Checkpoint& c, int64_t group, int64_t block) {
  return c.scales_transposed ? block * c.scale_cols + group : group * c.scale_cols + block;
}

// Calls visit(canonical index, stored index) for every scale.
template <class Visitor>
void for_each_scale(const Checkpoint& c, Visitor visit) {
  const int64_t blocks = Packing::ceil_div(c.n, c.rule->block_n);
  for (int64_t group = 0; group < c.groups; ++group) {
    for (int64_t block = 0; block < blocks; ++block) {
      visit(static_cast<size_t>(group * blocks + block), stored_scale(c, group, block));
    }
  }
}

// ---- Import
// ------------------------------------------------------------------------------------------

void read_codes(const deepgemm_weight_tensors_t& t, const Checkpoint& c, QuantizedWeights& w) {
  const uint32_t mask = (1u << c.codes.bits) - 1;
  for_each_value(
      c.codes, c.codes_transposed, [&](int64_t row, int64_t col, int64_t word, int shift) {
        const uint32_t code = load_word(t.weight, word, c.codes.word_bits) >> shift & mask;
        w.codes[canonical_index(c.codes_transposed, c.n, row, col)] =
            static_cast<uint8_t>(code ^ c.code_flip);
      });
}

void read_zeros(const deepgemm_weight_tensors_t& t, const Checkpoint& c, QuantizedWeights& w) {
  const uint32_t mask = (1u << c.zeros.bits) - 1;
  for_each_value(
      c.zeros, c.zeros_transposed, [&](int64_t row, int64_t col, int64_t word, int shift) {
        if (c.zeros_transposed && col >= c.groups) return;  // padding of AWQ_GEMV
        const uint32_t stored = load_word(t.zeros, word, c.zeros.word_bits) >> shift & mask;
        w.zeros[canonical_index(c.zeros_transposed, c.n, row, col)] =
            static_cast<uint8_t>((stored + static_cast<uint32_t>(c.zero_bias)) & mask);
      });
}

// Leaves g_idx empty where it says no more than group_size does.
void read_g_idx(const deepgemm_weight_tensors_t& t, const Checkpoint& c, QuantizedWeights& w) {
  const int64_t offset = t.group_size == -1 ? 0 : t.shard_offset % c.group_size;
  bool plain = c.groups == Packing::ceil_div(c.k + offset, c.group_size);
  for (int64_t k = 0; k < c.k && plain; ++k) {
    plain = t.g_idx[k] == (k + offset) / c.group_size;
  }
  if (plain) {
    w.group_offset = offset;
  } else {
    w.g_idx.assign(t.g_idx, t.g_idx + c.k);
  }
}

base::Result<int64_t> count_named_groups(const deepgemm_weight_tensors_t& t) {
  if (t.g_idx == nullptr || t.in_features <= 0) return int64_t{0};
  const auto [lowest, highest] = std::minmax_element(t.g_idx, t.g_idx + t.in_features);
  if (*lowest < 0) {
    return base::make_error(DEEPGEMM_ERROR_FORMAT,
                            "g_idx[{}] is {}; group indices must be 0 or more.", lowest - t.g_idx,
                            *lowest);
  }
  return int64_t{*highest} + 1;
}

base::Result<void> allocate(const Checkpoint& c, bool with_zeros, QuantizedWeights& w) {
  try {
    w.codes.resize(static_cast<size_t>(c.k * c.n));
    w.scales.resize(static_cast<size_t>(c.groups * Packing::ceil_div(c.n, c.rule->block_n)));
    if (with_zeros) w.zeros.resize(static_cast<size_t>(c.groups * c.n));
  } catch (const std::bad_alloc&) {
    return base::make_error(DEEPGEMM_ERROR_OUT_OF_MEMORY,
                            "{}: no memory for {} x {} weights and {} groups.", c.rule->name, c.k,
                            c.n, c.groups);
  } catch (const std::length_error&) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}: {} x {} weights with {} groups are too large.", c.rule->name, c.k,
                            c.n, c.groups);
  }
  return {};
}

// ---- Export
// ------------------------------------------------------------------------------------------

base::Error cannot_hold(const FormatRule& rule, const std::string& what) {
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, "{} cannot hold these weights: {}.",
                          rule.name, what);
}

base::Result<void> check_same_matrix(const QuantizedWeights& w, const Checkpoint& c) {
  if (w.k != c.k || w.n != c.n) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "{}: the tensors are declared as K = {}, N = {}, but the weights have K = "
        "{}, N = {}; set in_features and out_features to these.",
        c.rule->name, c.k, c.n, w.k, w.n);
  }
  const bool same =
      base::is_int4(c.precision) ? base::is_int4(w.precision) : w.precision == c.precision;
  if (!same) {
    const base::FormatInfo* have = base::find_format(w.precision);
    return cannot_hold(*c.rule,
                       fmt::format("they are {}, and the tensors are declared with {} bits of {}",
                                   have == nullptr ? "of no format" : have->name, c.bits,
                                   base::find_format(c.precision)->name));
  }
  if (!w.outlier_channels.empty()) {
    return cannot_hold(*c.rule,
                       fmt::format("{} channels are kept in FP16", w.outlier_channels.size()));
  }
  if (w.group_size != c.group_size || w.block_n != c.rule->block_n) {
    return cannot_hold(
        *c.rule, fmt::format("their groups are {} x {} and not {} x {}", w.group_size, w.block_n,
                             c.group_size, c.rule->block_n));
  }
  if (w.g_idx.empty() && w.group_offset != c.group_offset) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "{}: shard_offset is {} within its group, but the weights start at {}.",
                            c.rule->name, c.group_offset, w.group_offset);
  }
  if (w.groups() != c.groups) {
    return cannot_hold(*c.rule,
                       fmt::format("they have {} groups and the tensors {}", w.groups(), c.groups));
  }
  return {};
}

base::Result<void> check_holds(const QuantizedWeights& w, const deepgemm_weight_tensors_t& t,
                               const Checkpoint& c) {
  if (!w.g_idx.empty() && t.g_idx == nullptr) {
    return cannot_hold(*c.rule, "they have an activation order, and g_idx is null");
  }
  const uint8_t middle = static_cast<uint8_t>(1 << (c.bits - 1));
  const bool symmetric = std::ranges::all_of(w.zeros, [&](uint8_t z) { return z == middle; });
  if (!symmetric && t.zeros == nullptr) {
    return cannot_hold(*c.rule,
                       "they have zero points, and the tensors have no place for them (zeros is "
                       "null, or the format is symmetric)");
  }
  for (size_t i = 0; i < w.scales.size(); ++i) {
    const double scale = static_cast<double>(w.scales[i]);
    if (base::round_to(c.scale_precision, scale) != scale) {
      return cannot_hold(*c.rule, fmt::format("scale {} is {}, which {} cannot represent", i, scale,
                                              base::find_format(c.scale_precision)->name));
    }
  }
  return {};
}

void write_codes(const QuantizedWeights& w, const deepgemm_weight_tensors_t& t,
                 const Checkpoint& c) {
  std::memset(t.weight, 0, static_cast<size_t>(c.codes.bytes()));
  for_each_value(
      c.codes, c.codes_transposed, [&](int64_t row, int64_t col, int64_t word, int shift) {
        const uint32_t code =
            w.codes[canonical_index(c.codes_transposed, c.n, row, col)] ^ uint32_t { c.code_flip };
        merge_word(t.weight, word, c.codes.word_bits, code << shift);
      });
}

void write_zeros(const QuantizedWeights& w, const deepgemm_weight_tensors_t& t,
                 const Checkpoint& c) {
  const uint32_t mask = (1u << c.bits) - 1;
  const uint32_t middle = 1u << (c.bits - 1);
  std::memset(t.zeros, 0, static_cast<size_t>(c.zeros.bytes()));
  for_each_value(
      c.zeros, c.zeros_transposed, [&](int64_t row, int64_t col, int64_t word, int shift) {
        if (c.zeros_transposed && col >= c.groups) return;
        const uint32_t zero =
            w.zeros.empty() ? middle : w.zeros[canonical_index(c.zeros_transposed, c.n, row, col)];
        merge_word(t.zeros, word, c.zeros.word_bits,
                   ((zero - static_cast<uint32_t>(c.zero_bias)) & mask) << shift);
      });
}

void write_scales(const QuantizedWeights& w, const deepgemm_weight_tensors_t& t,
                  const Checkpoint& c) {
  const int64_t bytes = c.scale_rows * c.scale_cols * element_bytes(c.scale_precision);
  std::memset(t.scales, 0, static_cast<size_t>(bytes));
  for_each_scale(c, [&](size_t canonical, int64_t stored) {
    base::encode(c.scale_precision, t.scales, stored, static_cast<double>(w.scales[canonical]));
  });
}

}  // namespace

base::Error not_a_multiple(const FormatRule& rule, const char* argument, int64_t value,
                           int64_t multiple, const char* reason) {
  const int64_t below = value / multiple * multiple;
  return base::make_error(
      DEEPGEMM_ERROR_INVALID_ARGUMENT,
      "{}: {} is {}, but must be a multiple of {} ({}); the nearest are {} and {}.", rule.name,
      argument, value, multiple, reason, below, below + multiple);
}

base::Result<QuantizedWeights> import_tensors(const deepgemm_weight_tensors_t& tensors) {
  DEEPGEMM_TRY_ASSIGN(named_groups, count_named_groups(tensors));
  DEEPGEMM_TRY_ASSIGN(c, describe(tensors, named_groups));
  QuantizedWeights w;
  w.k = c.k;
  w.n = c.n;
  w.precision = c.precision;
  w.group_size = c.group_size;
  w.block_n = c.rule->block_n;
  w.group_offset = c.group_offset;
  w.scale_precision = c.scale_precision;
  DEEPGEMM_TRY(allocate(c, tensors.zeros != nullptr, w));
  if (c.k == 0 || c.n == 0) return w;
  read_codes(tensors, c, w);
  if (tensors.zeros != nullptr) read_zeros(tensors, c, w);
  for_each_scale(c, [&](size_t canonical, int64_t stored) {
    w.scales[canonical] =
        static_cast<float>(base::decode(c.scale_precision, tensors.scales, stored));
  });
  if (tensors.g_idx != nullptr) read_g_idx(tensors, c, w);
  DEEPGEMM_TRY(validate(w));
  return w;
}

base::Result<void> export_tensors(const QuantizedWeights& weights,
                                  const deepgemm_weight_tensors_t& tensors) {
  DEEPGEMM_TRY(validate(weights));
  DEEPGEMM_TRY_ASSIGN(c, describe(tensors, weights.g_idx.empty() ? 0 : weights.groups()));
  DEEPGEMM_TRY(check_same_matrix(weights, c));
  DEEPGEMM_TRY(check_holds(weights, tensors, c));
  if (c.k == 0 || c.n == 0) return {};
  write_codes(weights, tensors, c);
  write_scales(weights, tensors, c);
  if (tensors.zeros != nullptr) write_zeros(weights, tensors, c);
  for (int64_t k = 0; k < c.k && tensors.g_idx != nullptr; ++k) {
    tensors.g_idx[k] = static_cast<int32_t>(weights.group_of(k));
  }
  return {};
}

}  // namespace deepgemm::layout
