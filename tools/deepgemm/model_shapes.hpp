// The linear layers of a model, from its config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::cli {

// y = x W^T with W [n][k], as one of several ranks has it.
struct ModelLinear {
  std::string name;  // "qkv", "o", "gate_up", "down", "gate", "up", "q_a_kv_a", "lm_head", ...
  int64_t n = 0, k = 0;
  gemm_role_t role = GEMM_ROLE_DENSE_PROJECTION;
  bool swiglu = false;  // gate and up in one: may be launched with the activation
};

struct ModelShapes {
  std::string model_type;
  std::string dtype;         // of the weights: "bfloat16"; empty: not stated
  std::string quantization;  // quant_method of the weights; empty: none
  std::vector<ModelLinear> linears;
};

// Reads the fields of Hugging Face's config.json: those of Llama-like decoders (llama, mistral,
// qwen, gemma, ...), experts (mixtral, qwen_moe) and multi-head latent attention (deepseek). QKV,
// and gate and up, count as one product and as their parts. `ranks`: of tensor parallelism; columns
// of qkv, gate, up and rows of o, down are divided. FORMAT for text that is no such config, naming
// what lacks; INVALID_ARGUMENT where a size does not divide.
base::Result<ModelShapes> model_shapes(const std::string& config, int64_t ranks);

}  // namespace deepgemm::cli
