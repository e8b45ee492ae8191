// GPTQ checkpoints, 4 and 8 bits, with both conventions of zero points.
#include "layout/checkpoint.hpp"

namespace deepgemm::layout {
namespace {

// qweight [ceil(K*bits/32), N] along K, qzeros [groups, ceil(N*bits/32)] along N, scales [groups,
// N].
base::Result<void> place(Checkpoint& c) {
  c.codes = {.rows = c.k, .cols = c.n, .bits = c.bits, .down = true};
  c.zeros = {.rows = c.groups, .cols = c.n, .bits = c.bits};
  c.scale_rows = c.groups;
  c.scale_cols = c.n;
  return {};
}

// Version 1 stores the zero point less one. A zero point of 0 wraps to the largest code, and that
// code means 0 again: no quantiser makes a zero point of 2^bits, and the format's own reader masks
// the sum.
base::Result<void> place_v1(Checkpoint& c) {
  c.zero_bias = 1;
  return place(c);
}

}  // namespace

constinit const FormatRule kGptqV1 = {
    "GPTQ_V1", PRECISION_INT4_GPTQ, PRECISION_INT8, PRECISION_FP16, 0, 1, true, true, place_v1};
constinit const FormatRule kGptqV2 = {
    "GPTQ_V2", PRECISION_INT4_GPTQ, PRECISION_INT8, PRECISION_FP16, 0, 1, true, true, place};

}  // namespace deepgemm::layout
