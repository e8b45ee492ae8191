// Tile skipping: which blocks of K a tile of C may leave out so that every element keeps the
// contract. Pure; docs/contract.md, "Tile skipping", has the rule and its proof.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "contract/bound.hpp"
#include "contract/contract.hpp"
#include "deepgemm/types.h"

namespace deepgemm::contract {

// ---- Plan time
// ---------------------------------------------------------------------------------------

// What a contract says about skipping.
enum class SkipRule : uint8_t {
  kOff,             // skip_tolerance is 0
  kStrict,          // there is no error limit of which skipping could use a share
  kBatchInvariant,  // what a tile leaves out depends on all of its rows
  kSwigluAbsolute,  // an absolute error of the gate is stretched by the other half of B
  kAllowed,
};
SkipRule skip_rule(const Contract& contract, gemm_activation_t activation);

// What the blocks that are left out may add to for one element; one of the two is positive, or none
// when skipping is not allowed.
struct SkipAllowance {
  double relative = 0;  // sum of |a||b| left out, of (|A||B|)_ij
  double absolute = 0;  // |alpha| times that sum, as it is

  bool any() const { return relative > 0 || absolute > 0; }
};

// The share skip_tolerance of the contract's limit, or what `bound` (the one for `input`, without
// skipping) leaves of the limit if that is less, turned back through scales, activation and output
// rounding: error_bound with this allowance in `input` keeps the limit.
SkipAllowance skip_allowance(const Contract& contract, const BoundInput& input,
                             const ErrorBound& bound);

// ---- Norms
// -------------------------------------------------------------------------------------------

constexpr int64_t kSkipGranule = 128;  // values of k that share norms
constexpr int64_t kSkipLanes = 32;     // vectors that are looked at together

// Norms over some rows of op(A), or columns of op(B), each first divided by its weight, within one
// granule of k. A weight is the vector's sum of finite magnitudes over all k; vectors of weight 0
// are left out: they are zero, or all their granules hold values that are not finite.
struct SkipNorm {
  double sum = 0;      // largest sum of magnitudes; infinity when a value is not finite
  double largest = 0;  // largest magnitude; likewise
  // At least `above` values of each vector have a magnitude of `threshold` or more.
  double threshold = std::numeric_limits<double>::infinity();
  double above = std::numeric_limits<double>::infinity();

  void merge(const SkipNorm& other);
};

// `values`: [count][kSkipLanes], of which `lanes` vectors count; 0 < count <= kSkipGranule. Adds
// the sums of magnitudes to weights[lane], unless they are not finite.
void add_weights(const double* values, int64_t count, int64_t lanes, double* weights);

// Merges the norms of these vectors, whose weights are complete.
void add_norms(const double* values, int64_t count, int64_t lanes, const double* weights,
               SkipNorm& norm);

// Norms of neighbouring tiles of vectors: granule g of tile t at norms[t * granules + g], and the
// largest weight of its vectors at weights[t].
struct SkipNorms {
  const SkipNorm* norms = nullptr;
  const double* weights = nullptr;
  int64_t tiles = 0;
  int64_t granules = 0;

  SkipNorm granule(int64_t index) const;  // merged over the tiles
  double weight() const;                  // largest
};

// ---- Launch time
// -------------------------------------------------------------------------------------

// Which blocks of K the product of some rows and columns leaves out. Depends on the norms alone.
class TileSkips {
 public:
  static constexpr int64_t kMostBlocks = 512;  // those after them are kept

  TileSkips() = default;  // leaves out none
  // K is cut into blocks of block_k. `alpha` is the launch's, not 0.
  TileSkips(const SkipAllowance& allowance, double alpha, int64_t k, int64_t block_k,
            const SkipNorms& a, const SkipNorms& b);

  // `block` is one of 0 ... ceil(k / block_k) - 1.
  bool skipped(int64_t block) const {
    return block < kMostBlocks && skipped_[static_cast<size_t>(block)];
  }
  int64_t count() const { return static_cast<int64_t>(skipped_.count()); }

 private:
  std::bitset<kMostBlocks> skipped_;
};

}  // namespace deepgemm::contract
