// What a fuzzer demands besides not crashing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace deepgemm::fuzz {

// Ends the run, as a finding, when `condition` is false.
inline void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

// Reads every byte, so that a view outside its memory shows under AddressSanitizer.
inline void touch(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<unsigned>(byte);
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace deepgemm::fuzz
