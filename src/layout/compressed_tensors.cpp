// compressed-tensors "pack-quantized", 4 and 8 bits.
#include "layout/checkpoint.hpp"

namespace deepgemm::layout {
namespace {

// weight_packed [N, ceil(K*bits/32)] along K, weight_zero_point [ceil(N*bits/32), groups] along N,
// weight_scale [N, groups]. Signed codes and zero points are stored with 2^(bits-1) added, which
// makes them the canonical unsigned ones.
base::Result<void> place(Checkpoint& c) {
  c.codes = {.rows = c.n, .cols = c.k, .bits = c.bits};
  c.codes_transposed = true;
  c.zeros = {.rows = c.n, .cols = c.groups, .bits = c.bits, .down = true};
  c.zeros_transposed = true;
  c.scale_rows = c.n;
  c.scale_cols = c.groups;
  c.scales_transposed = true;
  return {};
}

}  // namespace

constinit const FormatRule kCompressedTensors = {
    "COMPRESSED_TENSORS", PRECISION_INT4, PRECISION_INT8, PRECISION_FP16, 0, 1, true, true, place};

}  // namespace deepgemm::layout
