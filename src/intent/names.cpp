#include <algorithm>
#include <vector>

#include "intent/problem.hpp"
#include "intent/words.hpp"

namespace deepgemm::intent {
namespace {

constexpr Word kOperations[] = {
    {GEMM_OP_NN, "nn"}, {GEMM_OP_NT, "nt"}, {GEMM_OP_TN, "tn"}, {GEMM_OP_TT, "tt"}};

constexpr Word kRoles[] = {
    {GEMM_ROLE_GENERIC, "generic"},         {GEMM_ROLE_DENSE_PROJECTION, "dense"},
    {GEMM_ROLE_QKV_PROJECTION, "qkv"},      {GEMM_ROLE_OUTPUT_PROJECTION, "output"},
    {GEMM_ROLE_ATTENTION_SCORES, "scores"}, {GEMM_ROLE_MOE_GATE, "gate"},
    {GEMM_ROLE_MOE_EXPERT, "expert"},       {GEMM_ROLE_ROTARY_EMBEDDING, "rotary"},
    {GEMM_ROLE_LM_HEAD, "lm_head"},
};

constexpr Word kActivations[] = {
    {GEMM_ACTIVATION_NONE, "none"}, {GEMM_ACTIVATION_RELU, "relu"},
    {GEMM_ACTIVATION_GELU, "gelu"}, {GEMM_ACTIVATION_GELU_TANH, "gelu_tanh"},
    {GEMM_ACTIVATION_SILU, "silu"}, {GEMM_ACTIVATION_SWIGLU, "swiglu"},
};

constexpr Word kPhysicalLayouts[] = {
    {LAYOUT_ANY, "any"},
    {LAYOUT_ROW_MAJOR, "row"},
    {LAYOUT_COL_MAJOR, "col"},
    {LAYOUT_BLOCKED_16x16, "blocked16"},
    {LAYOUT_STREAMING, "streaming"},
};

constexpr Word kMemorySpaces[] = {
    {MEM_SPACE_DEFAULT, "default"}, {MEM_SPACE_L2_CACHE, "l2"}, {MEM_SPACE_HOST_PINNED, "pinned"}};

constexpr Word kAccessPatterns[] = {{ACCESS_PATTERN_DEFAULT, "default"},
                                    {ACCESS_PATTERN_STREAMING, "once"},
                                    {ACCESS_PATTERN_REUSED, "reused"}};

constexpr Word kOutliers[] = {{OUTLIER_NONE, "none"},
                              {OUTLIER_CLAMP_TO_99TH_PERCENTILE, "clamp99"},
                              {OUTLIER_FP16_CHANNEL, "fp16"}};

constexpr Word kDequant[] = {
    {DEQUANT_STRATEGY_DEFAULT, "default"},
    {DEQUANT_STRATEGY_PER_TENSOR, "tensor"},
    {DEQUANT_STRATEGY_PER_CHANNEL, "channel"},
    {DEQUANT_STRATEGY_PER_GROUP, "group"},
    {DEQUANT_STRATEGY_PER_CHANNEL_DYNAMIC, "channel_dynamic"},
    {DEQUANT_STRATEGY_BLOCK_128, "block128"},
};

constexpr Word kReproducibility[] = {{REPRODUCIBILITY_NONE, "none"},
                                     {REPRODUCIBILITY_RUN_TO_RUN, "run"},
                                     {REPRODUCIBILITY_BATCH_INVARIANT, "batch"}};

constexpr Word kPrefetch[] = {{L2_PREFETCH_DEFAULT, "default"},
                              {L2_PREFETCH_NONE, "none"},
                              {L2_PREFETCH_MODERATE, "moderate"},
                              {L2_PREFETCH_AGGRESSIVE, "aggressive"}};

constexpr Word kPrecisions[] = {
    {PRECISION_FP64, "fp64"},           {PRECISION_FP32, "fp32"},
    {PRECISION_TF32, "tf32"},           {PRECISION_FP16, "fp16"},
    {PRECISION_BF16, "bf16"},           {PRECISION_FP8_E4M3, "fp8_e4m3"},
    {PRECISION_FP8_E5M2, "fp8_e5m2"},   {PRECISION_INT8, "int8"},
    {PRECISION_INT4, "int4"},           {PRECISION_INT4_AWQ, "int4_awq"},
    {PRECISION_INT4_GPTQ, "int4_gptq"},
};

// Levenshtein distance.
size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<size_t> row(right.size() + 1);
  for (size_t j = 0; j <= right.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= right.size(); ++j) {
      const size_t above = row[j];
      const size_t replaced = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, replaced});
      diagonal = above;
    }
  }
  return row[right.size()];
}

}  // namespace

std::span<const Word> operation_words() { return kOperations; }
std::span<const Word> role_words() { return kRoles; }
std::span<const Word> activation_words() { return kActivations; }
std::span<const Word> physical_layout_words() { return kPhysicalLayouts; }
std::span<const Word> memory_space_words() { return kMemorySpaces; }
std::span<const Word> access_pattern_words() { return kAccessPatterns; }
std::span<const Word> outlier_words() { return kOutliers; }
std::span<const Word> dequant_words() { return kDequant; }
std::span<const Word> reproducibility_words() { return kReproducibility; }
std::span<const Word> prefetch_words() { return kPrefetch; }
std::span<const Word> precision_words() { return kPrecisions; }

const char* word_of(std::span<const Word> words, int value) {
  for (const Word& word : words) {
    if (word.value == value) return word.name;
  }
  return nullptr;
}

const Word* find_word(std::span<const Word> words, std::string_view name) {
  for (const Word& word : words) {
    if (name == word.name) return &word;
  }
  return nullptr;
}

std::string list_words(std::span<const Word> words) {
  std::string list;
  for (const Word& word : words) {
    if (!list.empty()) list += ", ";
    list += word.name;
  }
  return list;
}

std::string nearest_word(std::span<const Word> words, std::string_view text) {
  constexpr size_t kLongestText = 64;  // distances to longer texts say nothing
  text = text.substr(0, kLongestText);
  std::string best;
  size_t best_distance = 0;
  for (const Word& word : words) {
    const size_t distance = edit_distance(word.name, text);
    if (best.empty() || distance < best_distance) {
      best = word.name;
      best_distance = distance;
    }
  }
  return best;
}

const char* operation_name(gemm_operation_t operation) { return word_of(kOperations, operation); }
const char* role_name(gemm_role_t role) { return word_of(kRoles, role); }
const char* activation_name(gemm_activation_t activation) {
  return word_of(kActivations, activation);
}
const char* physical_layout_name(gemm_physical_layout_t layout) {
  return word_of(kPhysicalLayouts, layout);
}

}  // namespace deepgemm::intent
