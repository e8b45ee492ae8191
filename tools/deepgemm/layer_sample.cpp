#include "deepgemm/layer_sample.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "deepgemm/matrix_file.hpp"

namespace deepgemm::cli {
namespace {

constexpr const char* kDefaultSample = "data/sample/smollm2_layer.safetensors";

struct LinearName {
  const char* name;
  const char* block;
  const char* input;
};

constexpr LinearName kLinears[] = {
    {"q_proj", "self_attn", "attn_input"}, {"k_proj", "self_attn", "attn_input"},
    {"v_proj", "self_attn", "attn_input"}, {"o_proj", "self_attn", "o_input"},
    {"gate_proj", "mlp", "mlp_input"},     {"up_proj", "mlp", "mlp_input"},
    {"down_proj", "mlp", "down_input"},
};

std::string metadata(const io::SafetensorsContents& contents, const char* key) {
  const auto found = contents.metadata.find(key);
  return found != contents.metadata.end() ? found->second : "";
}

// The tensor whose name ends in `ending`; the number of the layer is the file's own.
base::Result<MatrixFile> find_matrix(const io::SafetensorsFile& file, const std::string& path,
                                     const std::string& ending) {
  for (const auto& [name, tensor] : file.contents().tensors) {
    if (name.ends_with(ending)) return as_matrix(tensor, path + ":" + name);
  }
  return base::make_error(DEEPGEMM_ERROR_FORMAT,
                          "{} has no tensor that ends in {}; docs/cli.md says what a sample holds",
                          path, ending);
}

void multiply(Linear& linear) {
  linear.y.assign(static_cast<size_t>(linear.tokens * linear.out), 0.0);
  for (int64_t token = 0; token < linear.tokens; ++token) {
    double* y = linear.y.data() + token * linear.out;
    for (int64_t k = 0; k < linear.in; ++k) {
      const double x = linear.x[static_cast<size_t>(token * linear.in + k)];
      const double* w = linear.w.data() + k * linear.out;
      for (int64_t n = 0; n < linear.out; ++n) y[n] += x * w[n];
    }
  }
}

void find_importance(Linear& linear) {
  linear.channel_importance.assign(static_cast<size_t>(linear.in), 0.0F);
  for (size_t i = 0; i < linear.x.size(); ++i) {
    float& largest = linear.channel_importance[i % static_cast<size_t>(linear.in)];
    largest = std::max(largest, static_cast<float>(std::abs(linear.x[i])));
  }
}

base::Result<Linear> load_linear(const io::SafetensorsFile& file, const std::string& path,
                                 const LinearName& names) {
  DEEPGEMM_TRY_ASSIGN(
      weight, find_matrix(file, path, fmt::format(".{}.{}.weight", names.block, names.name)));
  DEEPGEMM_TRY_ASSIGN(input, find_matrix(file, path, fmt::format("activations.{}", names.input)));
  if (weight.cols != input.cols) {
    return base::make_error(
        DEEPGEMM_ERROR_FORMAT,
        "{} has {} columns, but its input {} has {}; both are the input channels", weight.name,
        weight.cols, input.name, input.cols);
  }
  Linear linear;
  linear.name = names.name;
  linear.tokens = input.rows;
  linear.in = weight.cols;
  linear.out = weight.rows;
  linear.x = input.values();
  linear.w = transposed(weight.values(), weight.rows, weight.cols);
  multiply(linear);
  find_importance(linear);
  return linear;
}

}  // namespace

base::Result<std::string> find_sample(const std::string& given) {
  if (!given.empty()) return given;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  for (const std::filesystem::path& root :
       {std::filesystem::path("."), program.parent_path().parent_path()}) {
    const std::filesystem::path candidate = root / kDefaultSample;
    if (std::filesystem::is_regular_file(candidate, ignored)) return candidate.string();
  }
  return base::make_error(
      DEEPGEMM_ERROR_IO,
      "there is no {} below this directory or beside the program's; name a sample "
      "with --sample FILE",
      kDefaultSample);
}

base::Result<LayerSample> load_layer_sample(const std::string& path) {
  DEEPGEMM_TRY_ASSIGN(file, io::SafetensorsFile::open(path));
  LayerSample sample;
  sample.path = path;
  sample.model = metadata(file.contents(), "model");
  sample.layer = metadata(file.contents(), "layer");
  sample.layers_in_model = metadata(file.contents(), "layers_in_model");
  sample.text = metadata(file.contents(), "text");
  for (const LinearName& names : kLinears) {
    DEEPGEMM_TRY_ASSIGN(linear, load_linear(file, path, names));
    sample.linears.push_back(std::move(linear));
  }
  return sample;
}

}  // namespace deepgemm::cli
