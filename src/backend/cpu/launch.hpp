// Launch of CPU kernels: one blocked product with operands widened while packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/cpu/device.hpp"
#include "backend/cpu/pack.hpp"
#include "backend/cpu/thread_pool.hpp"
#include "base/result.hpp"
#include "intent/problem.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::cpu {

// Addresses and run-time values of one launch. Pointers follow the layouts of the problem.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;                 // dense B, or null with packed_b
  const PackedPanels* packed_b = nullptr;  // the same B for every matrix of a batch
  void* c = nullptr;
  const void* bias = nullptr;      // [n], the same for every matrix of a batch
  const void* residual = nullptr;  // matrices of a batch follow at problem.m rows each
  const float* scale_a = nullptr;  // granularity: problem.contract.dequant_strategy;
  const float* scale_b = nullptr;  // the same for every matrix of a batch; null: 1
  // alpha = 0 skips the product, as in BLAS: A and B are not read, whatever they hold. beta = 0: C
  // is not read.
  double alpha = 1, beta = 0;
  int64_t m = 0;  // rows in this launch, <= problem.m
};

// Everything a launch needs that can be fixed at plan time. Immutable; shared by threads.
class Executable;

// What tests and benchmarks fix: the instruction set and the threads. By default the device's.
struct ExecutableOptions {
  std::optional<Isa> isa;
  ThreadPool* pool = nullptr;  // must outlive the executable
};

// UNSUPPORTED when no kernel of this backend executes the choice: another backend's family, a path
// whose multiplicands this backend does not form, a tile beyond its limits, an INT4 output.
base::Result<std::shared_ptr<const Executable>> make_executable(
    const intent::Problem& problem, const schedule::Choice& choice,
    const ExecutableOptions& options = {});

// What was compiled for this plan at run time, or why not; empty: everything was there before.
std::string kernel_note(const Executable& executable);

// Scratch the launch needs (packing buffers and accumulators of all threads), 64-byte aligned.
size_t workspace_bytes(const Executable& executable);

// Runs on the calling thread and the pool's; returns when C is complete. `workspace` holds at least
// workspace_bytes(), 64-byte aligned, and serves one launch at a time. Parallel launches queue for
// the pool. The bits of an element of C depend on its row of A, its column of B and the plan's
// block_k alone: not on the number of threads, on M, on the other rows, or on where its tile lies.
// Where the plan skips blocks, they depend on the other rows of its tile too; where it rounds
// stochastically, on the seed and the element's place.
// Operands were checked by the caller (runtime/launch); never allocates.
void launch(const Executable& executable, const Operands& operands, void* workspace);

}  // namespace deepgemm::cpu
