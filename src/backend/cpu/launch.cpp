// One launch: tiles of C are shared out to threads. A tile of rows of A is packed first; then each
// thread multiplies it with columns of B and finishes the rows of its tile.
#include "backend/cpu/launch.hpp"

#include <algorithm>
#include <type_traits>

#include "backend/cpu/amx_product.hpp"
#include "backend/cpu/epilogue.hpp"
#include "backend/cpu/executable.hpp"
#include "backend/cpu/fma_product.hpp"
#include "backend/cpu/plain_epilogue.hpp"
#include "backend/cpu/product.hpp"
#include "schedule/candidates.hpp"

namespace deepgemm::cpu {
namespace {

// Packing less than this many values of A takes no longer than waking another thread.
constexpr int64_t kPackAlone = 32768;

bool is_one_value(const ScaleView& scales, int64_t k) {
  return scales.base == nullptr || scales.k_block >= k;
}

bool sums_are_integers(const Executable& executable, const Operands& operands,
                       const ProductInput& input) {
  const int64_t k = executable.problem.k;
  if (executable.multiplicand != Multiplicand::kInteger || !is_one_value(input.scale_a, k)) {
    return false;
  }
  return operands.packed_b != nullptr ? scales_constant_along_k(*operands.packed_b)
                                      : is_one_value(input.scale_b, k);
}

ProductInput product_input(const Executable& executable, const Operands& operands) {
  const intent::Problem& problem = executable.problem;
  const contract::Contract& contract = problem.contract;
  const gemm_operation_t operation = problem.operation;
  ProductInput input{executable, operands, {}, {}, {}, {}, false, {}};
  input.a = {operands.a, *source_of(problem.a.precision), problem.a.layout,
             operation == GEMM_OP_TN || operation == GEMM_OP_TT};
  if (operands.packed_b == nullptr) {
    input.b = {operands.b, *source_of(problem.b.precision), problem.b.layout,
               operation == GEMM_OP_NT || operation == GEMM_OP_TT};
  }
  input.scale_a = scale_view(contract.dequant_strategy, operands.scale_a, false,
                             contract.group_size, problem.k);
  input.scale_b =
      scale_view(contract.dequant_strategy, operands.scale_b, true, contract.group_size, problem.k);
  input.integers = sums_are_integers(executable, operands, input);
  return input;
}

// Norms of the operands, for plans that skip. Those of a dense B cost a small launch more than
// skipping can gain.
Skipping make_skipping(const ProductInput& input, uint8_t* workspace) {
  const Executable& executable = input.executable;
  const Operands& operands = input.operands;
  const PackedPanels* packed = operands.packed_b;
  const bool pays =
      packed != nullptr ? packed->norms.has_value() : operands.m >= schedule::kSkipRows;
  if (!executable.skip.active() || !pays || operands.alpha == 0) return {};
  SkipSetup setup = executable.skip;
  setup.block_k = FmaShape(executable.problem.k, executable.block_k, input.integers).chain;
  const SkipOperands read{input.a,
                          input.scale_a,
                          input.b,
                          input.scale_b,
                          packed != nullptr ? &*packed->norms : nullptr,
                          operands.m,
                          operands.alpha};
  Skipping skipping(setup, executable.problem, read, executable.kernels->f64,
                    workspace + executable.skip_offset());
  executable.pool->parallel_for(skipping.prepass_items(), executable.slots,
                                [&skipping](int64_t item, int) { skipping.run_prepass(item); });
  return skipping;
}

// A launch with one kind of product.
template <class Product>
class Launch {
 public:
  Launch(const Product& product, const ProductInput& input, void* workspace)
      : product_(product),
        executable_(input.executable),
        problem_(executable_.problem),
        operands_(input.operands),
        workspace_(static_cast<uint8_t*>(workspace)),
        slots_(workspace_ + executable_.slots_offset()),
        epilogue_(problem_, operands_, executable_.kernels->f64),
        plain_(input) {
    if (executable_.stochastic_output) epilogue_.round_stochastically();
    if (input.integers) {
      epilogue_.set_integer_scales(input.scale_a, input.scale_b, operands_.packed_b);
    }
  }

  void run();

 private:
  using Sum = typename Product::Sum;

  RowTile row_tile(int64_t item) const;
  Tile tile_of(const RowTile& rows, int64_t column_tile) const;
  void pack_all(const RowTile& rows, void* to) const;
  void run_shared(const RowTile& rows);
  void run_tile(const Tile& tile, const void* a, int slot) const;
  void finish(const Tile& tile, Sum* sums, double* row) const;

  const Product& product_;
  const Executable& executable_;
  const intent::Problem& problem_;
  const Operands& operands_;
  uint8_t* workspace_;
  uint8_t* slots_;
  Epilogue epilogue_;
  PlainEpilogue plain_;
  RowTile shared_;  // the rows that all threads work on
};

// One captured pointer fits into std::function itself.
template <class Product>
void Launch<Product>::run() {
  const int64_t items = problem_.batch * ceil_div(operands_.m, executable_.block_m);
  if (executable_.shares_a()) {
    for (int64_t item = 0; item < items; ++item) run_shared(row_tile(item));
    return;
  }
  executable_.pool->parallel_for(items, executable_.slots, [this](int64_t item, int slot) {
    const RowTile rows = row_tile(item);
    void* const a = workspace_ + slot * executable_.a_bytes();
    pack_all(rows, a);
    run_tile(tile_of(rows, 0), a, slot);
  });
}

template <class Product>
void Launch<Product>::run_shared(const RowTile& rows) {
  shared_ = rows;
  if (operands_.alpha != 0) {
    const bool alone = rows.rows * problem_.k < kPackAlone;
    executable_.pool->parallel_for(
        product_.pack_items(), alone ? 1 : executable_.slots,
        [this](int64_t item, int) { product_.pack_a(shared_, item, workspace_); });
  }
  executable_.pool->parallel_for(
      executable_.column_tiles(), executable_.slots,
      [this](int64_t item, int slot) { run_tile(tile_of(shared_, item), workspace_, slot); });
}

template <class Product>
void Launch<Product>::pack_all(const RowTile& rows, void* to) const {
  if (operands_.alpha == 0) return;
  for (int64_t item = 0; item < product_.pack_items(); ++item) product_.pack_a(rows, item, to);
}

template <class Product>
RowTile Launch<Product>::row_tile(int64_t item) const {
  const int64_t tiles = ceil_div(operands_.m, executable_.block_m);
  const int64_t row = item % tiles * executable_.block_m;
  return {item / tiles, row, std::min(executable_.block_m, operands_.m - row)};
}

template <class Product>
Tile Launch<Product>::tile_of(const RowTile& rows, int64_t column_tile) const {
  const int64_t width = executable_.tile_columns();
  Tile tile;
  tile.rows = rows;
  tile.columns.column = column_tile * width;
  tile.columns.columns = std::min(width, problem_.output_columns() - tile.columns.column);
  tile.segments[0] = {tile.columns.column, tile.columns.columns, 0};
  if (executable_.swiglu()) {
    tile.columns.up = executable_.padded_n() / 2;
    tile.segments[1] = {problem_.n / 2 + tile.columns.column, tile.columns.columns,
                        tile.columns.up};
    tile.segment_count = 2;
  }
  return tile;
}

template <class Product>
void Launch<Product>::run_tile(const Tile& tile, const void* a, int slot) const {
  uint8_t* const base = slots_ + slot * executable_.slot_bytes();
  const int64_t stride = executable_.sums_stride();
  Sum* const sums = reinterpret_cast<Sum*>(base);
  std::fill_n(sums, tile.rows.rows * stride, Sum{0});
  uint8_t* const scratch = base + executable_.sums_bytes();
  if (operands_.alpha != 0) product_.add_products(tile, a, scratch, sums, stride);
  finish(tile, sums, reinterpret_cast<double*>(scratch + executable_.scratch_bytes()));
}

template <class Product>
void Launch<Product>::finish(const Tile& tile, Sum* sums, double* row) const {
  const int64_t stride = executable_.sums_stride();
  if (plain_.covers()) {
    const float* factors = plain_.column_factors(tile, reinterpret_cast<float*>(row));
    for (int64_t i = 0; i < tile.rows.rows; ++i) {
      plain_.finish_row(tile, i, sums + i * stride, factors);
    }
    return;
  }
  for (int64_t i = 0; i < tile.rows.rows; ++i) {
    const int64_t place = tile.rows.row + i;
    double* wide = nullptr;
    if constexpr (std::is_same_v<Sum, double>) {
      wide = sums + i * stride;
    } else {
      wide = row + executable_.padded_n();
      std::copy_n(sums + i * stride, executable_.padded_n(), wide);
    }
    epilogue_.finish_row(tile.rows.batch, place, tile.columns, wide, row);
  }
}

template <class Product>
void run(const Product& product, const ProductInput& input, void* workspace) {
  Launch<Product>(product, input, workspace).run();
}

}  // namespace

void launch(const Executable& executable, const Operands& operands, void* workspace) {
  const intent::Problem& problem = executable.problem;
  if (operands.m == 0 || problem.output_columns() == 0 || problem.batch == 0) return;
  ProductInput input = product_input(executable, operands);
  const bool tiles = executable.amx != nullptr && fits_tiles(input);
  if (!tiles) input.skipping = make_skipping(input, static_cast<uint8_t*>(workspace));
  const bool wide = executable.multiplicand == Multiplicand::kDouble ||
                    (executable.multiplicand == Multiplicand::kInteger && !input.integers);
  if (tiles) {
    if (executable.multiplicand == Multiplicand::kInteger) {
      run(AmxProduct<int32_t>(*executable.amx, input), input, workspace);
    } else {
      run(AmxProduct<float>(*executable.amx, input), input, workspace);
    }
  } else if (wide) {
    run(FmaProduct<double>(executable.kernels->f64, input), input, workspace);
  } else {
    run(FmaProduct<float>(executable.kernels->f32, input), input, workspace);
  }
}

}  // namespace deepgemm::cpu
