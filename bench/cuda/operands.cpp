#include "operands.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/formats.hpp"

namespace deepgemm::bench {
namespace {

constexpr int64_t kPhaseOfB = 400009, kPhaseOfSets = 70001;
// A NaN of every format; as INT32 it would be -1, a sum like others.
constexpr uint8_t kPoison = 0xFF;

gemm_precision_t input_of(const std::string& row_class) {
  return row_class == "bf16"   ? PRECISION_BF16
         : row_class == "fp16" ? PRECISION_FP16
         : row_class == "fp8"  ? PRECISION_FP8_E4M3
         : row_class == "int8" ? PRECISION_INT8
                               : PRECISION_FP32;
}

gemm_precision_t output_of(const std::string& row_class) {
  if (row_class == "fp16") return PRECISION_FP16;
  return output_bytes(row_class) == 2 ? PRECISION_BF16 : PRECISION_FP32;
}

double element_of(const std::vector<uint8_t>& c, int64_t index, gemm_precision_t precision,
                  bool integers) {
  if (!integers) return base::decode(precision, c.data(), index);
  int32_t value;
  std::memcpy(&value, c.data() + static_cast<size_t>(index) * sizeof value, sizeof value);
  return value;
}

// Is there an element with all bytes poisoned? Sums of INT8 have it as -1: not asked there.
bool has_poison(const std::vector<uint8_t>& c, size_t width) {
  size_t run = 0;
  for (size_t at = 0; at < c.size(); at += width) {
    run = 0;
    while (run < width && c[at + run] == kPoison) ++run;
    if (run == width) return true;
  }
  return false;
}

}  // namespace

int rotation_sets(size_t bytes, size_t beyond) {
  return static_cast<int>(std::clamp<size_t>(beyond / std::max<size_t>(bytes, 1) + 1, 3, 64));
}

RandomBlock::RandomBlock(gemm_precision_t precision) : precision_(precision) {
  bytes_.resize(static_cast<size_t>(base::storage_bytes(precision, kElements)));
  std::mt19937 random(20261201);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const double scale = precision == PRECISION_INT8 ? 127 : 1;
  for (int64_t i = 0; i < kElements; ++i) {
    base::encode(precision, bytes_.data(), i, uniform(random) * scale);
  }
}

double RandomBlock::at(int64_t index, int64_t phase) const {
  return base::decode(precision_, bytes_.data(), (index + phase) % kElements);
}

Operands::Operands(BenchGpu& gpu, const Product& product)
    : gpu_(gpu), product_(product), block_(input_of(product.row_class)) {}

Operands::~Operands() {
  for (const Set& set : sets_) {
    for (void* memory : {set.a, set.b, set.c}) {
      if (memory != nullptr) static_cast<void>(gpu_.release(memory));
    }
  }
}

base::Result<std::unique_ptr<Operands>> Operands::make(BenchGpu& gpu, const Product& product) {
  std::unique_ptr<Operands> made(new Operands(gpu, product));
  const size_t elements = static_cast<size_t>((product.m + product.n) * product.k);
  const int sets =
      rotation_sets(elements * input_bytes(product.row_class), gpu.bytes_beyond_caches());
  for (int set = 0; set < sets; ++set) {
    DEEPGEMM_TRY(made->add_set(set * kPhaseOfSets % RandomBlock::kElements));
  }
  return made;
}

base::Result<void> Operands::add_set(int64_t phase) {
  const auto a = static_cast<size_t>(product_.m * product_.k);
  const auto b = static_cast<size_t>(product_.n * product_.k);
  const auto c = static_cast<size_t>(product_.m * product_.n);
  const size_t width = input_bytes(product_.row_class);
  Set& set = sets_.emplace_back();
  DEEPGEMM_TRY_ASSIGN(memory_a, gpu_.allocate(a * width));
  set.a = memory_a;
  DEEPGEMM_TRY_ASSIGN(memory_b, gpu_.allocate(b * width));
  set.b = memory_b;
  DEEPGEMM_TRY_ASSIGN(memory_c, gpu_.allocate(c * output_bytes(product_.row_class)));
  set.c = memory_c;
  DEEPGEMM_TRY(fill(set.a, a, phase));
  return fill(set.b, b, (phase + kPhaseOfB) % RandomBlock::kElements);
}

base::Result<void> Operands::fill(void* memory, size_t elements, int64_t phase) {
  const size_t width = input_bytes(product_.row_class);
  auto from = static_cast<size_t>(phase);
  for (size_t done = 0; done < elements;) {
    const size_t count = std::min(elements - done, size_t{RandomBlock::kElements} - from);
    DEEPGEMM_TRY(gpu_.copy(static_cast<std::byte*>(memory) + done * width,
                           block_.bytes().data() + from * width, count * width));
    done += count;
    from = 0;
  }
  return {};
}

ExactElement Operands::exact(int64_t row, int64_t column) const {
  ExactElement element;
  for (int64_t x = 0; x < product_.k; ++x) {
    const double value = block_.at(row * product_.k + x, 0) *
                         block_.at(column * product_.k + x, kPhaseOfB);
    element.value += value;
    element.magnitude += std::abs(value);
  }
  return element;
}

base::Result<void> Operands::poison() {
  const auto elements = static_cast<size_t>(product_.m * product_.n);
  return gpu_.fill(c(0), kPoison, elements * output_bytes(product_.row_class));
}

base::Result<ResultError> Operands::check(double bound_relative, double bound_absolute,
                                          bool integers) const {
  constexpr int kSamples = 100;
  const size_t width = output_bytes(product_.row_class);
  const gemm_precision_t precision = output_of(product_.row_class);
  std::vector<uint8_t> result(static_cast<size_t>(product_.m * product_.n) * width);
  DEEPGEMM_TRY(gpu_.copy(result.data(), c(0), result.size()));
  ResultError worst;
  std::mt19937_64 random(20261202);
  for (int sample = 0; sample < kSamples; ++sample) {
    auto row = static_cast<int64_t>(random() % static_cast<uint64_t>(product_.m));
    auto column = static_cast<int64_t>(random() % static_cast<uint64_t>(product_.n));
    if (sample < 4) {  // corners
      row = sample % 2 == 0 ? 0 : product_.m - 1;
      column = sample < 2 ? 0 : product_.n - 1;
    }
    const ExactElement exact = this->exact(row, column);
    const double found = element_of(result, row * product_.n + column, precision, integers);
    const double error = std::abs(found - exact.value);
    const double allowed = bound_relative * exact.magnitude + bound_absolute;
    const bool nan = std::isnan(error);
    worst.relative = std::max(worst.relative, nan ? HUGE_VAL : error / exact.magnitude);
    worst.of_bound = std::max(worst.of_bound, nan           ? HUGE_VAL
                                              : allowed > 0 ? error / allowed
                                              : error > 0   ? HUGE_VAL
                                                            : 0);
  }
  if (!integers && has_poison(result, width)) worst.of_bound = HUGE_VAL;
  return worst;
}

}  // namespace deepgemm::bench
