#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace deepgemm::base {
namespace {

// Values of XXH3-128 with seed 0, as xxhsum -H2 prints them.
TEST(Hash128, HasThePublishedValues) {
  EXPECT_EQ(hash_bytes("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_bytes(nullptr, 0), hash_bytes(""));
}

TEST(Hash128, ChangesWithEveryByteAndLength) {
  std::string text(300, 'a');
  std::set<std::string> seen = {hash_bytes(text).hex()};
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = 'b';
    EXPECT_TRUE(seen.insert(hash_bytes(text).hex()).second) << i;
    text[i] = 'a';
    EXPECT_TRUE(seen.insert(hash_bytes(text.data(), i).hex()).second) << i;
  }
  EXPECT_EQ(hash_bytes(text), hash_bytes(std::string(300, 'a')));
}

TEST(Hash128, PrintsLeadingZeros) {
  const Hash128 small{1, 0xABC};
  EXPECT_EQ(small.hex(), "00000000000000010000000000000abc");
  EXPECT_FALSE((small == Hash128{0xABC, 1}));
}

}  // namespace
}  // namespace deepgemm::base
