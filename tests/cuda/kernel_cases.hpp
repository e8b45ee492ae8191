// Kernels that the tests of tests/cuda and tests/gpu build: every family with each of its
// configurations, its paths, the four operations, layouts and epilogues.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "backend/cuda/generate.hpp"

namespace deepgemm::cuda {

struct KernelCase {
  std::string family;
  contract::PathId path;
  const char* operation;  // "nt"
  std::string fields;     // of the canonical line, besides operation and sizes
  schedule::KernelConfig config;
  AddressAlignment alignment;
  std::string name() const;
  // What GoogleTest shows.
  friend void PrintTo(const KernelCase& one, std::ostream* to) { *to << one.name(); }
};

std::vector<KernelCase> kernel_cases();

// The problem of a case for these sizes. Rows of operands without a layout of their own end in gaps
// that keep the next row aligned, so that one kernel serves all sizes. SwiGLU: n is made even.
intent::Problem problem_of(const KernelCase& one, int64_t m, int64_t n, int64_t k);
base::Result<KernelSpec> spec_of(const KernelCase& one, const intent::Problem& problem,
                                 const std::string& arch);

}  // namespace deepgemm::cuda
