// 128-bit content hash (XXH3) for keys of caches. Not for defence against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepgemm::base {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  bool operator==(const Hash128&) const = default;

  // 32 lower-case digits, most significant first: the form that xxhsum -H2 prints.
  std::string hex() const;
};

// Same bytes, same value, on every machine and in every version of the library.
Hash128 hash_bytes(const void* data, size_t size);
inline Hash128 hash_bytes(std::string_view text) { return hash_bytes(text.data(), text.size()); }

}  // namespace deepgemm::base
