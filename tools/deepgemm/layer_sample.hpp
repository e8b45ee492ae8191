// The sample that the demo runs: the linears of one decoder layer with the activations that entered
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace deepgemm::cli {

// y = x W^T with the values of the file, which are FP16.
struct Linear {
  std::string name;  // "q_proj"
  int64_t tokens = 0, in = 0, out = 0;
  std::vector<double> x;                  // [tokens][in]
  std::vector<double> w;                  // [in][out]
  std::vector<double> y;                  // [tokens][out], summed in FP64
  std::vector<float> channel_importance;  // [in]: largest |x| of each input channel
};

struct LayerSample {
  std::string path;
  std::string model;  // as the file's metadata has them; empty when it does not say
  std::string layer, layers_in_model, text;
  std::vector<Linear> linears;
};

// The file to use: `given`, else data/sample/smollm2_layer.safetensors below the current directory
// or beside the folder of this program. IO error with the remedy when there is none.
base::Result<std::string> find_sample(const std::string& given);

// Reads weights model.layers.<i>.(self_attn|mlp).<name>.weight [out, in] and activations.<input>
// [tokens, in]. FORMAT errors name the tensor that is missing or does not fit.
base::Result<LayerSample> load_layer_sample(const std::string& path);

}  // namespace deepgemm::cli
