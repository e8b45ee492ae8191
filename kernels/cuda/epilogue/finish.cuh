// What follows the sums of a tile: scales, alpha, old content of C, bias, activation, residual, one
// rounding. A warp does it for some rows of its tile, which it has put into shared memory.
#pragma once

#include "epilogue/activation.cuh"
#include "epilogue/stochastic.cuh"
#include "families/arguments.cuh"
#include "families/config.cuh"
#include "memory/operand.cuh"
#include "memory/values.cuh"
#include "ptx/ptx.cuh"
#include "schedule/tiles.cuh"

namespace deepgemm::kernel {

inline constexpr i32 kQuad = 4;  // columns that a lane finishes together

// Integer sums may have more bits than FP32: they are finished in FP64.
template <class Sum>
using FinishType =
    SelectType<sizeof(Sum) == 4 && static_cast<Sum>(0.5F) != static_cast<Sum>(0), float, double>;

// Place of a sum among the staged rows of a warp.
template <Config C>
PTX_FN u32 staged_address(u32 base, i32 row, i32 column) {
  return base + static_cast<u32>(row * staging_pitch(C) + column * total_bytes(C));
}

template <class Sum, class Value>
PTX_FN void read_quad(u32 address, Value (&to)[kQuad]) {
  constexpr i32 kEach = 16 / static_cast<i32>(sizeof(Sum));
  PTX_UNROLL for (i32 i = 0; i < kQuad; i += kEach) {
    const auto words = ptx::load_shared<16>(address + static_cast<u32>(i * sizeof(Sum)));
    PTX_UNROLL for (i32 j = 0; j < kEach; ++j) {
      to[i + j] = static_cast<Value>(value_of<Sum>(words, j));
    }
  }
}

PTX_FN float scale_at(const ScaleArgument& scale, i32 row, i32 group) {
  if (scale.base == nullptr) return 1.0F;
  const i64 index = row / scale.rows_each * scale.row_step + group;
  return ptx::float_of(ptx::load_global<4>(scale.base + index).word[0]);
}

// Values of a row-contiguous matrix, or of C where other steps are possible; columns from `count`
// on are left alone.
template <Format kFormat, bool kQuads, ptx::Cache kCache, class Value>
PTX_FN void load_row(const void* base, i64 element, i64 step, i32 count, Value (&to)[kQuad]) {
  constexpr i32 kSize = format_bytes(kFormat);
  if constexpr (kQuads && kSize * kQuad <= 16) {
    if (count >= kQuad) {
      const auto words =
          ptx::load_global<kSize * kQuad, kCache>(ptx::advance(base, element * kSize));
      PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
        to[j] = decode<kFormat, Value>(element_of<kFormat>(words, j));
      }
      return;
    }
  }
  PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
    const void* from = ptx::advance(base, (element + j * step) * kSize);
    to[j] = decode<kFormat, Value>(ptx::load_global_if<kSize, kCache>(from, j < count));
  }
}

template <Format kFormat, bool kQuads, class Value>
PTX_FN void store_row(void* base, i64 element, i64 step, i32 count, const Value (&from)[kQuad]) {
  constexpr i32 kSize = format_bytes(kFormat);
  if constexpr (kQuads && kSize * kQuad <= 16) {
    if (count >= kQuad) {
      ptx::Words<kSize* kQuad> words = {};
      PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
        words.word[j * kSize / 4] |= encode<kFormat>(from[j]).word[0] << (j * kSize % 4 * 8);
      }
      ptx::store_global(ptx::advance(base, element * kSize), words);
      return;
    }
  }
  PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
    if (j < count) {
      ptx::store_global(ptx::advance(base, (element + j * step) * kSize), encode<kFormat>(from[j]));
    }
  }
}

// Epilogue of one launch for tiles of one batch.
template <Config C, class Sum>
struct Finish {
  using Value = FinishType<Sum>;
  // Functions of FP64 are long; integer sums do not need them.
  using Inner = SelectType<sizeof(Sum) == 8, double, float>;
  static constexpr Epilogue kEpilogue = C.epilogue;

  const GemmArguments& arguments;
  i32 n;  // columns of op(B)
  i32 batch;

  PTX_FN void scale(i32 row, i32 column_of_b, Value (&values)[kQuad]) const {
    const Value alpha = static_cast<Value>(arguments.alpha);
    const Value row_scale =
        kEpilogue.row_scale ? static_cast<Value>(scale_at(arguments.scale_a, row, 0)) : Value(1);
    PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
      if constexpr (kEpilogue.row_scale) values[j] *= row_scale;
      if constexpr (kEpilogue.column_scale) {
        if (column_of_b + j < n) {
          values[j] *= static_cast<Value>(scale_at(arguments.scale_b, column_of_b + j, 0));
        }
      }
      // Without a product, its factors do not count.
      values[j] = arguments.alpha == 0 ? Value(0) : values[j] * alpha;
    }
  }

  PTX_FN void add_bias(i32 column_of_b, i32 count, Value (&values)[kQuad]) const {
    if constexpr (kEpilogue.bias) {
      Value terms[kQuad];
      load_row<kEpilogue.bias_format, false, ptx::Cache::kReadOnly>(arguments.bias, column_of_b, 1,
                                                                    count, terms);
      PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) values[j] += terms[j];
    }
  }

  PTX_FN void add_residual(i32 row, i32 column, i32 count, Value (&values)[kQuad]) const {
    if constexpr (kEpilogue.residual) {
      Value terms[kQuad];
      const i64 place =
          batch * arguments.residual_batch_step + row * arguments.residual_row_step + column;
      load_row<kEpilogue.residual_format, kEpilogue.quads, ptx::Cache::kReadOnly>(
          arguments.residual, place, 1, count, terms);
      PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) values[j] += terms[j];
    }
  }

  PTX_FN void add_old_content(i64 place, i32 count, Value (&values)[kQuad]) const {
    if (arguments.beta == 0) return;
    Value terms[kQuad];
    load_row<kEpilogue.output, kEpilogue.quads, ptx::Cache::kCoherent>(
        arguments.c, place, arguments.c_column_step, count, terms);
    const Value beta = static_cast<Value>(arguments.beta);
    PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
      values[j] = ptx::fused_multiply_add(beta, terms[j], values[j]);
    }
  }

  // Sums of kQuad columns of C from `column` on; `up`: of the other half, with SwiGLU.
  PTX_FN void finish(i32 row, i32 column, Value (&values)[kQuad], Value (&up)[kQuad]) const {
    const i32 columns = C.swiglu() ? n / 2 : n;
    const i32 count = smaller(columns - column, kQuad);
    const i64 place = batch * arguments.c_batch_step + row * arguments.c_row_step +
                      column * arguments.c_column_step;
    scale(row, column, values);
    if constexpr (C.swiglu()) {
      scale(row, column + columns, up);
      add_bias(column, count, values);
      add_bias(column + columns, count, up);
      PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
        values[j] = static_cast<Value>(silu(static_cast<Inner>(values[j]))) * up[j];
      }
      add_old_content(place, count, values);
    } else {
      add_old_content(place, count, values);
      add_bias(column, count, values);
      if constexpr (kEpilogue.activation != Activation::kNone) {
        PTX_UNROLL for (i32 j = 0; j < kQuad; ++j) {
          values[j] =
              static_cast<Value>(activate<kEpilogue.activation>(static_cast<Inner>(values[j])));
        }
      }
    }
    add_residual(row, column, count, values);
    if constexpr (kEpilogue.stochastic) {
      round_row<kEpilogue.output>(Place{arguments.seed, batch, row}, column, values);
    }
    store_row<kEpilogue.output, kEpilogue.quads>(arguments.c, place, arguments.c_column_step, count,
                                                 values);
  }

  // kRows rows of the warp's sums at `staged`: `row` and `column` are the first in C.
  template <i32 kRows>
  PTX_FN void finish_rows(u32 staged, i32 row, i32 column) const {
    constexpr i32 kColumns = C.output_columns(C.warp_n);
    constexpr i32 kQuads = kColumns / kQuad;
    static_assert(kColumns % kQuad == 0);
    const i32 columns = C.swiglu() ? n / 2 : n;
    PTX_ROLLED for (i32 i = static_cast<i32>(ptx::lane()); i < kRows * kQuads; i += 32) {
      const i32 inner_row = i / kQuads;
      const i32 inner = i % kQuads * kQuad;
      if (row + inner_row >= arguments.m || column + inner >= columns) continue;
      Value values[kQuad], up[kQuad];
      read_quad<Sum>(staged_address<C>(staged, inner_row, inner), values);
      if constexpr (C.swiglu()) {
        read_quad<Sum>(staged_address<C>(staged, inner_row, inner + kColumns), up);
      }
      finish(row + inner_row, column + inner, values, up);
    }
  }
};

}  // namespace deepgemm::kernel
