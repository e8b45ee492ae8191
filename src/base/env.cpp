#include "base/env.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace deepgemm::base {
namespace {

constexpr EnvVariable kVariables[] = {
    {"DEEPGEMM_DEVICE", "text", "the first GPU, else the CPU",
     "device of intents that name none: cpu, cuda:<n>, sim:<profile> or a profile name"},
    {"DEEPGEMM_CACHE_DIR", "path", "$XDG_CACHE_HOME/deepgemm, else $HOME/.cache/deepgemm",
     "directory of compiled kernels and tuning data; created when missing, never replaced by "
     "another"},
    {"DEEPGEMM_LOG_LEVEL", "level", "no log", "error, warning, info or debug: what is logged"},
    {"DEEPGEMM_LOG_FILE", "path", "standard error", "file that log lines are appended to"},
    {"DEEPGEMM_JIT", "switch", "1", "0: never compile a kernel at run time"},
    {"DEEPGEMM_PACK_PATH", "list", "no packs",
     "packs of kernels compiled ahead of time: files, and folders of *.dgpack"},
    {"DEEPGEMM_NVCC_PATH", "path", "nvcc in $PATH", "the nvcc program"},
    {"DEEPGEMM_NVRTC_PATH", "path", "searched by the loader", "the NVRTC library"},
    {"DEEPGEMM_CXX", "path", "c++ in $PATH", "C++ compiler of kernels for the CPU"},
    {"DEEPGEMM_MAX_CPU_ISA", "text", "what the CPU has",
     "highest instruction set to use, such as avx2; for tests and comparisons"},
    {"DEEPGEMM_NUM_THREADS", "count", "the CPUs that affinity and quota grant",
     "threads on the CPU"},
    {"DEEPGEMM_DUMP_DIR", "path", "nothing is kept", "directory for generated sources and reports"},
};

constexpr EnvVariable kForeignVariables[] = {
    {"HOME", "path", "no home directory", "base of the default cache directory"},
    {"XDG_CACHE_HOME", "path", "$HOME/.cache", "base of the default cache directory"},
    {"OMP_NUM_THREADS", "count", "not heeded",
     "threads on the CPU where DEEPGEMM_NUM_THREADS is unset"},
    {"NO_COLOR", "switch", "colour on a terminal", "any value: the program prints without colour"},
    {"CUDA_VISIBLE_DEVICES", "list", "all devices", "GPUs that CUDA shows to this process"},
    {"PATH", "list", "/usr/local/bin:/usr/bin:/bin", "where compilers are looked for"},
    {"TMPDIR", "path", "/tmp, else /var/tmp, else /dev/shm",
     "where a compiler gets a private directory while it runs"},
    {"CUDA_HOME", "path", "/usr/local/cuda", "a CUDA toolkit, for nvcc and NVRTC"},
    {"VIRTUAL_ENV", "path", "the Python that runs, and the user's packages",
     "a Python environment that may have NVRTC"},
    {"LD_LIBRARY_PATH", "list", "nothing", "passed on to compilers"},
};

bool is_listed(std::span<const EnvVariable> table, const char* name) {
  for (const EnvVariable& variable : table) {
    if (std::strcmp(variable.name, name) == 0) return true;
  }
  return false;
}

}  // namespace

std::span<const EnvVariable> env_table() { return kVariables; }

std::span<const EnvVariable> foreign_env_table() { return kForeignVariables; }

std::optional<std::string> env(const char* name) {
  if (!is_listed(kVariables, name) && !is_listed(kForeignVariables, name)) return std::nullopt;
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  if (*value == '\0' && std::strcmp(name, "CUDA_VISIBLE_DEVICES") != 0) return std::nullopt;
  return std::string(value);
}

Result<std::optional<int64_t>> env_integer(const char* name, int64_t low, int64_t high) {
  const std::optional<std::string> text = env(name);
  if (!text) return std::optional<int64_t>{};
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc{} || stop != end || value < low || value > high) {
    return make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                      "{} is '{}'; it must be a whole number within {} ... {}, or unset.", name,
                      *text, low, high);
  }
  return std::optional<int64_t>{value};
}

}  // namespace deepgemm::base
