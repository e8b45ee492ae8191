#include "layout/matrix_layout.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/formats.hpp"
#include "base/raw_value.hpp"

namespace deepgemm::layout {
namespace {

__extension__ using Wide = __int128;  // holds any product of two 63-bit values

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

Wide magnitude(int64_t value) { return value < 0 ? -static_cast<Wide>(value) : value; }

// One dimension of a strided layout.
struct Dimension {
  int64_t size;
  int64_t stride;
};

std::array<Dimension, 3> dimensions(const MatrixLayout& layout) {
  return {{{layout.batch, layout.batch_stride},
           {layout.rows, layout.row_stride},
           {layout.cols, layout.col_stride}}};
}

bool is_empty(const MatrixLayout& layout) {
  return layout.batch <= 0 || layout.rows <= 0 || layout.cols <= 0;
}

base::Error too_large(const MatrixLayout& layout) {
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                          "A matrix of {} x {} x {} elements with strides {{{}, {}, {}}} reaches "
                          "offsets beyond 63 bits; "
                          "give smaller sizes or strides.",
                          layout.batch, layout.rows, layout.cols, layout.batch_stride,
                          layout.row_stride, layout.col_stride);
}

Wide blocked_tiles(int64_t rows, int64_t cols) {
  return static_cast<Wide>(ceil_div(rows, kBlockedTile)) * ceil_div(cols, kBlockedTile);
}

// ---- Overlap
// -------------------------------------------------------------------------------------

Wide floor_div(Wide a, Wide b) {  // b > 0
  const Wide quotient = a / b;
  return quotient * b > a ? quotient - 1 : quotient;
}

// a * x = 1 modulo m, for a and m without common divisor, m >= 1.
Wide inverse(Wide a, Wide m) {
  Wide old_rest = a % m, rest = m;
  Wide old_factor = 1, factor = 0;
  while (rest != 0) {
    const Wide quotient = old_rest / rest;
    old_rest -= quotient * rest;
    std::swap(old_rest, rest);
    old_factor -= quotient * factor;
    std::swap(old_factor, factor);
  }
  return (old_factor % m + m) % m;
}

// Do two index differences |x| < p.size and |y| < q.size, not both zero, give x*p.stride +
// y*q.stride = distance? Strides are positive here.
class DifferenceSolver {
 public:
  DifferenceSolver(const Dimension& p, const Dimension& q)
      : p_(p), q_(q), divisor_(std::gcd(p.stride, q.stride)), step_(q.stride / divisor_) {
    inverse_ = inverse(p.stride / divisor_, step_);
  }

  bool reaches(Wide distance) const {
    if (distance % divisor_ != 0) return false;
    // x may be any first + t * step_ that keeps y = (distance - x*p.stride) / q.stride in range.
    const Wide reach = static_cast<Wide>(q_.stride) * (q_.size - 1);
    const Wide lowest = std::max(-floor_div(reach - distance, p_.stride), -Wide{p_.size - 1});
    const Wide highest = std::min(floor_div(distance + reach, p_.stride), Wide{p_.size - 1});
    const Wide first = (distance / divisor_ % step_ * inverse_ % step_ + step_) % step_;
    const Wide above = lowest + ((first - lowest) % step_ + step_) % step_;
    // x = 0, y = 0 is the element itself; where it is the lowest x, symmetry leaves no other.
    const bool itself = distance == 0 && above == 0;
    return above <= highest && !itself;
  }

 private:
  Dimension p_, q_;
  int64_t divisor_, step_;
  Wide inverse_;
};

// Exact for strides > 0; dimensions of size 1 have the largest stride.
bool strided_overlap(std::array<Dimension, 3> dims) {
  std::ranges::sort(dims, {}, &Dimension::stride);
  Wide inner_reach = 0;
  Wide elements = 1;
  bool nested = true;  // each stride steps over all that lies further in
  for (const Dimension& dim : dims) {
    nested = nested && dim.stride > inner_reach;
    inner_reach += static_cast<Wide>(dim.stride) * (dim.size - 1);
    if (elements <= kLargest) elements *= dim.size;
  }
  if (nested) return false;
  if (elements > inner_reach + 1) return true;  // more elements than addresses

  // Try every difference along the smallest dimension; those below zero mirror those above.
  std::ranges::sort(dims, {}, &Dimension::size);
  const DifferenceSolver solver(dims[1], dims[2]);
  for (int64_t step = 0; step < dims[0].size; ++step) {
    if (solver.reaches(static_cast<Wide>(step) * dims[0].stride)) return true;
  }
  return false;
}

// ---- Declared layouts
// ----------------------------------------------------------------------------

constexpr const char* kDimensionNames[] = {"batch", "rows", "columns"};

base::Result<void> check_enums(const gemm_layout_t& declared, const char* name) {
  struct Field {
    const char* field;
    int value;
    int last;
  };
  const Field fields[] = {
      {"physical_layout", base::raw_value(declared.physical_layout), LAYOUT_STREAMING},
      {"memory_space", base::raw_value(declared.memory_space), MEM_SPACE_HOST_PINNED},
      {"access_pattern", base::raw_value(declared.access_pattern), ACCESS_PATTERN_REUSED}};
  for (const Field& field : fields) {
    if (field.value < 0 || field.value > field.last) {
      return base::make_error(
          DEEPGEMM_ERROR_INVALID_ARGUMENT,
          "Layout of {}: {} is {}, which is not a value of its enumeration; use 0 "
          "... {}.",
          name, field.field, field.value, field.last);
    }
  }
  return {};
}

base::Result<void> check_shape(const gemm_layout_t& declared, const std::array<int64_t, 3>& sizes,
                               const char* name) {
  for (int i = 0; i < 3; ++i) {
    if (sizes[i] < 0) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "{} has {} {}; sizes must be 0 or more.", name, sizes[i],
                              kDimensionNames[i]);
    }
    const int64_t shape = declared.logical_shape[i];
    if (shape != 0 && shape != sizes[i]) {
      return base::make_error(
          DEEPGEMM_ERROR_INVALID_ARGUMENT,
          "Layout of {}: logical_shape[{}] ({}) is {}, but the problem stores {} as {} x {} x {}; "
          "set "
          "it to {}, or to 0 to take it from the problem{}.",
          name, i, kDimensionNames[i], shape, name, sizes[0], sizes[1], sizes[2], sizes[i],
          i == 0 && shape == 1 ? " (strides[0] = GEMM_STRIDE_BROADCAST shares one matrix)" : "");
    }
  }
  return {};
}

base::Result<MatrixLayout> resolve_blocked(const gemm_layout_t& declared,
                                           const std::array<int64_t, 3>& sizes, const char* name) {
  for (int i = 0; i < 3; ++i) {
    if (declared.strides[i] != 0) {
      return base::make_error(
          DEEPGEMM_ERROR_INVALID_ARGUMENT,
          "Layout of {}: strides[{}] is {}, but LAYOUT_BLOCKED_16x16 has no strides; "
          "set it to 0.",
          name, i, declared.strides[i]);
    }
  }
  MatrixLayout layout{sizes[0], sizes[1], sizes[2], 0, 0, 1, true};
  const Wide stride = blocked_tiles(sizes[1], sizes[2]) * kBlockedTile * kBlockedTile;
  if (stride > kLargest) return too_large(layout);
  layout.batch_stride = static_cast<int64_t>(stride);
  return layout;
}

// Strides by dimension {batch, row, column}, filled from the innermost dimension outwards.
base::Result<std::array<int64_t, 3>> fill_strides(const gemm_layout_t& declared,
                                                  const std::array<int64_t, 3>& sizes) {
  const bool by_columns = declared.physical_layout == LAYOUT_COL_MAJOR;
  const int order[] = {by_columns ? 1 : 2, by_columns ? 2 : 1, 0};
  std::array<int64_t, 3> strides{};
  Wide span = 1;  // elements that the dimensions further in reach over
  for (const int i : order) {
    const int64_t given = declared.strides[i];
    if (given == GEMM_STRIDE_BROADCAST && sizes[i] > 1) continue;
    const bool contiguous = given == 0 || sizes[i] <= 1;
    const Wide stride = contiguous ? span : magnitude(given);
    if (stride > kLargest) {
      return too_large({sizes[0], sizes[1], sizes[2], declared.strides[0], declared.strides[1],
                        declared.strides[2], false});
    }
    strides[i] = contiguous ? static_cast<int64_t>(stride) : given;
    span = std::max(span, stride * std::max<int64_t>(sizes[i], 1));
  }
  return strides;
}

base::Result<void> check_output(const MatrixLayout& layout, const gemm_layout_t& declared,
                                const char* name) {
  const std::array<int64_t, 3> sizes = {layout.batch, layout.rows, layout.cols};
  for (int i = 0; i < 3; ++i) {
    if (declared.strides[i] == GEMM_STRIDE_BROADCAST && sizes[i] > 1) {
      return base::make_error(
          DEEPGEMM_ERROR_INVALID_ARGUMENT,
          "Layout of {}: strides[{}] is GEMM_STRIDE_BROADCAST, but {} is written and "
          "its {} {} need places of their own; use 0 for contiguous.",
          name, i, name, sizes[i], kDimensionNames[i]);
    }
  }
  if (overlaps_itself(layout)) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "Layout of {}: with strides {{{}, {}, {}}} elements of its {} x {} x "
                            "{} share an address, but {} "
                            "is written; raise the strides, or use 0 for contiguous.",
                            name, layout.batch_stride, layout.row_stride, layout.col_stride,
                            layout.batch, layout.rows, layout.cols, name);
  }
  return {};
}

// ---- Copies
// --------------------------------------------------------------------------------------

// Columns from `col` on that lie one after another.
int64_t contiguous_columns(const MatrixLayout& layout, int64_t col) {
  const int64_t left = layout.cols - col;
  if (layout.blocked) return std::min(left, kBlockedTile - col % kBlockedTile);
  return layout.col_stride == 1 ? left : 1;
}

void copy_runs(char* destination, const MatrixLayout& to, const char* source,
               const MatrixLayout& from, int64_t size) {
  for (int64_t b = 0; b < to.batch; ++b) {
    for (int64_t r = 0; r < to.rows; ++r) {
      for (int64_t c = 0; c < to.cols;) {
        const int64_t run = std::min(contiguous_columns(to, c), contiguous_columns(from, c));
        std::memcpy(destination + element_offset(to, b, r, c) * size,
                    source + element_offset(from, b, r, c) * size, static_cast<size_t>(run * size));
        c += run;
      }
    }
  }
}

// Element by element, in squares that stay in the cache when one side is transposed.
template <size_t kSize>
void copy_elements(char* destination, const MatrixLayout& to, const char* source,
                   const MatrixLayout& from) {
  constexpr int64_t kSquare = 32;
  constexpr int64_t kBytes = kSize;
  for (int64_t b = 0; b < to.batch; ++b) {
    for (int64_t r0 = 0; r0 < to.rows; r0 += kSquare) {
      for (int64_t c0 = 0; c0 < to.cols; c0 += kSquare) {
        for (int64_t r = r0; r < std::min(r0 + kSquare, to.rows); ++r) {
          for (int64_t c = c0; c < std::min(c0 + kSquare, to.cols); ++c) {
            std::memcpy(destination + element_offset(to, b, r, c) * kBytes,
                        source + element_offset(from, b, r, c) * kBytes, kSize);
          }
        }
      }
    }
  }
}

void zero_edge_tiles(char* destination, const MatrixLayout& layout, int64_t size) {
  const int64_t tile_bytes = kBlockedTile * kBlockedTile * size;
  for (int64_t b = 0; b < layout.batch; ++b) {
    for (int64_t r = 0; r < layout.rows; r += kBlockedTile) {
      for (int64_t c = 0; c < layout.cols; c += kBlockedTile) {
        const bool whole = r + kBlockedTile <= layout.rows && c + kBlockedTile <= layout.cols;
        if (whole) continue;
        std::memset(destination + element_offset(layout, b, r, c) * size, 0,
                    static_cast<size_t>(tile_bytes));
      }
    }
  }
}

base::Result<int> check_convert(const void* destination, const MatrixLayout& to, const void* source,
                                const MatrixLayout& from, gemm_precision_t precision) {
  const base::FormatInfo* info = base::find_format(precision);
  if (info == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "precision {} names no number format; give one of gemm_precision_t.",
                            static_cast<int>(precision));
  }
  if (info->storage_bits < 8) {
    return base::make_error(
        DEEPGEMM_ERROR_UNSUPPORTED,
        "Layouts of {} are not converted element by element, because two values "
        "share a byte; use deepgemm_pack_weights.",
        info->name);
  }
  if (to.batch != from.batch || to.rows != from.rows || to.cols != from.cols) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "The source layout has {} x {} x {} elements and the destination {} x {} x "
        "{}; both must give the same logical_shape.",
        from.batch, from.rows, from.cols, to.batch, to.rows, to.cols);
  }
  if (is_empty(to)) return info->storage_bits / 8;
  if (destination == nullptr || source == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT, "{} is null; give a buffer.",
                            destination == nullptr ? "destination" : "source");
  }
  DEEPGEMM_TRY(buffer_bytes(from, precision));
  DEEPGEMM_TRY(buffer_bytes(to, precision));
  if (overlaps_itself(to)) {
    return base::make_error(
        DEEPGEMM_ERROR_INVALID_ARGUMENT,
        "Elements of the destination share an address (strides {{{}, {}, {}}}); "
        "raise its strides.",
        to.batch_stride, to.row_stride, to.col_stride);
  }
  return info->storage_bits / 8;
}

}  // namespace

int64_t element_offset(const MatrixLayout& layout, int64_t batch, int64_t row, int64_t col) {
  if (!layout.blocked) {
    return batch * layout.batch_stride + row * layout.row_stride + col * layout.col_stride;
  }
  const int64_t tile =
      row / kBlockedTile * ceil_div(layout.cols, kBlockedTile) + col / kBlockedTile;
  return batch * layout.batch_stride + tile * (kBlockedTile * kBlockedTile) +
         row % kBlockedTile * kBlockedTile + col % kBlockedTile;
}

base::Result<Extent> extent(const MatrixLayout& layout) {
  if (is_empty(layout)) return Extent{};
  Wide first = 0;
  Wide last = 0;
  std::array<Dimension, 3> dims = dimensions(layout);
  if (layout.blocked) {  // the tiles of a matrix are one contiguous dimension
    const Wide elements = blocked_tiles(layout.rows, layout.cols) * kBlockedTile * kBlockedTile;
    if (elements > kLargest) return too_large(layout);
    dims = {{dims[0], {static_cast<int64_t>(elements), 1}, {1, 0}}};
  }
  for (const Dimension& dim : dims) {
    const Wide reach = static_cast<Wide>(dim.stride) * (dim.size - 1);
    (reach < 0 ? first : last) += reach;
  }
  if (last - first >= kLargest || first < -static_cast<Wide>(kLargest)) return too_large(layout);
  return Extent{static_cast<int64_t>(first), static_cast<int64_t>(last)};
}

base::Result<MatrixLayout> resolve(const gemm_layout_t& declared, int64_t batch, int64_t rows,
                                   int64_t cols, const char* name, bool is_output) {
  const std::array<int64_t, 3> sizes = {batch, rows, cols};
  DEEPGEMM_TRY(check_enums(declared, name));
  DEEPGEMM_TRY(check_shape(declared, sizes, name));
  if (declared.physical_layout == LAYOUT_BLOCKED_16x16) {
    DEEPGEMM_TRY_ASSIGN(blocked, resolve_blocked(declared, sizes, name));
    DEEPGEMM_TRY(extent(blocked));
    return blocked;
  }
  DEEPGEMM_TRY_ASSIGN(strides, fill_strides(declared, sizes));
  const MatrixLayout layout{batch, rows, cols, strides[0], strides[1], strides[2], false};
  DEEPGEMM_TRY(extent(layout));
  if (is_output) DEEPGEMM_TRY(check_output(layout, declared, name));
  return layout;
}

bool overlaps_itself(const MatrixLayout& layout) {
  if (is_empty(layout) || layout.blocked) return false;
  if (!extent(layout).ok()) return true;
  std::array<Dimension, 3> dims = dimensions(layout);
  for (Dimension& dim : dims) {
    if (dim.stride == 0 && dim.size > 1) return true;
    // Differences of indices have either sign, so that of the stride does not matter.
    dim.stride = dim.size == 1 ? kLargest : std::abs(dim.stride);
  }
  return strided_overlap(dims);
}

MatrixLayout transposed(const MatrixLayout& layout) {
  if (layout.blocked) return layout;
  return {layout.batch,      layout.cols,       layout.rows, layout.batch_stride,
          layout.col_stride, layout.row_stride, false};
}

base::Result<void> convert(void* destination, const MatrixLayout& to, const void* source,
                           const MatrixLayout& from, gemm_precision_t precision) {
  DEEPGEMM_TRY_ASSIGN(size, check_convert(destination, to, source, from, precision));
  if (is_empty(to)) return {};
  char* target = static_cast<char*>(destination);
  const char* origin = static_cast<const char*>(source);
  if (to.blocked) zero_edge_tiles(target, to, size);
  if (contiguous_columns(to, 0) > 1 && contiguous_columns(from, 0) > 1) {
    copy_runs(target, to, origin, from, size);
    return {};
  }
  switch (size) {
    case 1:
      copy_elements<1>(target, to, origin, from);
      break;
    case 2:
      copy_elements<2>(target, to, origin, from);
      break;
    case 4:
      copy_elements<4>(target, to, origin, from);
      break;
    default:
      copy_elements<8>(target, to, origin, from);
      break;
  }
  return {};
}

base::Result<int64_t> buffer_bytes(const MatrixLayout& layout, gemm_precision_t precision) {
  const base::FormatInfo* info = base::find_format(precision);
  if (info == nullptr) {
    return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                            "precision {} names no number format; give one of gemm_precision_t.",
                            static_cast<int>(precision));
  }
  DEEPGEMM_TRY_ASSIGN(range, extent(layout));
  if (range.last < range.first) return int64_t{0};
  const Wide first_bit = static_cast<Wide>(range.first) * info->storage_bits;
  const Wide last_bit = static_cast<Wide>(range.last) * info->storage_bits + info->storage_bits - 1;
  const Wide bytes = floor_div(last_bit, 8) - floor_div(first_bit, 8) + 1;
  if (bytes > kLargest) return too_large(layout);
  return static_cast<int64_t>(bytes);
}

}  // namespace deepgemm::layout
