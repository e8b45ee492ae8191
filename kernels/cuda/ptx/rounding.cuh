// Arithmetic that rounds up or down, never to nearest, and keeps subnormals: for bounds that hold
// in spite of their own roundings (PTX ISA: add.rp, add.rm and so on).
#pragma once

#include "ptx/types.cuh"

namespace deepgemm::ptx {

PTX_FN float add_up(float a, float b) { return __fadd_ru(a, b); }
PTX_FN float add_down(float a, float b) { return __fadd_rd(a, b); }
PTX_FN float multiply_up(float a, float b) { return __fmul_ru(a, b); }
PTX_FN float multiply_down(float a, float b) { return __fmul_rd(a, b); }
PTX_FN float divide_up(float a, float b) { return __fdiv_ru(a, b); }
PTX_FN float divide_down(float a, float b) { return __fdiv_rd(a, b); }

PTX_FN double multiply_up(double a, double b) { return __dmul_ru(a, b); }
PTX_FN double divide_down(double a, double b) { return __ddiv_rd(a, b); }
PTX_FN float float_below(double value) { return __double2float_rd(value); }

}  // namespace deepgemm::ptx
