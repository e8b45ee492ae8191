#include "jit/nvcc.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "jit/program_compiler.hpp"

namespace deepgemm::jit {
namespace {

constexpr int kOldestMajor = 12;
constexpr const char* kSetting = "DEEPGEMM_NVCC_PATH or deepgemm_set_nvcc_path";
constexpr int64_t kMemory = int64_t{3} << 30;

// nvcc takes functions without a mark for host functions, and has no option to take them for device
// functions as NVRTC does: those that kernels call are constexpr.
constexpr const char* kCommonOptions[] = {"--cubin", "-O3", "-std=c++20",
                                          "--expt-relaxed-constexpr", "-I."};

// From "... release 13.0, V13.0.88"; 0 when the text is not nvcc's.
int major_version(const std::string& text) {
  const size_t at = text.find(", V");
  if (text.find("NVIDIA") == std::string::npos || at == std::string::npos) return 0;
  return std::atoi(text.c_str() + at + 3);
}

// "sm_90a" needs "sm_90" in the list: suffixed forms are not in it.
bool is_listed(const std::vector<std::string>& known, const std::string& arch) {
  size_t digits = arch.size();
  while (digits > 0 && (arch[digits - 1] < '0' || arch[digits - 1] > '9')) --digits;
  return std::find(known.begin(), known.end(), arch.substr(0, digits)) != known.end();
}

std::vector<std::string> compile_arguments(const Source& source) {
  std::vector<std::string> arguments(std::begin(kCommonOptions), std::end(kCommonOptions));
  arguments.push_back("-arch=" + source.arch);
  arguments.insert(arguments.end(), source.options.begin(), source.options.end());
  arguments.insert(arguments.end(), {"kernel.cu", "-o", "kernel.cubin"});
  return arguments;
}

base::Result<std::shared_ptr<const Compiler>> probe(const std::string& path,
                                                    const CompilerSettings& settings) {
  DEEPGEMM_TRY_ASSIGN(version, ask_program(path, {"--version"}, settings));
  const int major = major_version(version);
  if (major < kOldestMajor) {
    return base::make_error(
        DEEPGEMM_ERROR_COMPILER_MISSING, "{}: {}", path,
        major == 0 ? "does not answer --version as nvcc does"
                   : fmt::format("is version {}; {} or later is needed", major, kOldestMajor));
  }
  DEEPGEMM_TRY_ASSIGN(codes, ask_program(path, {"--list-gpu-code"}, settings));
  std::vector<std::string> known;
  std::istringstream words(codes);
  for (std::string word; words >> word;) known.push_back(word);

  ProgramSpec spec;
  spec.path = path;
  spec.identity = {"nvcc", version, fmt::format("{}", fmt::join(kCommonOptions, " "))};
  spec.setting = kSetting;
  spec.source_file = "kernel.cu";
  spec.output_file = "kernel.cubin";
  spec.memory_bytes = kMemory;
  spec.accepts = [known](const Source& source) {
    return source.language == Language::kCuda && is_listed(known, source.arch);
  };
  spec.arguments = [](const Source& source, const std::string&) {
    return compile_arguments(source);
  };
  return make_program_compiler(std::move(spec), settings);
}

}  // namespace

CompilerSearch find_nvcc(const CompilerSettings& settings) {
  constexpr const char* kNone = "no nvcc in CUDA_HOME, PATH or /usr/local/cuda";
  if (!settings.nvcc_path.empty()) {
    return take_first({{settings.nvcc_path}, kSetting, kNone}, probe, settings);
  }
  std::vector<std::string> names = {"nvcc", "/usr/local/cuda/bin/nvcc"};
  if (!settings.cuda_home.empty()) names.insert(names.begin(), settings.cuda_home + "/bin/nvcc");
  return take_first({names, nullptr, kNone}, probe, settings);
}

}  // namespace deepgemm::jit
