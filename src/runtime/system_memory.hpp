// Memory taken from the operating system in large pieces.
#pragma once

#include <cstddef>
#include <utility>

namespace deepgemm::runtime {

constexpr size_t kHugePage = size_t{2} << 20;

// Owns a piece of zeroed memory, aligned to 2 MiB and offered to transparent huge pages when it is
// that large. Empty after a failed allocation.
class SystemMemory {
 public:
  SystemMemory() = default;
  // Rounds `bytes` up to whole pages. Check data(): it is null when the system refuses.
  explicit SystemMemory(size_t bytes);
  ~SystemMemory();
  SystemMemory(SystemMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SystemMemory& operator=(SystemMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace deepgemm::runtime
