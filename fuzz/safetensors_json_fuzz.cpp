// The JSON text of a safetensors header alone, so that mutations need not keep a length right.
#include <string_view>

#include "expect.hpp"
#include "io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepgemm;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto header = io::parse_safetensors_header(text, "input");
  if (!header.ok()) {
    fuzz::expect(header.error().code == DEEPGEMM_ERROR_FORMAT, "refusals are FORMAT errors");
    return 0;
  }
  for (const io::DeclaredTensor& tensor : header->tensors) {
    fuzz::expect(tensor.shape.size() <= io::kMaxTensorRank, "ranks are bounded");
    for (const int64_t length : tensor.shape) fuzz::expect(length >= 0, "sizes are not negative");
  }
  return 0;
}
