#include "backend/cuda/tile_skips.hpp"

#include <algorithm>
#include <limits>

namespace deepgemm::cuda {
namespace {

static_assert(kernel::kSkipGranule == contract::kSkipGranule);
static_assert(kernel::kSkipMostBlocks == contract::TileSkips::kMostBlocks);

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t aligned(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

// Rows of A or columns of op(B) of all matrices; a batch that repeats one matrix has one.
struct Vectors {
  int64_t matrices, vectors, tiles;  // the latter of one matrix

  int64_t norm_items() const { return matrices * ceil_div(vectors, kernel::kSkipVectors); }
};

int64_t matrices_of(const intent::Problem& problem, const intent::Operand& operand) {
  return operand.layout.batch_stride == 0 ? 1 : problem.batch;
}

}  // namespace

std::array<SkipPass, kSkipPasses> skip_passes(const kernel::Config& config) {
  return {{{"skip_norms", "deepgemm_skip_norms", kernel::kSkipNormThreads,
            kernel::skip_norms_shared_bytes()},
           {"skip_merge", "deepgemm_skip_merge", kernel::kSkipMergeThreads,
            kernel::skip_merge_shared_bytes(config)},
           {"skip_decide", "deepgemm_skip_decide", kernel::kSkipDecideThreads, 0}}};
}

base::Result<SkipShape> skip_shape(const kernel::Config& config, const intent::Problem& problem,
                                   int64_t m) {
  SkipShape shape;
  if (!config.skips) return shape;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t granules = ceil_div(problem.k, kernel::kSkipGranule);
  const Vectors a = {matrices_of(problem, problem.a), m, ceil_div(m, config.block_m)};
  const Vectors b = {matrices_of(problem, problem.b), problem.n,
                     ceil_div(problem.output_columns(), config.output_columns(config.block_n))};
  const int64_t tiles = a.matrices * a.tiles + b.matrices * b.tiles;
  const int64_t groups = a.norm_items() + b.norm_items();
  if (groups > kMost / std::max<int64_t>(granules, 1) || tiles > kMost) {
    return base::make_error(DEEPGEMM_ERROR_UNSUPPORTED,
                            "tile skipping has {} x {} norms to find, more than the {} of GPU "
                            "kernels: set skip_tolerance to 0",
                            groups, granules, kMost);
  }
  const int64_t vectors = a.matrices * a.vectors + b.matrices * b.vectors;
  const int64_t tiles_of_c = problem.batch * a.tiles * b.tiles;
  const int64_t blocks = ceil_div(problem.k, config.block_k);
  const int64_t judged = std::min<int64_t>(blocks, kernel::kSkipMostBlocks);
  constexpr int64_t kWarps = kernel::kSkipDecideThreads / 32;  // each takes a tile
  shape.items = {groups * granules, tiles, ceil_div(tiles_of_c, kWarps)};
  shape.norms = aligned(vectors * granules * kernel::kSkipNormsOfVector * int64_t{sizeof(float)});
  shape.merged = aligned(tiles * granules * kernel::kSkipNormsOfTile * int64_t{sizeof(float)});
  shape.weights = aligned(tiles * int64_t{sizeof(float)});
  shape.kept = aligned(tiles_of_c * judged * int64_t{sizeof(uint16_t)});
  shape.counts = aligned(tiles_of_c * int64_t{sizeof(uint32_t)});
  return shape;
}

kernel::SkipArguments skip_arguments(const SkipShape& shape, void* memory,
                                     const contract::SkipAllowance& allowance) {
  auto* next = static_cast<std::byte*>(memory);
  const auto take = [&](int64_t bytes) {
    std::byte* const taken = next;
    next += bytes;
    return static_cast<void*>(taken);
  };
  kernel::SkipArguments to = {};
  to.norms = static_cast<float*>(take(shape.norms));
  to.merged = static_cast<float*>(take(shape.merged));
  to.weights = static_cast<float*>(take(shape.weights));
  to.kept = static_cast<unsigned short*>(take(shape.kept));
  to.counts = static_cast<unsigned int*>(take(shape.counts));
  to.relative = allowance.relative;
  to.absolute = allowance.absolute;
  return to;
}

}  // namespace deepgemm::cuda
