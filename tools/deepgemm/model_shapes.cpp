#include "deepgemm/model_shapes.hpp"

#include <nlohmann/json.hpp>

namespace deepgemm::cli {
namespace {

using Json = nlohmann::json;

// Reads numbers and remembers the first that lacks.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  bool has(const char* name) const {
    return json_.contains(name) && json_[name].is_number_integer();
  }
  int64_t number(const char* name) {
    if (!has(name) || json_[name].get<int64_t>() <= 0) {
      if (missing_.empty()) missing_ = name;
      return 1;
    }
    return json_[name].get<int64_t>();
  }
  int64_t number(const char* name, int64_t otherwise) {
    return has(name) ? json_[name].get<int64_t>() : otherwise;
  }
  int64_t first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (has(name)) return json_[name].get<int64_t>();
    }
    return 0;
  }
  std::string text(const char* name) const {
    return json_.contains(name) && json_[name].is_string() ? json_[name].get<std::string>() : "";
  }
  const std::string& missing() const { return missing_; }

 private:
  const Json& json_;
  std::string missing_;
};

// What tensor parallelism divides; remembers the first size that it does not.
class Division {
 public:
  explicit Division(int64_t ranks) : ranks_(ranks) {}
  int64_t operator()(int64_t size, const char* what) {
    if (size % ranks_ != 0 && wrong_.empty()) {
      wrong_ = fmt::format("{} is {}, which {} ranks do not divide", what, size, ranks_);
    }
    return size / ranks_;
  }
  // Key and value heads are repeated where there are more ranks.
  int64_t heads(int64_t heads, const char* what) {
    return heads >= ranks_ ? (*this)(heads, what) : 1;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const int64_t ranks_;
  std::string wrong_;
};

void add_attention(Fields& fields, Division& part, std::vector<ModelLinear>& to) {
  const int64_t hidden = fields.number("hidden_size");
  const int64_t all_heads = fields.number("num_attention_heads");
  const int64_t heads = part(all_heads, "num_attention_heads");
  if (fields.has("kv_lora_rank")) {  // multi-head latent attention
    const int64_t nope = fields.number("qk_nope_head_dim"),
                  rope = fields.number("qk_rope_head_dim");
    const int64_t value = fields.number("v_head_dim"), latent = fields.number("kv_lora_rank");
    const int64_t query = fields.number("q_lora_rank", 0);
    to.push_back({"q_a_kv_a", query + latent + rope, hidden, GEMM_ROLE_QKV_PROJECTION});
    to.push_back(
        {"q_b", heads * (nope + rope), query > 0 ? query : hidden, GEMM_ROLE_QKV_PROJECTION});
    to.push_back({"kv_b", heads * (nope + value), latent, GEMM_ROLE_QKV_PROJECTION});
    to.push_back({"o", hidden, heads * value, GEMM_ROLE_OUTPUT_PROJECTION});
    return;
  }
  const int64_t kv_heads =
      part.heads(fields.number("num_key_value_heads", all_heads), "num_key_value_heads");
  const int64_t width = fields.number("head_dim", hidden / all_heads);
  to.push_back({"qkv", (heads + 2 * kv_heads) * width, hidden, GEMM_ROLE_QKV_PROJECTION});
  to.push_back({"q", heads * width, hidden, GEMM_ROLE_QKV_PROJECTION});
  to.push_back({"kv", kv_heads * width, hidden, GEMM_ROLE_QKV_PROJECTION});
  to.push_back({"o", hidden, heads * width, GEMM_ROLE_OUTPUT_PROJECTION});
}

void add_feed_forward(const char* prefix, int64_t hidden, int64_t inner, gemm_role_t role,
                      std::vector<ModelLinear>& to) {
  to.push_back({fmt::format("{}gate_up", prefix), 2 * inner, hidden, role, true});
  to.push_back({fmt::format("{}up", prefix), inner, hidden, role});
  to.push_back({fmt::format("{}down", prefix), hidden, inner, role});
}

void add_layers(Fields& fields, Division& part, std::vector<ModelLinear>& to) {
  const int64_t hidden = fields.number("hidden_size");
  add_attention(fields, part, to);
  const int64_t experts = fields.first_of({"num_local_experts", "num_experts", "n_routed_experts"});
  const int64_t inner = fields.number("intermediate_size");
  const int64_t expert_inner = fields.number("moe_intermediate_size", inner);
  const bool only_experts = experts > 0 && !fields.has("moe_intermediate_size");
  if (!only_experts) {
    add_feed_forward("", hidden, part(inner, "intermediate_size"), GEMM_ROLE_DENSE_PROJECTION, to);
  }
  if (experts > 0) {
    to.push_back({"router", experts, hidden, GEMM_ROLE_MOE_GATE});
    add_feed_forward("expert_", hidden, part(expert_inner, "moe_intermediate_size"),
                     GEMM_ROLE_MOE_EXPERT, to);
  }
  to.push_back(
      {"lm_head", part(fields.number("vocab_size"), "vocab_size"), hidden, GEMM_ROLE_LM_HEAD});
}

}  // namespace

base::Result<ModelShapes> model_shapes(const std::string& config, int64_t ranks) {
  const Json json = Json::parse(config, nullptr, false);
  if (!json.is_object()) {
    return base::make_error(DEEPGEMM_ERROR_FORMAT, "the config is no JSON object");
  }
  // Models with several modalities keep the decoder's fields apart.
  const bool nested = json.contains("text_config") && json["text_config"].is_object();
  Fields fields(nested ? json["text_config"] : json);
  ModelShapes shapes;
  shapes.model_type = fields.text("model_type");
  shapes.dtype =
      fields.text("torch_dtype").empty() ? fields.text("dtype") : fields.text("torch_dtype");
  if (json.contains("quantization_config") && json["quantization_config"].is_object()) {
    shapes.quantization = Fields(json["quantization_config"]).text("quant_method");
  }
  Division part(ranks);
  add_layers(fields, part, shapes.linears);
  if (!fields.missing().empty()) {
    return base::make_error(DEEPGEMM_ERROR_FORMAT,
                            "the config (model_type '{}') has no positive '{}', which the sizes of "
                            "its layers need",
                            shapes.model_type, fields.missing());
  }
  if (!part.wrong().empty()) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, "--tp: {}", part.wrong());
  }
  return shapes;
}

}  // namespace deepgemm::cli
