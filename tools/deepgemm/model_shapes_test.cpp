#include "deepgemm/model_shapes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepgemm::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kLlama3 =
    R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8,
        "torch_dtype": "bfloat16"})";
constexpr const char* kMixtral =
    R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "vocab_size": 32000, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_local_experts": 8})";
constexpr const char* kDeepSeekV3 =
    R"({"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_attention_heads": 128,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "vocab_size": 129280, "quantization_config": {"quant_method": "fp8"}})";
constexpr const char* kSmolLm2 =
    R"({"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49152,
        "num_attention_heads": 9, "num_key_value_heads": 3})";
constexpr const char* kQwen =
    R"({"model_type": "qwen2", "hidden_size": 5120, "intermediate_size": 13824,
        "vocab_size": 152064, "num_attention_heads": 40, "num_key_value_heads": 8})";

std::pair<int64_t, int64_t> size_of(const ModelShapes& shapes, const std::string& name) {
  for (const ModelLinear& linear : shapes.linears) {
    if (linear.name == name) return {linear.n, linear.k};
  }
  return {0, 0};
}

ModelShapes shapes(const char* config, int64_t ranks = 1) {
  const auto made = model_shapes(config, ranks);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : ModelShapes{};
}

using Size = std::pair<int64_t, int64_t>;

// Sizes as in bench/shapes.
TEST(ModelShapes, AreThoseOfKnownModels) {
  const ModelShapes llama = shapes(kLlama3);
  EXPECT_EQ(llama.dtype, "bfloat16");
  EXPECT_EQ(size_of(llama, "qkv"), Size(6144, 4096));
  EXPECT_EQ(size_of(llama, "o"), Size(4096, 4096));
  EXPECT_EQ(size_of(llama, "gate_up"), Size(28672, 4096));
  EXPECT_EQ(size_of(llama, "down"), Size(4096, 14336));
  EXPECT_EQ(size_of(llama, "lm_head"), Size(128256, 4096));
  const ModelShapes mixtral = shapes(kMixtral);
  EXPECT_EQ(size_of(mixtral, "expert_up"), Size(14336, 4096));
  EXPECT_EQ(size_of(mixtral, "expert_down"), Size(4096, 14336));
  EXPECT_EQ(size_of(mixtral, "gate_up"), Size(0, 0)) << "all layers have experts";
  const ModelShapes deepseek = shapes(kDeepSeekV3);
  EXPECT_EQ(deepseek.quantization, "fp8");
  EXPECT_EQ(size_of(deepseek, "q_a_kv_a"), Size(2112, 7168));
  EXPECT_EQ(size_of(deepseek, "q_b"), Size(24576, 1536));
  EXPECT_EQ(size_of(deepseek, "o"), Size(7168, 16384));
  EXPECT_EQ(size_of(deepseek, "expert_gate_up"), Size(4096, 7168));
  EXPECT_EQ(size_of(deepseek, "expert_down"), Size(7168, 2048));
  EXPECT_EQ(size_of(shapes(kSmolLm2), "qkv"), Size(960, 576));
  EXPECT_EQ(size_of(shapes(kQwen), "gate_up"), Size(27648, 5120));
}

TEST(ModelShapes, AreDividedAmongRanks) {
  const ModelShapes part = shapes(kLlama3, 8);
  EXPECT_EQ(size_of(part, "qkv"), Size(768, 4096));
  EXPECT_EQ(size_of(part, "o"), Size(4096, 512));
  EXPECT_EQ(size_of(part, "down"), Size(4096, 1792));
  EXPECT_EQ(size_of(shapes(kLlama3, 16), "kv"), Size(128, 4096)) << "a head at least";
  const auto ragged = model_shapes(kLlama3, 3);
  ASSERT_FALSE(ragged.ok());
  EXPECT_EQ(ragged.error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ragged.error().message, HasSubstr("num_attention_heads is 32"));
}

TEST(ModelShapes, NameWhatAConfigLacks) {
  for (const char* wrong : {"", "[1]", "{", "7"})
    EXPECT_FALSE(model_shapes(wrong, 1).ok()) << wrong;
  const auto lacks = model_shapes(R"({"model_type": "mamba", "hidden_size": 4096})", 1);
  ASSERT_FALSE(lacks.ok());
  EXPECT_EQ(lacks.error().code, DEEPGEMM_ERROR_FORMAT);
  EXPECT_THAT(lacks.error().message, HasSubstr("num_attention_heads"));
  EXPECT_THAT(lacks.error().message, HasSubstr("mamba"));
  EXPECT_FALSE(model_shapes(R"({"hidden_size": -4, "num_attention_heads": 0})", 1).ok());
}

}  // namespace
}  // namespace deepgemm::cli
