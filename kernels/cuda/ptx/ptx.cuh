// The instruction layer: one thin function per instruction. Nothing else in kernels/cuda has asm,
// __shared__, threadIdx or a cast of a pointer. The simulator puts functions of the same names in
// its place, which also take the place of the call as a default argument.
#pragma once

#include "ptx/async.cuh"
#include "ptx/convert.cuh"
#include "ptx/global.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "ptx/special.cuh"
#include "ptx/types.cuh"
