// First pass of tile skipping: norms of every vector of A and B within every granule of k.
//
// A block takes 32 vectors and one granule, brings their magnitudes to shared memory in whatever
// order they are contiguous, and adds them up with vectors along the lanes. Sums are therefore the
// same for every layout and number of blocks.
#pragma once

#include "memory/operand.cuh"
#include "skip/sizes.cuh"

namespace deepgemm::kernel {

// The product reads the operand once more.
constexpr Operand read_again(Operand operand) {
  operand.streaming = false;
  return operand;
}

template <Config C, i32 kSide>
struct GranuleNorms {
  static constexpr Operand kOperand = read_again(kSide == kSideA ? C.a : C.b);
  static constexpr bool kAlongRows = along_rows(kOperand.access);
  // Neighbours that a lane loads together.
  static constexpr i32 kRun =
      larger(smaller(kOperand.width, 16) / format_bytes(kOperand.format), 1);
  static constexpr i32 kWarps = kSkipNormThreads / 32;
  static constexpr i32 kEach = kSkipGranule / kWarps;  // values of a vector that a thread adds up
  static constexpr i32 kRuns = kEach / kRun;           // that a thread loads
  static constexpr i32 kSegments = kSkipGranule / 32;
  // Vectors a word apart modulo the banks: lanes that take the same k of neighbouring vectors, or
  // neighbouring runs, do not meet.
  static constexpr i32 kPitch = kSkipGranule + 1;
  static_assert(kSkipVectors == 32 && kWarps >= kSkipNormsOfVector);

  const SkipSizes<C>& sizes;
  u32 shared;

  // Item: 32 vectors of a matrix in one granule; those that lie together follow each other.
  PTX_FN static u32 items(const SkipSizes<C>& sizes) {
    return static_cast<u32>(sizes.matrices[kSide]) *
           static_cast<u32>(ceil_div(sizes.vectors[kSide], kSkipVectors)) *
           static_cast<u32>(sizes.granules);
  }

  PTX_FN void run_item(const OperandArgument& operand, u32 item) const {
    const u32 groups = static_cast<u32>(ceil_div(sizes.vectors[kSide], kSkipVectors));
    const u32 granules = static_cast<u32>(sizes.granules);
    const u32 matrix = item / (groups * granules);
    const u32 inside = item - matrix * groups * granules;
    const u32 group = kAlongRows ? inside % groups : inside / granules;
    const u32 granule = kAlongRows ? inside / groups : inside % granules;
    const Panel panel = panel_of<kOperand>(operand, matrix, sizes.vectors[kSide], sizes.k);
    const i32 first = static_cast<i32>(group) * kSkipVectors;
    load(panel, first, static_cast<i32>(granule) * kSkipGranule);
    ptx::warp_sync();
    ptx::block_sync();
    reduce(static_cast<i32>(matrix), static_cast<i32>(granule), first);
  }

  PTX_FN static u32 word(i32 vector, i32 k) { return static_cast<u32>(vector * kPitch + k) * 4; }

  // A warp takes kRun x 32 values at a time: runs that follow each other, of kRun lines.
  PTX_FN void load(const Panel& panel, i32 first, i32 k) const {
    const i32 line = static_cast<i32>(ptx::lane()) % kRun;
    const i32 along = static_cast<i32>(ptx::lane()) / kRun * kRun;
    PTX_UNROLL for (i32 i = 0; i < kRuns; ++i) {
      const i32 part = i * kWarps + static_cast<i32>(ptx::warp());
      const i32 vector = kAlongRows ? along : part / kSegments * kRun + line;
      const i32 at = kAlongRows ? part * kRun + line : part % kSegments * 32 + along;
      float run[kRun];
      load_run<kOperand, kAlongRows>(panel, first + vector, k + at, run);
      PTX_UNROLL for (i32 j = 0; j < kRun; ++j) {
        const u32 to = kAlongRows ? word(vector + j, at) : word(vector, at + j);
        ptx::store_shared(shared + to, ptx::Words<4>{{ptx::bits_of(run[j]) & 0x7FFFFFFF}});
      }
    }
  }

  // What the warps know of a vector each, at the end of the shared memory.
  PTX_FN u32 part(i32 warp, SkipNorm which) const {
    return shared + word(kSkipVectors, 0) +
           ((static_cast<u32>(which) * kWarps + static_cast<u32>(warp)) * 32 + ptx::lane()) * 4;
  }
  PTX_FN float read(i32 warp, SkipNorm which) const {
    return value_of<float>(ptx::load_shared<4>(part(warp, which)), 0);
  }

  // Vectors along the lanes; each warp has a quarter of the granule.
  PTX_FN void reduce(i32 matrix, i32 granule, i32 first) const {
    const i32 lane = static_cast<i32>(ptx::lane()), warp = static_cast<i32>(ptx::warp());
    float values[kEach];
    float sum = 0;
    u32 largest = 0;  // bits: NaN is above infinity
    PTX_UNROLL for (i32 i = 0; i < kEach; ++i) {
      const u32 bits = ptx::load_shared<4>(shared + word(lane, warp * kEach + i)).word[0];
      values[i] = ptx::float_of(bits);
      sum = ptx::add_up(sum, values[i]);
      largest = bits > largest ? bits : largest;
    }
    ptx::store_shared(part(warp, kSkipSum), words_of(sum));
    ptx::store_shared(part(warp, kSkipLargest), ptx::Words<4>{{largest}});
    ptx::warp_sync();
    ptx::block_sync();
    sum = 0;
    PTX_UNROLL for (i32 w = 0; w < kWarps; ++w) {
      const u32 other = ptx::load_shared<4>(part(w, kSkipLargest)).word[0];
      sum = ptx::add_up(sum, read(w, kSkipSum));
      largest = other > largest ? other : largest;
    }
    const bool finite = largest < kInfinityBits && is_finite(sum);
    const i32 count = smaller(kSkipGranule, sizes.k - granule * kSkipGranule);
    const float threshold = skip_threshold(sum, count);
    i32 above = 0;
    PTX_UNROLL for (i32 i = 0; i < kEach; ++i) above += values[i] >= threshold ? 1 : 0;
    ptx::store_shared(part(warp, kSkipAbove), words_of(static_cast<float>(above)));
    ptx::warp_sync();
    ptx::block_sync();
    float counted = 0;
    PTX_UNROLL for (i32 w = 0; w < kWarps; ++w) counted += read(w, kSkipAbove);
    const i32 vector = first + lane;
    if (vector >= sizes.vectors[kSide] || warp >= kSkipNormsOfVector) return;
    const SkipNorm which = static_cast<SkipNorm>(warp);
    const float infinity = ptx::float_of(kInfinityBits);
    const float value = which == kSkipSum       ? (finite ? sum : infinity)
                        : which == kSkipLargest ? (finite ? ptx::float_of(largest) : infinity)
                                                : (finite ? counted : 0.0F);
    ptx::store_global(sizes.norms(kSide, matrix, granule, which) + vector, words_of(value));
  }
};

template <Config C>
PTX_FN void skip_norms(const GemmArguments& arguments) {
  ptx::wait_for_previous_grid();
  const SkipSizes<C> sizes(arguments);
  const GranuleNorms<C, kSideA> a{sizes, ptx::shared_memory()};
  const GranuleNorms<C, kSideB> b{sizes, ptx::shared_memory()};
  const u32 items_a = a.items(sizes), items = items_a + b.items(sizes);
  PTX_ROLLED for (u32 item = ptx::block(); item < items; item += ptx::blocks()) {
    if (item < items_a) {
      a.run_item(arguments.a, item);
    } else {
      b.run_item(arguments.b, item - items_a);
    }
    ptx::warp_sync();
    ptx::block_sync();
  }
}

}  // namespace deepgemm::kernel
