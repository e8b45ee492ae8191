#include "schedule/cost.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/formats.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::schedule {
namespace {

using contract::PathId;

// ---- Constants. "measured": on the H200, from kernels and prototypes of this project; else
// estimated.

struct Efficiency {
  const char* family;
  double compute;  // share of the attainable peak with the largest tile
  double memory;   // share of the attainable bandwidth with every unit busy
};
constexpr Efficiency kEfficiency[] = {
    {"cpu_blocked", 0.50, 0.80},  // estimated
    {"cpu_amx", 0.40, 0.80},      // estimated
    {"simt", 0.60, 0.70},         // estimated
    {"sm70", 0.70, 0.75},         // estimated
    {"sm80", 0.85, 0.97},         // measured: 276 us for 4096^3 BF16, 64.7 for 28672 x 4096
    {"sm90", 0.97, 0.92},    // measured: best products reach the 805 TFLOP/s that is taken as peak
    {"skinny", 0.30, 0.86},  // memory measured: 67.9 us for 28672 x 4096 BF16; compute estimated
    {"w4", 0.95, 0.93},      // measured: 17.7 us for 28672 x 4096 INT4 at M = 1, 352 at 1024
};

// mma.sync reaches only part of the rate that wgmma and tcgen05 have. On Hopper 0.79 alone and 0.72
// with loads, measured; on Blackwell estimated.
constexpr double kMmaSyncOnHopper = 0.79;
constexpr double kMmaSyncOnBlackwell = 0.45;
constexpr double kMmaSyncSplit = 0.86;  // of the rest, where warps split operands; measured
constexpr double kMmaSyncFp64 = 1.06;   // FP64 reaches 0.90 of its peak with every tile; measured

constexpr double kFillUs = 1.5;        // a pipeline starts and drains; measured on the H200
constexpr double kSplitUs = 5.5;       // last block waits for the others; fitted to measurements
constexpr double kOverlapLoss = 0.05;  // share of the shorter of memory and compute that shows
// One unit can draw these multiples of its share: with several blocks, with one, and from L2.
// Measured on the H200 with BF16 products of few rows.
constexpr double kUnitBandwidthShare = 1.5;
constexpr double kBlockBandwidthShare = 1.1;
constexpr double kUnitL2Share = 1.0;
constexpr double kLoadLatencyUs = 0.8;  // what is under way arrives so late, under load
// Products of fewer warps on a unit wait for their loads; measured likewise.
constexpr double kEnoughWarps = 8;
constexpr double kFewWarps = 0.6;  // share of the rate that is left with hardly any
// A block that has a unit for itself stands still at barriers: where nothing is loaded ahead, and
// with FP64 products, which take long.
constexpr double kAloneSplit = 0.92, kAloneFp64 = 0.95;
constexpr double kL2OverMemory = 2.0;   // L2 bandwidth where no figure exists; as on the H200
constexpr double kClusterSaves = 0.75;  // L2 reads left with multicast in a cluster; estimated
// Weights dequantised per second and SM. Measured: 28672 x 4096 INT4 weights cost 15 us beside the
// product on 132 SMs; 8-bit weights are taken to be twice as fast.
constexpr double kDequantPerUnit = 59e9;
// Power: share of the board's at rest in a launch, and the rest by the busier of memory and
// compute; estimated (a long BF16 product on the H200 drew 540 of 700 W).
constexpr double kBasePower = 0.40;
constexpr double kBusyPower = 0.40;

const Efficiency& efficiency_of(const Family& family) {
  for (const Efficiency& entry : kEfficiency) {
    if (std::string_view(entry.family) == family.name) return entry;
  }
  return kEfficiency[1];
}

double ceil_div(double value, double by) { return std::ceil(value / by); }

double bits_of(gemm_precision_t precision) { return base::find_format(precision)->storage_bits; }

// ---- Rates
// -----------------------------------------------------------------------------------------

// FMA rate of cores without tensor units. INT8: FP32 FMA on CPUs (codes are exact in FP32), dot
// products of four on GPUs, taken as twice FP32.
double core_peak(const CostInput& input, const PeakRates& peak) {
  if (contract::path_info(input.path).accumulator_bits == 53) return peak.fp64;
  const bool dot_products = input.path == PathId::kInt8 && input.family.backend == Backend::kCuda;
  return dot_products ? 2 * peak.fp32 : peak.fp32;
}

bool multiplies_fp64(const CostInput& input) {
  return tensor_operand(input.path, input.a) == PRECISION_FP64;
}

// mma.sync of operands that each warp splits in parts, for which it has work enough between loads.
bool splits_operands(const CostInput& input) {
  return std::string_view(input.family.name) == "sm80" && contract::path_info(input.path).parts > 1;
}

double mma_sync_share(const CostInput& input, const DeviceProfile& profile) {
  const std::string_view name = input.family.name;
  if (name != "sm80") return 1;
  if (multiplies_fp64(input)) return kMmaSyncFp64;
  const double split = splits_operands(input) ? kMmaSyncSplit : 1;
  if (profile.sm == 90) return split * kMmaSyncOnHopper;
  return split * (profile.sm >= 100 && profile.sm < 120 ? kMmaSyncOnBlackwell : 1);
}

// Small tiles read more from shared memory per product. Tensor cores need the reuse of 128 x 256,
// FMA and FP64 products that of 64 x 64; estimated. Parts of operands serve the tile of a warp:
// measured 1275, 1655 and 2020 us at 4096^3 with warps of 64 x 64, 64 x 32 and 32 x 32.
double tile_share(const CostInput& input) {
  const KernelConfig& config = input.config;
  const bool split = splits_operands(input);
  const bool tensor = uses_tensor_cores(input.family, input.path);
  const double full_reuse = tensor && !split && !multiplies_fp64(input) ? 85 : 32;
  const double m = split ? config.warp_m : config.block_m;
  const double n = split ? config.warp_n : config.block_n;
  return std::min(1.0, 0.4 + 0.6 * (m * n / (m + n)) / full_reuse);
}

// Shallow blocks of k wait at barriers more often; measured on the H200.
double depth_share(const CostInput& input) {
  if (std::string_view(input.family.name) != "sm80") return 1;
  if (multiplies_fp64(input) || splits_operands(input)) return 1;
  constexpr double kDeep = 128;  // bytes of a row
  const double bytes =
      input.config.block_k * tile_element_bits(input.family, input.path, input.a) / 8.0;
  return std::min(1.0, 0.6 + 0.4 * bytes / kDeep);
}

// FLOP per microsecond of the whole device.
double compute_rate(const CostInput& input, const DeviceProfile& profile) {
  const bool tensor = uses_tensor_cores(input.family, input.path);
  const double peak = tensor ? tensor_rate(tensor_operand(input.path, input.a), profile.peak)
                             : core_peak(input, profile.peak);
  const std::string_view name = input.family.name;
  // w4 keeps its weights in registers.
  const bool tiles_matter = name == "simt" || (tensor && name != "skinny" && name != "w4");
  return peak * 1e6 * profile.attainable_compute * efficiency_of(input.family).compute *
         mma_sync_share(input, profile) * depth_share(input) *
         (tiles_matter ? tile_share(input) : 1);
}

// ---- Work
// ------------------------------------------------------------------------------------------

struct Work {
  double tiles = 0;  // blocks, split-K parts counted
  double tile_flops = 0;
  double row_tiles = 0;  // tiles along M
  double col_tiles = 0;
};

Work work_of(const CostInput& input) {
  const KernelConfig& config = input.config;
  const double m = static_cast<double>(input.m), n = static_cast<double>(input.n);
  Work work;
  work.row_tiles = ceil_div(m, config.block_m);
  work.col_tiles = ceil_div(n, config.block_n);
  const double splits = std::max(config.split_k, 1);
  work.tiles = work.row_tiles * work.col_tiles * splits * static_cast<double>(input.batch);
  // GPU tiles are computed whole; CPU tiles stop at the edge.
  const bool whole = input.family.backend == Backend::kCuda;
  const double rows = whole ? config.block_m : m / std::max(work.row_tiles, 1.0);
  const double cols = whole ? config.block_n : n / std::max(work.col_tiles, 1.0);
  work.tile_flops = 2 * rows * cols * static_cast<double>(input.k) / splits *
                    contract::path_info(input.path).passes;
  return work;
}

// Rows of products that widening one row of B costs on a CPU (packing each K x N tile); estimated.
double widening_rows(gemm_precision_t precision) {
  if (base::is_int4(precision)) return 5;
  if (base::is_fp8(precision)) return 4;
  return precision == PRECISION_FP32 || precision == PRECISION_FP64 ? 1 : 2;
}

// A is packed once; B by each row of tiles, at the speed of vector units.
double cpu_packing_us(const CostInput& input, const DeviceProfile& profile, const Work& work,
                      double units) {
  const double rate = core_peak(input, profile.peak) * 1e6 / profile.units * units;
  const double n = static_cast<double>(input.n), m = static_cast<double>(input.m);
  const double k = static_cast<double>(input.k), batch = static_cast<double>(input.batch);
  const double b = widening_rows(input.b) * n * work.row_tiles;
  const double a = widening_rows(input.a) * m;
  return 2 * (a + b) * k * batch / rate;
}

double dequant_us(const CostInput& input, const Work& work, double units) {
  if (input.family.backend == Backend::kCpu) return 0;
  const bool int4 = base::is_int4(input.b);
  if (!int4 && input.path != PathId::kW8A16) return 0;
  const double weights = static_cast<double>(input.n) * static_cast<double>(input.k) *
                         work.row_tiles * static_cast<double>(input.batch);
  return weights / (kDequantPerUnit * (int4 ? 1 : 2) * std::min(units, work.tiles)) * 1e6;
}

// Measured with INT4 weights of 28672 x 4096: dequantisation hides behind products for M up to 8,
// adds to them with one warp group a block, and half of it hides where two groups alternate.
double with_dequant(const CostInput& input, double products, double dequant) {
  if (input.config.block_m <= 8) return std::max(products, dequant);
  return products + dequant * (input.config.block_m <= 64 ? 1 : 0.5);
}

// Shared memory of a stage of a block, as multiplicands; 0: none.
double stage_bytes(const CostInput& input) {
  const int seen = tile_element_bits(input.family, input.path, input.a);
  return static_cast<double>(shared_bytes(input.family, input.config, seen, seen)) /
         std::max(input.config.stages, 1);
}

// Blocks that share a unit: as many as there are for it and as its shared memory holds.
double blocks_on_unit(const CostInput& input, const DeviceProfile& profile, const Work& work,
                      double units) {
  const double shared = stage_bytes(input) * std::max(input.config.stages, 1);
  const double held =
      shared > 0 ? std::floor(static_cast<double>(profile.shared_bytes_per_block) / shared) : 1;
  return std::max(1.0, std::min(held, ceil_div(work.tiles, units)));
}

// Tensor cores wait for loads that too few warps have under way.
double warps_share(const CostInput& input, double blocks) {
  const KernelConfig& config = input.config;
  const std::string_view name = input.family.name;
  if (name != "sm80" || config.warp_m <= 0 || config.warp_n <= 0) return 1;
  const double warps = blocks * (config.block_m / config.warp_m) * (config.block_n / config.warp_n);
  const double alone = blocks >= 2                       ? 1
                       : multiplies_fp64(input)          ? kAloneFp64
                       : input.path == PathId::kTf32Bf16 ? kAloneSplit
                                                         : 1;
  return std::min(1.0, kFewWarps + (1 - kFewWarps) * warps / kEnoughWarps) * alone;
}

double compute_us(const CostInput& input, const DeviceProfile& profile, const Work& work,
                  double units) {
  const double rate = compute_rate(input, profile);
  if (rate <= 0 || work.tiles == 0) return 0;
  const double per_unit =
      rate / profile.units * warps_share(input, blocks_on_unit(input, profile, work, units));
  const double rounds = ceil_div(work.tiles, units);
  double us =
      with_dequant(input, rounds * work.tile_flops / per_unit, dequant_us(input, work, units));
  if (input.family.backend == Backend::kCpu) {
    us += cpu_packing_us(input, profile, work, std::min(units, work.tiles));
  }
  return us;
}

// Bytes through L2: each tile reads its rows of A and columns of B.
double l2_bytes(const CostInput& input, const Work& work) {
  const double k = static_cast<double>(input.k);
  const double splits = std::max(input.config.split_k, 1);
  const double rows = std::min<double>(input.config.block_m, static_cast<double>(input.m));
  const double per_tile =
      (rows * bits_of(input.a) + input.config.block_n * bits_of(input.b)) / 8 * k / splits;
  return work.tiles * per_tile * (input.config.cluster > 1 ? kClusterSaves : 1);
}

double l2_rate(const DeviceProfile& profile) {  // bytes per microsecond
  return profile.l2_gbs > 0
             ? profile.l2_gbs * 1e3
             : kL2OverMemory * profile.bandwidth_gbs * 1e3 * profile.attainable_bandwidth;
}

// Partial sums are written, and read again once all are there.
double split_us(const CostInput& input, const DeviceProfile& profile) {
  if (input.config.split_k <= 1) return 0;
  const int sum_bytes = contract::path_info(input.path).accumulator_bits == 53 ? 8 : 4;
  const double bytes = static_cast<double>(input.m) * static_cast<double>(input.n * input.batch) *
                       input.config.split_k * sum_bytes;
  const bool cached = bytes <= static_cast<double>(profile.l2_bytes);
  const double memory = profile.bandwidth_gbs * 1e3 * profile.attainable_bandwidth;
  return kSplitUs + 2 * bytes / std::max(cached ? l2_rate(profile) : memory, 1.0);
}

// Memory and L2 limit the device, and what one unit can draw limits the unit with most tiles.
double gpu_memory_us(const CostInput& input, const DeviceProfile& profile, const Work& work,
                     double units, double bytes, double bandwidth) {
  const double l2 = l2_rate(profile);
  const double read_in_l2 = l2_bytes(input, work);
  const double busiest = ceil_div(work.tiles, units) / work.tiles * profile.units;
  const double blocks = blocks_on_unit(input, profile, work, units);
  const double unit_share = blocks < 2 ? kBlockBandwidthShare : kUnitBandwidthShare;
  // skinny has no shared memory: each row of tiles passes through all weights again.
  const double passes = std::string_view(input.family.name) == "skinny" ? work.row_tiles : 1;
  const double memory = passes * bytes / bandwidth * std::max(1.0, busiest / unit_share);
  double unit_rate = l2 / profile.units * kUnitL2Share;  // bytes per microsecond
  if (const double stage = stage_bytes(input); stage > 0) {
    const double under_way = blocks * stage * std::max(input.config.stages - 1, 1);
    unit_rate = std::min(unit_rate, under_way / kLoadLatencyUs);
  }
  return std::max({memory, read_in_l2 / l2, read_in_l2 * busiest / profile.units / unit_rate});
}

double memory_us(const CostInput& input, const DeviceProfile& profile, const DeviceState& state,
                 const Work& work, double units) {
  if (work.tiles == 0 || profile.bandwidth_gbs <= 0) return 0;
  const double free = std::clamp(1 - state.bandwidth_load, 0.05, 1.0);
  const double bandwidth = profile.bandwidth_gbs * 1e3 * profile.attainable_bandwidth * free *
                           efficiency_of(input.family).memory;
  const double share =
      std::min(1.0, kUnitBandwidthShare * std::min(work.tiles, units) / profile.units);
  double bytes = minimal_bytes(input);
  const double b_bytes = static_cast<double>(input.k) * static_cast<double>(input.n) *
                         bits_of(input.b) / 8 * static_cast<double>(input.batch);
  const bool cached = b_bytes <= static_cast<double>(profile.l2_bytes);
  if (input.family.backend == Backend::kCpu) {
    if (!cached) bytes += b_bytes * (work.row_tiles - 1);
    return bytes / (bandwidth * share);
  }
  return gpu_memory_us(input, profile, work, units, bytes, bandwidth);
}

double energy_mj(const CostEstimate& cost, const DeviceProfile& profile) {
  if (profile.board_power_w <= 0 || cost.us <= 0) return 0;
  const double busy = std::max(cost.compute_us, cost.memory_us) / cost.us;
  const double watts = profile.board_power_w * (kBasePower + kBusyPower * std::min(busy, 1.0));
  return watts * cost.us * 1e-3;
}

// Packing reads the weights and writes them once.
double repack_us(const CostInput& input, const DeviceProfile& profile) {
  if (!input.packed_b || profile.bandwidth_gbs <= 0) return 0;
  const double bytes =
      static_cast<double>(input.k) * static_cast<double>(input.n) * bits_of(input.b) / 8;
  return 2 * bytes / (profile.bandwidth_gbs * 1e3 * profile.attainable_bandwidth);
}

}  // namespace

CostInput cost_input(const intent::Problem& problem, const Family& family, PathId path,
                     const KernelConfig& config, int64_t m, int units) {
  return {.family = family,
          .path = path,
          .config = config,
          .m = m,
          .n = problem.n,
          .k = problem.k,
          .batch = problem.batch,
          .a = problem.a.precision,
          .b = problem.b.precision,
          .c = problem.c.precision,
          .group_size = problem.contract.group_size,
          .reads_c = problem.beta != 0,
          .residual = problem.epilogue.residual,
          .packed_b = problem.requires_packed_b(),
          .units = units};
}

double minimal_bytes(const CostInput& input) {
  const double m = static_cast<double>(input.m), n = static_cast<double>(input.n);
  const double k = static_cast<double>(input.k);
  const double outputs = 1 + (input.reads_c ? 1 : 0) + (input.residual ? 1 : 0);
  double bits =
      m * k * bits_of(input.a) + k * n * bits_of(input.b) + outputs * m * n * bits_of(input.c);
  if (base::is_int4(input.b) && input.group_size > 0) {
    constexpr double kScaleAndZeroBits = 20;  // an FP16 scale and a 4-bit zero point
    bits += ceil_div(k, static_cast<double>(input.group_size)) * n * kScaleAndZeroBits;
  }
  return bits / 8 * static_cast<double>(input.batch);
}

CostEstimate estimate_cost(const CostInput& input, const DeviceProfile& profile,
                           const DeviceState& state) {
  const double idle = std::clamp(1 - state.load, 0.0, 1.0) * profile.units;
  const double units = std::max(1.0, std::min<double>(input.units, idle));
  const Work work = work_of(input);
  CostEstimate cost;
  cost.flops = 2 * static_cast<double>(input.m) * static_cast<double>(input.n) *
               static_cast<double>(input.k) * static_cast<double>(input.batch);
  cost.bytes = minimal_bytes(input);
  cost.waves = work.tiles / units;
  cost.compute_us = compute_us(input, profile, work, units);
  cost.memory_us = memory_us(input, profile, state, work, units);
  cost.launch_us = profile.launch_us;
  if (work.tiles > 0 && input.family.backend == Backend::kCuda) {
    cost.launch_us += kFillUs + split_us(input, profile);
  }
  const double longer = std::max(cost.compute_us, cost.memory_us);
  const double shorter = std::min(cost.compute_us, cost.memory_us);
  cost.us = cost.launch_us + longer + kOverlapLoss * shorter;
  cost.repack_us = repack_us(input, profile);
  cost.energy_mj = energy_mj(cost, profile);
  cost.bound_by = cost.launch_us > longer            ? "launch"
                  : cost.compute_us > cost.memory_us ? "compute"
                                                     : "memory";
  return cost;
}

}  // namespace deepgemm::schedule
