// A whole .npy file: an accepted one gives a view of exactly its data.
#include "expect.hpp"
#include "io/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepgemm;
  const auto file = std::as_bytes(std::span(data, size));
  const auto tensor = io::parse_npy(file, "input");
  if (!tensor.ok()) {
    fuzz::expect(tensor.error().code == DEEPGEMM_ERROR_FORMAT, "refusals are FORMAT errors");
    return 0;
  }
  fuzz::touch(tensor->data);
  fuzz::expect(tensor->data.data() + tensor->data.size() == file.data() + file.size(),
               "the data ends with the file");
  const auto bytes = io::tensor_bytes("input", tensor->dtype, tensor->shape);
  fuzz::expect(bytes.ok() && static_cast<size_t>(*bytes) == tensor->data.size(),
               "the shape fits the data");
  return 0;
}
