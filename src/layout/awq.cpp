// AutoAWQ: "gemm" and "gemv" checkpoints, 4 bits.
#include "layout/checkpoint.hpp"

namespace deepgemm::layout {
namespace {

constexpr int64_t kPerWord = 8;
constexpr PackOrder kAwqOrder = {0, 4, 1, 5, 2, 6, 3, 7};

// qweight [K, N/8] and qzeros [groups, N/8], both along N in AWQ's order; scales [groups, N].
base::Result<void> place_gemm(Checkpoint& c) {
  if (c.n % kPerWord != 0) {
    return not_a_multiple(*c.rule, "out_features", c.n, kPerWord, "a word holds 8 columns");
  }
  c.codes = {.rows = c.k, .cols = c.n, .order = kAwqOrder};
  c.zeros = {.rows = c.groups, .cols = c.n, .order = kAwqOrder};
  c.scale_rows = c.groups;
  c.scale_cols = c.n;
  return {};
}

// Words of zero points for each column: enough for all groups, rounded up so that kernels can read
// them in wide loads. 0 where the format does not define it.
int64_t gemv_zero_words(int64_t groups, int64_t group_size) {
  const int64_t multiple = group_size >= 128 ? 1 : group_size == 64 ? 2 : group_size == 32 ? 4 : 0;
  if (multiple == 0) return 0;
  return Packing::ceil_div(Packing::ceil_div(groups, kPerWord), multiple) * multiple;
}

// qweight [N, K/8] along K, qzeros [N, zero_words] along groups, scales [N, 8 * zero_words].
base::Result<void> place_gemv(Checkpoint& c) {
  if (c.k % kPerWord != 0) {
    return not_a_multiple(*c.rule, "in_features", c.k, kPerWord, "a word holds 8 rows");
  }
  const int64_t words = gemv_zero_words(c.groups, c.group_size);
  if (words == 0 && c.groups > 0) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "AWQ_GEMV defines group sizes 32, 64 and from 128 on, but group_size is {}; "
        "convert the checkpoint to AWQ_GEMM.",
        c.group_size);
  }
  c.codes = {.rows = c.n, .cols = c.k};
  c.codes_transposed = true;
  c.zeros = {.rows = c.n, .cols = kPerWord * words};
  c.zeros_transposed = true;
  c.scale_rows = c.n;
  c.scale_cols = kPerWord * words;
  c.scales_transposed = true;
  return {};
}

}  // namespace

constinit const FormatRule kAwqGemm = {
    "AWQ_GEMM", PRECISION_INT4_AWQ, PRECISION_DEFAULT, PRECISION_FP16, 0, 1, true,
    false,      place_gemm};
constinit const FormatRule kAwqGemv = {
    "AWQ_GEMV", PRECISION_INT4_AWQ, PRECISION_DEFAULT, PRECISION_FP16, 0, 1, true,
    false,      place_gemv};

}  // namespace deepgemm::layout
