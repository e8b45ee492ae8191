#include "backend/cpu/generate.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/embedded_file.hpp"
#include "base/log.hpp"
#include "jit/service.hpp"

// kernels/cpu, written by cmake/embed.cmake.
extern const deepgemm::base::EmbeddedFile deepgemm_cpu_kernel_texts[];
extern const int deepgemm_cpu_kernel_texts_count;

namespace deepgemm::cpu {
namespace {

constexpr const char* kSymbol = "deepgemm_kernel_cpu_stream";

int vector_bytes(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return 16;
    case Isa::kAvx2:
      return 32;
    case Isa::kAvx512:
    case Isa::kAmx:
      break;
  }
  return 64;
}

// As the files of the instruction sets are compiled ahead of time (CMakeLists.txt). -O2: unrolling
// is written out in the sources, and -O3 takes twice as long.
std::vector<std::string> options_of(Isa isa) {
  std::vector<std::string> options = {"-O2",        "-ffreestanding",     "-fno-exceptions",
                                      "-fno-rtti",  "-ffp-contract=fast", "-fno-trapping-math",
                                      "-Wno-psabi", "-nostdlib"};
  if (isa == Isa::kAvx2) options.insert(options.end(), {"-mavx2", "-mfma"});
  if (isa >= Isa::kAvx512) {
    options.insert(options.end(), {"-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"});
  }
  return options;
}

const char* enumerator(WordFormat format) {
  constexpr const char* kNames[kWordFormats] = {"kFp32", "kFp16", "kBf16", "kE4m3",
                                                "kE5m2", "kInt8", "kInt4"};
  return kNames[static_cast<int>(format)];
}

}  // namespace

jit::Source stream_source(WordFormat format, int rows, Isa isa) {
  jit::Source source;
  source.language = jit::Language::kCpp;
  source.name = fmt::format("cpu_stream_{}_{}rows_{}", enumerator(format), rows, isa_name(isa));
  source.text = fmt::format(
      "#define DEEPGEMM_VECTOR_BYTES {}\n"
      "#include \"kernels/cpu/stream.hpp\"\n"
      "\n"
      "extern \"C\" [[gnu::visibility(\"default\")]] void {}(\n"
      "    const deepgemm::cpu::StreamArguments& arguments) {{\n"
      "  using namespace deepgemm::cpu;\n"
      "  stream<WordFormat::{}, {}, {}>(arguments);\n"
      "}}\n",
      vector_bytes(isa), kSymbol, enumerator(format), rows, is_quantised(format));
  for (int i = 0; i < deepgemm_cpu_kernel_texts_count; ++i) {
    const base::EmbeddedFile& file = deepgemm_cpu_kernel_texts[i];
    source.headers.push_back({file.name, file.text});
  }
  source.options = options_of(isa);
  source.arch = isa_name(isa);
  source.symbols = {kSymbol};
  return source;
}

ExactStream make_exact_stream(WordFormat format, int rows, Isa isa) {
  ExactStream exact;
  if ((rows & (rows - 1)) == 0) return exact;
  auto built = jit::process_service().build(stream_source(format, rows, isa));
  if (!built.ok()) {
    exact.note = fmt::format(
        "{} rows are split among kernels compiled ahead of time, because none "
        "was compiled for them: {}",
        rows, built.error().message);
    base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kJit, "{}", exact.note);
    return exact;
  }
  exact.module = std::move(*built);
  exact.call = reinterpret_cast<Stream>(exact.module->symbol(kSymbol));
  exact.rows = rows;
  exact.panels = stream_panels(vector_bytes(isa), rows);
  exact.note = fmt::format("streaming kernel compiled for {} rows", rows);
  return exact;
}

}  // namespace deepgemm::cpu
