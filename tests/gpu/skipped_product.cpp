#include "skipped_product.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/formats.hpp"
#include "contract/skip_testing.hpp"

namespace deepgemm::cuda {
namespace {

bool swiglu(const intent::Problem& problem) {
  return problem.epilogue.activation == GEMM_ACTIVATION_SWIGLU;
}

}  // namespace

SkippedProduct::SkippedProduct(Gpu& gpu, SkipBuffers& buffers, const KernelCase& one, int64_t m,
                               int64_t n, int64_t k)
    : gpu_(gpu), buffers_(buffers), one_(one), problem_(problem_of(one, m, n, k)) {}

bool SkippedProduct::prepare() {
  const auto spec = spec_of(one_, problem_, gpu_.arch());
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
  if (!spec.ok()) return false;
  spec_ = *spec;
  EXPECT_TRUE(spec_.config.skips);
  const auto shape = launch_shape(spec_, problem_, problem_.m, std::max(one_.config.split_k, 1));
  EXPECT_TRUE(shape.ok()) << (shape.ok() ? "" : shape.error().message);
  if (!shape.ok()) return false;
  shape_ = *shape;
  rows_ = ceil_div(problem_.m, spec_.config.block_m);
  columns_ = ceil_div(problem_.output_columns(), spec_.config.output_columns(spec_.config.block_n));
  return gpu_.kernel(spec_, shape_.shared_bytes).function != nullptr;
}

void SkippedProduct::fill(const intent::Operand& operand, bool k_is_row, const Element& element,
                          MirroredBuffer& buffer, Values& values) {
  const layout::MatrixLayout& layout = operand.layout;
  const auto bytes = layout::buffer_bytes(layout, operand.precision);
  buffer.reset(bytes.ok() ? static_cast<size_t>(*bytes) : 0);
  values.vectors = k_is_row ? layout.cols : layout.rows;
  values.k = problem_.k;
  values.list.assign(static_cast<size_t>(problem_.batch * values.vectors * values.k), 0);
  const int64_t matrices = layout.batch_stride == 0 ? 1 : problem_.batch;
  for (int64_t b = 0; b < problem_.batch; ++b) {
    for (int64_t vector = 0; vector < values.vectors; ++vector) {
      for (int64_t k = 0; k < values.k; ++k) {
        const double stored = base::round_to(operand.precision, element(b % matrices, vector, k));
        values.at(b, vector, k) = stored;
        base::encode(operand.precision, buffer.host(),
                     k_is_row ? layout::element_offset(layout, b, k, vector)
                              : layout::element_offset(layout, b, vector, k),
                     stored);
      }
    }
  }
  buffer.upload();
}

void SkippedProduct::fill(const Element& a, const Element& b) {
  fill(problem_.a, one_.operation[0] == 't', a, buffers_.a, a_);
  fill(problem_.b, one_.operation[1] == 'n', b, buffers_.b, b_);
  const std::vector<float> ones(static_cast<size_t>(problem_.m + problem_.n), 1);
  for (MirroredBuffer* factors : {&buffers_.scale_a, &buffers_.scale_b}) {
    factors->reset(ones.size() * 4);
    std::memcpy(factors->host(), ones.data(), ones.size() * 4);
    factors->upload();
  }
  buffers_.bias.reset(static_cast<size_t>(problem_.n) * 8);
  std::memset(buffers_.bias.host(), 0, static_cast<size_t>(problem_.n) * 8);
  buffers_.bias.upload();
  buffers_.counters.reset(static_cast<size_t>(shape_.counters) * 4);
  std::memset(buffers_.counters.host(), 0, static_cast<size_t>(shape_.counters) * 4);
  buffers_.counters.upload();
}

void SkippedProduct::set_row_factor(int64_t row, float factor) {
  std::memcpy(buffers_.scale_a.host() + row * 4, &factor, 4);
  buffers_.scale_a.upload();
}

LaunchOperands SkippedProduct::operands(const contract::SkipAllowance& allowance) {
  LaunchOperands to;
  to.a = buffers_.a.device();
  to.b = buffers_.b.device();
  to.c = buffers_.c.device();
  to.bias = buffers_.bias.device();
  to.scale_a = static_cast<const float*>(buffers_.scale_a.device());
  to.scale_b = static_cast<const float*>(buffers_.scale_b.device());
  to.alpha = problem_.alpha;
  to.beta = 0;
  to.m = problem_.m;
  to.splits = std::max(one_.config.split_k, 1);
  to.raster = 1;  // tiles are numbered row by row
  to.partials = buffers_.partials.device();
  to.counters = static_cast<uint32_t*>(buffers_.counters.device());
  to.skip_memory = buffers_.skips.device();
  to.skip_allowance = allowance;
  return to;
}

bool SkippedProduct::launch(const Kernel& kernel, int threads, int64_t items, int64_t blocks,
                            const kernel::GemmArguments& arguments) {
  LaunchShape shape;
  shape.threads = threads;
  shape.items = items;
  EXPECT_EQ(kernel.facts.local_bytes, 0) << kernel.symbol << " spills registers";
  return gpu_.launch(kernel, shape, blocks, arguments);
}

SkipResult SkippedProduct::run(const contract::SkipAllowance& allowance, int64_t blocks) {
  const auto bytes = layout::buffer_bytes(problem_.c.layout, problem_.c.precision);
  const auto c_bytes = bytes.ok() ? *bytes : 0;
  for (auto [buffer, size] : {std::pair{&buffers_.c, c_bytes},
                              {&buffers_.partials, shape_.partial_bytes},
                              {&buffers_.skips, shape_.skips.bytes()}}) {
    buffer->reset(static_cast<size_t>(size));
    buffer->upload();
  }
  const kernel::GemmArguments arguments = launch_arguments(spec_, problem_, operands(allowance));
  const auto passes = skip_passes(spec_.config);
  for (size_t i = 0; i < passes.size(); ++i) {
    const Kernel kernel = gpu_.kernel(spec_, passes[i]);
    if (kernel.function == nullptr ||
        !launch(kernel, passes[i].threads, shape_.skips.items[i], blocks, arguments)) {
      return {};
    }
  }
  const Kernel product = gpu_.kernel(spec_, shape_.shared_bytes);
  if (!launch(product, shape_.threads, shape_.items, blocks, arguments)) return {};
  SkipResult result;
  result.kept = download_kept();
  buffers_.c.download();
  if (!gpu_.synchronize()) return {};
  EXPECT_TRUE(buffers_.c.guards_intact());
  result.c = {buffers_.c.host(), buffers_.c.host() + c_bytes};
  return result;
}

// The lists, which must be in order and without repetition.
Blocks SkippedProduct::download_kept() {
  buffers_.skips.download();
  if (!gpu_.synchronize()) return {};
  EXPECT_TRUE(buffers_.skips.guards_intact());
  const kernel::SkipArguments places = skip_arguments(shape_.skips, buffers_.skips.host(), {});
  const int64_t judged = std::min<int64_t>(blocks(), kernel::kSkipMostBlocks);
  Blocks kept(static_cast<size_t>(problem_.batch * rows_ * columns_));
  for (size_t tile = 0; tile < kept.size(); ++tile) {
    kept[tile].assign(static_cast<size_t>(blocks()), false);
    const unsigned count = places.counts[tile];
    EXPECT_LE(count, judged);
    if (count > judged) return {};
    std::optional<int> before;
    for (unsigned i = 0; i < count; ++i) {
      const int block = places.kept[static_cast<int64_t>(tile) * judged + i];
      EXPECT_TRUE(block < judged && (!before || block > *before)) << "tile " << tile;
      if (block < blocks()) kept[tile][static_cast<size_t>(block)] = true;
      before = block;
    }
    std::fill(kept[tile].begin() + judged, kept[tile].end(), true);
  }
  return kept;
}

Blocks SkippedProduct::kept_by_rule(const contract::SkipAllowance& allowance) {
  const kernel::Config& config = spec_.config;
  const int64_t width = config.output_columns(config.block_n);
  const int64_t half = problem_.n / 2;
  Blocks kept;
  for (int64_t batch = 0; batch < problem_.batch; ++batch) {
    for (int64_t tile = 0; tile < rows_ * columns_; ++tile) {
      const int64_t row = tile / columns_ * config.block_m;
      const int64_t column = tile % columns_ * width;
      const int64_t rows = std::min<int64_t>(config.block_m, problem_.m - row);
      const int64_t columns = std::min(width, problem_.output_columns() - column);
      const auto a = contract::norms_of(
          rows, problem_.k, [&](int64_t i, int64_t k) { return a_.at(batch, row + i, k); });
      const auto b = contract::norms_of(
          swiglu(problem_) ? 2 * columns : columns, problem_.k, [&](int64_t j, int64_t k) {
            return b_.at(batch, j < columns ? column + j : half + column + j - columns, k);
          });
      const contract::TileSkips skips(allowance, problem_.alpha, problem_.k, config.block_k,
                                      contract::view(a), contract::view(b));
      std::vector<bool>& blocks_kept = kept.emplace_back();
      for (int64_t block = 0; block < blocks(); ++block) {
        blocks_kept.push_back(!skips.skipped(block));
      }
    }
  }
  return kept;
}

size_t SkippedProduct::tile_of(int64_t batch, int64_t row, int64_t column) const {
  const kernel::Config& config = spec_.config;
  const int64_t output = swiglu(problem_) ? column % (problem_.n / 2) : column;
  const int64_t tile = (batch * rows_ + row / config.block_m) * columns_ +
                       output / config.output_columns(config.block_n);
  return static_cast<size_t>(tile);
}

SkippedProduct::Sums SkippedProduct::sums(const Blocks& kept, int64_t batch, int64_t row,
                                          int64_t column) {
  const std::vector<bool>& blocks = kept[tile_of(batch, row, column)];
  Sums sums;
  for (int64_t k = 0; k < problem_.k; ++k) {
    const double product = a_.at(batch, row, k) * b_.at(batch, column, k);
    sums.all += std::abs(product);
    if (blocks[static_cast<size_t>(block_of(k))]) {
      sums.kept += product;
    } else {
      sums.left_out += std::abs(product);
    }
  }
  return sums;
}

double SkippedProduct::output(const SkipResult& result, int64_t batch, int64_t row,
                              int64_t column) const {
  return base::decode(problem_.c.precision, result.c.data(),
                      layout::element_offset(problem_.c.layout, batch, row, column));
}

}  // namespace deepgemm::cuda
