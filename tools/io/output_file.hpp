// Files that the tools write.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.hpp"

namespace deepgemm::io {

// Replaces a file by the parts one after another; readers see the old content or the new. IO error
// for a directory, a device or a pipe: those are never replaced.
base::Result<void> write_file(const std::string& path,
                              std::span<const std::span<const std::byte>> parts);

}  // namespace deepgemm::io
