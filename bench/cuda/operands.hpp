// Random matrices of a product, on a GPU and known to the host.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "deepgemm/types.h"
#include "gpu_timing.hpp"
#include "products.hpp"

namespace deepgemm::bench {

// How many sets of operands, of `bytes` each, make one pass over all of them longer than `beyond`
// bytes; at least 3, at most 64.
int rotation_sets(size_t bytes, size_t beyond);

// Elements that repeat endlessly. Their number is prime, so that no row of a matrix is like
// another, and A, B and each set begin at another one: a result that is transposed, or of the wrong
// set, is wrong.
class RandomBlock {
 public:
  static constexpr int64_t kElements = 1048573;

  explicit RandomBlock(gemm_precision_t precision);
  // Element `index` of a matrix that begins at `phase`.
  double at(int64_t index, int64_t phase) const;
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  gemm_precision_t precision_;
  std::vector<uint8_t> bytes_;
};

// The exact value of an element of C, and the sum of the magnitudes of its products.
struct ExactElement {
  double value = 0, magnitude = 0;
};

// How far a result is off.
struct ResultError {
  double relative = 0;  // largest error of the elements looked at, over their magnitude
  double of_bound = 0;  // and over what was allowed; infinite where the result has a NaN or an
                        // element that was not written
};

// Sets of A, B and C. Uniform in -1 ... 1; INT8: in -127 ... 127.
class Operands {
 public:
  static base::Result<std::unique_ptr<Operands>> make(BenchGpu& gpu, const Product& product);
  ~Operands();
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // Any number >= 0 is that of a set, modulo their number.
  int sets() const { return static_cast<int>(sets_.size()); }
  const void* a(int set) const { return at(set).a; }
  const void* b(int set) const { return at(set).b; }
  void* c(int set) const { return at(set).c; }

  // Makes every element of C of set 0 one that no product has.
  base::Result<void> poison();
  // Compares C of set 0: all of it was written, and elements chosen at random, corners among them,
  // are right. Bounds as in deepgemm_plan_info_t. `integers`: C holds INT32.
  base::Result<ResultError> check(double bound_relative, double bound_absolute,
                                  bool integers) const;

 private:
  struct Set {
    void *a = nullptr, *b = nullptr, *c = nullptr;
  };
  Operands(BenchGpu& gpu, const Product& product);
  const Set& at(int set) const { return sets_[static_cast<size_t>(set) % sets_.size()]; }
  ExactElement exact(int64_t row, int64_t column) const;
  base::Result<void> add_set(int64_t phase);
  base::Result<void> fill(void* memory, size_t elements, int64_t phase);

  BenchGpu& gpu_;
  const Product product_;
  const RandomBlock block_;
  std::vector<Set> sets_;
};

}  // namespace deepgemm::bench
