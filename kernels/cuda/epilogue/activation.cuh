// Activations, in the forms of the CPU backend.
#pragma once

#include "families/config.cuh"
#include "ptx/ptx.cuh"

namespace deepgemm::kernel {

template <class Value>
PTX_FN Value silu(Value x) {
  return x / (Value(1) + ptx::exponential(-x));
}

template <Activation kActivation, class Value>
PTX_FN Value activate(Value x) {
  if constexpr (kActivation == Activation::kRelu) {
    return x < Value(0) ? Value(0) : x;  // NaN stays NaN
  } else if constexpr (kActivation == Activation::kGelu) {
    constexpr Value kRootHalf = Value(0.70710678118654752440);
    return Value(0.5) * x * ptx::error_function_complement(-x * kRootHalf);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    // 0.5 (1 + tanh y) = 1 / (1 + exp(-2y)), which does not cancel for large negative x.
    constexpr Value kRootTwoOverPi = Value(0.79788456080286535588);
    const Value y = kRootTwoOverPi * (x + Value(0.044715) * x * x * x);
    return x / (Value(1) + ptx::exponential(Value(-2) * y));
  } else if constexpr (kActivation == Activation::kSilu) {
    return silu(x);
  } else {
    return x;
  }
}

}  // namespace deepgemm::kernel
