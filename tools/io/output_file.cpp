#include "io/output_file.hpp"

#include <filesystem>
#include <system_error>

#include "base/files.hpp"

namespace deepgemm::io {

base::Result<void> write_file(const std::string& path,
                              std::span<const std::span<const std::byte>> parts) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return base::make_error(DEEPGEMM_ERROR_IO,
                            "cannot write {}: it exists and is not a regular file; name another",
                            path);
  }
  std::string content;
  for (const auto& part : parts) {
    content.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return base::write_file_atomic(path, content);
}

}  // namespace deepgemm::io
