// Kernels made for one plan: source text from the files in kernels/cpu, compiled at run time.
#pragma once

#include <memory>
#include <string>

#include "backend/cpu/device.hpp"
#include "backend/cpu/kernels.hpp"
#include "jit/module.hpp"
#include "jit/source.hpp"

namespace deepgemm::cpu {

// Source of the streaming product (kernels/cpu/stream.hpp) of 1 ... 8 rows with words of a format.
jit::Source stream_source(WordFormat format, int rows, Isa isa);

// A streaming kernel of exactly `rows` rows, or none.
struct ExactStream {
  Stream call = nullptr;
  int rows = 0;
  int panels = 0;  // that a call covers
  std::shared_ptr<const jit::Module> module;
  std::string note;  // for people: where it is from, or why there is none
};

// Compiles, or takes from the cache. Without a compiler, or when compiling fails, there is none:
// the kernels compiled ahead of time then take its place, with the same bits. Ahead of time there
// are kernels of 1, 2, 4 and 8 rows: for these nothing is compiled.
ExactStream make_exact_stream(WordFormat format, int rows, Isa isa);

}  // namespace deepgemm::cpu
