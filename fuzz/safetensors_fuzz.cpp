// A whole safetensors file: accepted files give views that lie in the file and cover its data.
#include "expect.hpp"
#include "io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepgemm;
  const auto file = std::as_bytes(std::span(data, size));
  const auto contents = io::parse_safetensors(file, "input");
  if (!contents.ok()) {
    fuzz::expect(contents.error().code == DEEPGEMM_ERROR_FORMAT, "refusals are FORMAT errors");
    fuzz::expect(!contents.error().message.empty(), "refusals have a reason");
    return 0;
  }
  size_t covered = 0;
  for (const auto& [name, tensor] : contents->tensors) {
    fuzz::touch(tensor.data);
    covered += tensor.data.size();
    const auto bytes = io::tensor_bytes(name, tensor.dtype, tensor.shape);
    fuzz::expect(bytes.ok() && static_cast<size_t>(*bytes) == tensor.data.size(),
                 "the shape fits the data");
  }
  fuzz::expect(covered + sizeof(uint64_t) <= size, "views lie in the file");
  return 0;
}
