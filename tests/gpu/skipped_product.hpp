// A product whose kernel skips blocks of K, on a GPU: its operands as numbers and on the device,
// which blocks its tiles keep, and which the rule of contract/skip.hpp lets them leave out.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "contract/skip.hpp"
#include "gpu_fixture.hpp"

namespace deepgemm::cuda {

// Memory that products use one after the other.
struct SkipBuffers {
  static constexpr size_t kCapacity = size_t{24} << 20;
  explicit SkipBuffers(Gpu& gpu)
      : a(gpu, kCapacity),
        b(gpu, kCapacity),
        c(gpu, kCapacity),
        bias(gpu, kCapacity),
        scale_a(gpu, kCapacity),
        scale_b(gpu, kCapacity),
        partials(gpu, 4 * kCapacity),
        counters(gpu, kCapacity),
        skips(gpu, kCapacity) {}
  MirroredBuffer a, b, c, bias, scale_a, scale_b, partials, counters, skips;
};

// Element (row of A, or column of op(B); k) of a batch.
using Element = std::function<double(int64_t batch, int64_t vector, int64_t k)>;

// Blocks of K by tile of C; tiles by batch, row and column.
using Blocks = std::vector<std::vector<bool>>;

struct SkipResult {
  Blocks kept;
  std::vector<uint8_t> c;

  bool operator==(const SkipResult&) const = default;
};

class SkippedProduct {
 public:
  SkippedProduct(Gpu& gpu, SkipBuffers& buffers, const KernelCase& one, int64_t m, int64_t n,
                 int64_t k);

  // False, and a failed test, when there is no such kernel.
  bool prepare();
  // Values are rounded to the formats. Factors of rows and columns are 1, bias is 0.
  void fill(const Element& a, const Element& b);
  void set_row_factor(int64_t row, float factor);

  // Every kernel with at most so many blocks of threads.
  SkipResult run(const contract::SkipAllowance& allowance, int64_t blocks = 1 << 20);

  // What the rule keeps, with norms in FP64.
  Blocks kept_by_rule(const contract::SkipAllowance& allowance);

  // Sums of the products that make up an element of A op(B), by what its tile does with them.
  struct Sums {
    double kept = 0;
    double left_out = 0, all = 0;  // of magnitudes
  };
  Sums sums(const Blocks& kept, int64_t batch, int64_t row, int64_t column);
  double output(const SkipResult& result, int64_t batch, int64_t row, int64_t column) const;

  int64_t blocks() const { return ceil_div(problem_.k, spec_.config.block_k); }
  int64_t block_of(int64_t k) const { return k / spec_.config.block_k; }
  // Of the tile of a row of C and a column of op(B).
  size_t tile_of(int64_t batch, int64_t row, int64_t column) const;
  const intent::Problem& problem() const { return problem_; }

 private:
  static int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }
  struct Values {
    int64_t vectors = 0, k = 0;
    std::vector<double> list;
    double& at(int64_t batch, int64_t vector, int64_t x) {
      return list[static_cast<size_t>((batch * vectors + vector) * k + x)];
    }
  };
  void fill(const intent::Operand& operand, bool k_is_row, const Element& element,
            MirroredBuffer& buffer, Values& values);
  bool launch(const Kernel& kernel, int threads, int64_t items, int64_t blocks,
              const kernel::GemmArguments& arguments);
  LaunchOperands operands(const contract::SkipAllowance& allowance);
  Blocks download_kept();

  Gpu& gpu_;
  SkipBuffers& buffers_;
  KernelCase one_;
  intent::Problem problem_;
  KernelSpec spec_;
  LaunchShape shape_;
  int64_t rows_ = 0, columns_ = 0;  // tiles
  Values a_, b_;
};

}  // namespace deepgemm::cuda
