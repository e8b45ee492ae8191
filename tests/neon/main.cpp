// The CPU kernels with vectors of 16 bytes, as a program that needs nothing else: built for another
// architecture and run under emulation. Every number is compared with plain loops, bit by bit.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#define DEEPGEMM_VECTOR_BYTES 16
#include "kernels/cpu/finish.hpp"
#include "kernels/cpu/stream.hpp"

using namespace deepgemm::cpu;

namespace {

int failures = 0;

void expect(bool right, const char* what, int64_t where) {
  if (!right && ++failures < 20) std::printf("wrong: %s at %ld\n", what, static_cast<long>(where));
}

uint32_t random_word() {
  static uint32_t state = 1;
  state = state * 1664525U + 1013904223U;
  return state ^ state >> 15;
}

float random_float() { return static_cast<float>(static_cast<int32_t>(random_word())) * 0x1p-31F; }

template <class T>
struct Aligned {
  explicit Aligned(size_t count) : storage(count + 64 / sizeof(T)) {
    data =
        storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64 / sizeof(T);
  }
  std::vector<T> storage;
  T* data;
};

constexpr int64_t kChannels = 64, kGroup = 32;

struct Operands {
  Operands() : a(8 * kStripeStride), b(kChannels * kPanel), words(kChannels * kPanel) {
    for (float& value : a.storage) value = random_float();
    for (uint32_t& word : words.storage) word = random_word() & 0x3F3F3F3FU;  // finite everywhere
    for (GroupLanes& group : lanes) {
      for (int j = 0; j < kPanel; ++j) {
        group.scale[j] = 1 + random_float() / 2;
        group.zero[j] = random_word() & 15;
      }
    }
  }
  Aligned<float> a, b;
  Aligned<uint32_t> words;
  GroupLanes lanes[kChannels / kGroup];
};

void check_codes(Operands& operands) {
  constexpr int kPerWord = channels_per_word(WordFormat::kInt4);
  load_words<float, WordFormat::kInt4>(operands.words.data, 0, kChannels, operands.lanes,
                                       operands.b.data);
  for (int64_t i = 0; i < kChannels * kPanel; ++i) {
    const int64_t channel = i / kPanel % kPerWord, j = i % kPanel;
    const uint32_t word = operands.words.data[i / kPanel / kPerWord * kPanel + j];
    const auto code = static_cast<int>(word >> (channel % 2 * 16 + channel / 2 * 4) & 15);
    const float value =
        static_cast<float>(code - operands.lanes[0].zero[j]) * operands.lanes[0].scale[j];
    expect(operands.b.data[i] == value, "INT4 weight", i);
  }
}

// A row of A times the panel, in one chain of additions.
float chain(const Operands& operands, int row, int column) {
  float sum = 0;
  for (int64_t p = 0; p < kChannels; ++p) {
    const float a = operands.a.data[row * kStripeStride + p];
    const float b = operands.b.data[p * kPanel + column];
    sum = std::fma(a, b, sum);
  }
  return sum;
}

template <WordFormat kFormat, int kRows>
void check_products(Operands& operands) {
  constexpr bool kScaled = is_quantised(kFormat);
  constexpr int kPerWord = channels_per_word(kFormat);
  for (int64_t first = 0; first < kChannels; first += kGroup) {
    load_words<float, kFormat>(operands.words.data + first / kPerWord * kPanel, first % kPerWord,
                               kGroup, kScaled ? &operands.lanes[first / kGroup] : nullptr,
                               operands.b.data + first * kPanel);
  }
  std::vector<double> streamed(kRows * kPanel, 0.5), blocked = streamed;
  stream<kFormat, kRows, kScaled>({operands.a.data, operands.words.data, kChannels * kPanel,
                                   kScaled ? operands.lanes : nullptr, 2, kChannels, kGroup, kGroup,
                                   streamed.data(), kPanel});
  for (int part = 0; part < kPanel; part += 2 * kFloatLanes) {
    multiply<float, kRows>(kChannels, operands.a.data, 0, operands.b.data + part,
                           blocked.data() + part, kPanel);
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kPanel; ++j) {
      const double expected = 0.5 + static_cast<double>(chain(operands, i, j));
      expect(blocked[static_cast<size_t>(i * kPanel + j)] == expected, "blocked product",
             i * kPanel + j);
      expect(streamed[static_cast<size_t>(i * kPanel + j)] == expected, "streamed product",
             i * kPanel + j);
    }
  }
}

void check_rounding() {
  std::vector<float> sums(1000);
  for (float& value : sums) {
    const uint32_t bits = random_word();
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) value = 1;
  }
  std::vector<uint16_t> codes(sums.size());
  finish<float>(sums.data(), nullptr, 1, Target::kBf16, codes.data(), 997);
  for (size_t i = 0; i < 997; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &sums[i], sizeof(bits));
    bits += 0x7FFF + (bits >> 16 & 1);
    expect(codes[i] == bits >> 16, "BF16 rounding", static_cast<int64_t>(i));
  }
  expect(codes[997] == 0 && codes[999] == 0, "end of a row", 997);
}

}  // namespace

int main() {
  Operands operands;
  check_codes(operands);
  check_products<WordFormat::kFp32, 4>(operands);
  check_products<WordFormat::kFp16, 1>(operands);
  check_products<WordFormat::kBf16, 2>(operands);
  check_products<WordFormat::kE4m3, 3>(operands);
  check_products<WordFormat::kE5m2, 1>(operands);
  check_products<WordFormat::kInt8, 4>(operands);
  check_products<WordFormat::kInt4, 4>(operands);
  check_rounding();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
