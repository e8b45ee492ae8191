#include "jit/compiler.hpp"

#include <iterator>
#include <utility>

#include "base/env.hpp"
#include "jit/host_cxx.hpp"
#include "jit/nvcc.hpp"
#include "jit/nvrtc.hpp"

namespace deepgemm::jit {
namespace {

constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin";

void append(CompilerSearch more, CompilerSearch& search) {
  std::move(more.compilers.begin(), more.compilers.end(), std::back_inserter(search.compilers));
  std::move(more.notes.begin(), more.notes.end(), std::back_inserter(search.notes));
}

// NVRTC first. nvcc takes as long to start as NVRTC to compile, so it is only asked when somebody
// chose it or there is nothing else. What was chosen explicitly and does not work is not replaced.
CompilerSearch find_cuda(const CompilerSettings& settings) {
  const bool nvrtc_chosen = !settings.nvrtc_path.empty();
  const bool nvcc_chosen = !settings.nvcc_path.empty();
  CompilerSearch search;
  if (nvrtc_chosen || !nvcc_chosen) {
    append(find_nvrtc(settings), search);
    if (nvrtc_chosen && search.compilers.empty()) return search;
  }
  if (nvcc_chosen || search.compilers.empty()) append(find_nvcc(settings), search);
  return search;
}

}  // namespace

const char* language_name(Language language) { return language == Language::kCpp ? "cpp" : "cuda"; }

CompilerSettings compiler_settings_from_environment(const std::string& cache_directory) {
  const auto text = [](const char* name, const char* otherwise = "") {
    return base::env(name).value_or(otherwise);
  };
  CompilerSettings settings;
  settings.cxx = text("DEEPGEMM_CXX");
  settings.nvrtc_path = text("DEEPGEMM_NVRTC_PATH");
  settings.nvcc_path = text("DEEPGEMM_NVCC_PATH");
  settings.search_path = text("PATH", kUsualPath);
  settings.cuda_home = text("CUDA_HOME");
  settings.virtual_env = text("VIRTUAL_ENV");
  settings.user_home = text("HOME");
  settings.temp_directory = text("TMPDIR");
  settings.failed_directory = text("DEEPGEMM_DUMP_DIR");
  if (settings.failed_directory.empty() && !cache_directory.empty()) {
    settings.failed_directory = cache_directory + "/failed";
  }
  return settings;
}

CompilerSearch find_compilers(Language language, const CompilerSettings& settings) {
  return language == Language::kCpp ? find_host_cxx(settings) : find_cuda(settings);
}

base::Error no_compiler_error(const CompilerSearch& search, const Source& source) {
  std::string notes;
  for (const std::string& note : search.notes) notes += (notes.empty() ? "" : "; ") + note;
  for (const auto& compiler : search.compilers) {
    notes += fmt::format("{}{} does not know architecture '{}'", notes.empty() ? "" : "; ",
                         compiler->location(), source.arch);
  }
  if (source.language == Language::kCpp) {
    return base::make_error(DEEPGEMM_ERROR_COMPILER_MISSING,
                            "No C++ compiler for kernel '{}' ({}). Install g++ or clang++, or set "
                            "DEEPGEMM_CXX to one.",
                            source.name, notes);
  }
  return base::make_error(DEEPGEMM_ERROR_COMPILER_MISSING,
                          "No CUDA compiler for kernel '{}', architecture '{}' ({}). Install NVRTC "
                          "(version 12 for sm_70), or set DEEPGEMM_NVRTC_PATH or "
                          "DEEPGEMM_NVCC_PATH.",
                          source.name, source.arch, notes);
}

}  // namespace deepgemm::jit
