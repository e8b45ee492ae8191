#include "base/hash.hpp"

#include <fmt/format.h>
#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

namespace deepgemm::base {

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 hash_bytes(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.high64, hash.low64};
}

}  // namespace deepgemm::base
