#include "backend/cuda/tile_rules.hpp"

#include <algorithm>
#include <bit>

namespace deepgemm::cuda {
namespace {

using kernel::Config;
using kernel::Math;

template <class... Values>
base::Error refuse(fmt::format_string<Values...> text, Values&&... values) {
  return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED, text, std::forward<Values>(values)...);
}

bool is_power_of_two(int value) { return value > 0 && std::has_single_bit(unsigned(value)); }

// What both families ask.
base::Result<void> check_warps(const char* family, const schedule::KernelConfig& tiling,
                               const Config& config) {
  constexpr int kMostThreads = 1024;  // of a block
  if (!is_power_of_two(config.warp_m) || !is_power_of_two(config.warp_n)) {
    return refuse("warps of {}x{}: {} takes powers of two", config.warp_m, config.warp_n, family);
  }
  if (config.block_m % config.warp_m != 0 || config.block_n % config.warp_n != 0) {
    return refuse("blocks of {}x{} are no multiples of warps of {}x{}", config.block_m,
                  config.block_n, config.warp_m, config.warp_n);
  }
  if (config.threads() > kMostThreads) {
    return refuse("{} threads a block; at most {}: give larger warps or smaller blocks",
                  config.threads(), kMostThreads);
  }
  if (tiling.warp_k != tiling.block_k) {
    return refuse("warp_k is {}: the warps of {} share block_k, {}", tiling.warp_k, family,
                  tiling.block_k);
  }
  if (tiling.cluster > 1) return refuse("{} makes no clusters (of {})", family, tiling.cluster);
  if (config.swiglu() && config.warp_n < 16) {
    return refuse("warp_n is {}: SWIGLU takes 16 and more", config.warp_n);
  }
  return {};
}

}  // namespace

base::Result<void> check_simt_tiling(const schedule::KernelConfig& tiling, const Config& config) {
  DEEPGEMM_TRY(check_warps("simt", tiling, config));
  constexpr int kFewest = 4, kMost = 64;  // elements of a lane
  const int each = config.warp_m * config.warp_n / 32;
  const int most = config.math == Math::kFp64 || kernel::wide_totals(config) ? kMost / 2 : kMost;
  if (each < kFewest || each > most) {
    return refuse("warps of {}x{} give each lane {} elements; simt takes {} to {} of this format",
                  config.warp_m, config.warp_n, each, kFewest, most);
  }
  const int lanes_m = config.warp_m / kernel::simt_lane_m(config);
  const int lanes_n = config.warp_n / kernel::simt_lane_n(config);
  if (lanes_m * lanes_n != 32 || lanes_n * kernel::simt_lane_n(config) != config.warp_n) {
    return refuse("warps of {}x{} do not fall into 32 parts of {}x{}", config.warp_m, config.warp_n,
                  kernel::simt_lane_m(config), kernel::simt_lane_n(config));
  }
  if (config.block_k != 8 && config.block_k != 16 && config.block_k != 32) {
    return refuse("block_k is {}: simt takes 8, 16 and 32", config.block_k);
  }
  if (config.stages != 2) return refuse("stages is {}: simt has 2", config.stages);
  if (config.promote > 0 && config.promote % config.block_k != 0) {
    return refuse("factors of groups of {} values need a block_k that divides it, not {}",
                  config.promote, config.block_k);
  }
  return {};
}

base::Result<void> check_sm80_tiling(const schedule::KernelConfig& tiling, const Config& config,
                                     int sm) {
  DEEPGEMM_TRY(check_warps("sm80", tiling, config));
  if (config.warp_m % 16 != 0 || config.warp_n % 16 != 0) {
    return refuse("warps of {}x{}: sm80 takes multiples of 16", config.warp_m, config.warp_n);
  }
  const int step = kernel::sm80_step_k(config.math) * (config.math == Math::kTf32Bf16 ? 2 : 1);
  if (!is_power_of_two(config.block_k) || config.block_k % step != 0) {
    return refuse("block_k is {}: sm80 takes powers of two from {} on for this format",
                  config.block_k, step);
  }
  if (!is_power_of_two(config.block_m) || !is_power_of_two(config.block_n)) {
    return refuse("blocks of {}x{}: sm80 takes powers of two", config.block_m, config.block_n);
  }
  if (config.stages < 2) return refuse("stages is {}: sm80 takes 2 and more", config.stages);
  constexpr int kMost = 64 * 32;
  const bool split = config.math == Math::kTf32x3 || config.math == Math::kTf32Bf16;
  const bool wide = kernel::sums_in_double(config.math) || (split && sm < 90);
  if (wide && config.warp_m * config.warp_n > kMost) {
    return refuse("warps of {}x{} need too many registers for {}: at most {} elements",
                  config.warp_m, config.warp_n, split ? "both parts of FP32 values" : "FP64 sums",
                  kMost);
  }
  if (config.promote == 0) return {};
  const bool divides = config.promote % config.block_k == 0 || config.block_k % config.promote == 0;
  if (config.promote % step != 0 || !divides) {
    return refuse(
        "sums are added up every {} values of k: block_k must divide it or be a multiple,"
        " and {} must divide it; block_k is {}",
        config.promote, step, config.block_k);
  }
  // Sums and totals lie in registers together; Hopper has no FP8 multiplier for single warps, and
  // what stands for it takes more of them.
  const bool tight = kernel::wide_totals(config) || (config.math == Math::kFp8 && sm == 90);
  const int most = tight ? kMost / 2 : kMost;
  if (config.warp_m * config.warp_n > most) {
    return refuse("warps of {}x{} need too many registers for sums and totals: at most {} elements",
                  config.warp_m, config.warp_n, most);
  }
  return {};
}

base::Result<void> check_skinny_tiling(const schedule::KernelConfig& tiling, const Config& config) {
  constexpr int kMostWarps = 32;
  const int line = 64 / kernel::multiplicand_bytes(config.math);  // what a warp loads of a row
  if (config.block_m != 8 && config.block_m != 16) {
    return refuse("block_m is {}: skinny has kernels of 8 and 16 rows", config.block_m);
  }
  if (config.block_n % 16 != 0 || config.warp_n != config.block_n ||
      config.warp_m != config.block_m) {
    return refuse(
        "warps of {}x{}: those of skinny span the block, {}x{}, of multiples of 16 columns",
        config.warp_m, config.warp_n, config.block_m, config.block_n);
  }
  if (tiling.warp_k < line || tiling.warp_k % line != 0 || tiling.block_k % tiling.warp_k != 0 ||
      config.warps_k > kMostWarps) {
    return refuse("warp_k is {} and block_k {}: skinny takes up to {} warps of multiples of {}",
                  tiling.warp_k, tiling.block_k, kMostWarps, line);
  }
  if (tiling.cluster > 1 || config.split) {
    return refuse("skinny makes no clusters (of {}) and splits K within a block only",
                  tiling.cluster);
  }
  if (config.promote % tiling.warp_k != 0) {
    return refuse("sums are added up every {} values of k: warp_k must divide it, not {}",
                  config.promote, tiling.warp_k);
  }
  for (const kernel::Operand& operand : {config.a, config.b}) {
    if (operand.access != kernel::Access::kAlongK || operand.width < 16) {
      return refuse(
          "skinny reads rows of A and columns of op(B) along k, 16 bytes at a time: "
          "their strides and addresses must be multiples of 16 bytes");
    }
    if (kernel::needs_conversion(config.math, operand.format)) {
      return refuse("skinny multiplies operands as they are stored");
    }
  }
  // Four registers a chunk; the rest of a thread's share goes to sums, addresses and rows of A.
  constexpr int kRegisters = 65536;  // of a multiprocessor
  const int others = config.block_m == 8 ? 32 : 48;
  const int most_chunks =
      std::min((kRegisters / config.threads() - others) / 4, config.promote > 0 ? 24 : 40);
  const int chunks = tiling.stages * (tiling.warp_k / line) * (config.block_m + config.block_n) / 8;
  if (chunks > most_chunks || tiling.stages < 1) {
    return refuse("{} stages of {} values of k load {} chunks of 16 bytes a lane: at most {}",
                  tiling.stages, tiling.warp_k, chunks, most_chunks);
  }
  return {};
}

int simt_resident_blocks(const Config& config, int sm) {
  constexpr int kBlackwell = 100;  // its code takes a few registers more
  const bool large = config.warp_m * config.warp_n / 32 == 64 && config.threads() == 256;
  const bool light = config.block_k == 8 && config.promote == 0 &&
                     config.epilogue.activation == kernel::Activation::kNone &&
                     !config.epilogue.bias && !config.epilogue.residual;
  const auto plain = [](const kernel::Operand& operand) {
    return operand.format == kernel::Format::kFp32 && operand.width == 16 &&
           (operand.access == kernel::Access::kAlongK ||
            operand.access == kernel::Access::kAlongRows);
  };
  return large && light && plain(config.a) && plain(config.b) && sm < kBlackwell ? 2 : 1;
}

}  // namespace deepgemm::cuda
