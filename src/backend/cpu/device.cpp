#include "backend/cpu/device.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/cgroup.hpp"
#include "base/env.hpp"
#include "base/log.hpp"

namespace deepgemm::cpu {
namespace {

constexpr int kMaxThreads = 1024;

// Flags of /proc/cpuinfo worth showing.
constexpr std::array<std::string_view, 16> kFeatures = {
    "sse2",        "avx",      "avx2",     "fma",      "f16c",        "avx_vnni",
    "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"};

// Text after "key ... : " on the first line that starts with `key`; empty when there is none.
std::string field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

// CPUs in a list such as "0-3,8,10-11"; 0 when it is not one.
int count_list(std::string_view list) {
  int total = 0;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), range.size() + 1));
    int first = 0;
    const char* end = range.data() + range.size();
    auto [rest, error] = std::from_chars(range.data(), end, first);
    if (error != std::errc()) return 0;
    int last = first;
    if (rest != end && *rest == '-') std::from_chars(rest + 1, end, last);
    if (last < first) return 0;
    total += last - first + 1;
  }
  return total;
}

// ---- Instruction set ----------------------------------------------------------------------------

// __builtin_cpu_supports reads CPUID and the state mask that the operating system enabled (XCR0).
Isa machine_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!avx2) return Isa::kGeneric;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::kAvx2;
  const bool amx = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
                   __builtin_cpu_supports("amx-int8");
  return amx ? Isa::kAmx : Isa::kAvx512;
#else
  return Isa::kGeneric;
#endif
}

// Linux gives the state of tile units (8 KiB a thread) to processes that ask for it: Documentation/
// arch/x86/xstate.rst of the kernel. Asking again is fine.
bool may_use_tiles() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// What the flags of the kernel allow; the machine's own answer where they cannot be read.
Isa listed_isa(const std::vector<std::string>& flags) {
  if (flags.empty()) return Isa::kAmx;
  const auto has = [&](const char* flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  if (!has("avx2") || !has("fma")) return Isa::kGeneric;
  const bool avx512 = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
  if (!avx512) return Isa::kAvx2;
  return has("amx_tile") && has("amx_bf16") && has("amx_int8") ? Isa::kAmx : Isa::kAvx512;
}

Isa limited(Isa best, const std::string& limit, std::vector<std::string>& warnings) {
  if (limit.empty()) return best;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (limit == isa_name(isa)) return std::min(best, isa);
  }
  warnings.push_back("DEEPGEMM_MAX_CPU_ISA is \"" + limit +
                     "\"; known values are generic, avx2, avx512 and amx; ignored");
  return best;
}

void detect_isa(const CpuSources& sources, CpuDevice& device) {
  const std::vector<std::string> flags = words(field(sources.proc + "/cpuinfo", "flags"));
  for (const std::string_view feature : kFeatures) {
    if (std::find(flags.begin(), flags.end(), feature) != flags.end()) {
      device.features.emplace_back(feature);
    }
  }
  device.best_isa = std::min(machine_isa(), listed_isa(flags));
  device.isa = limited(device.best_isa, sources.max_isa, device.warnings);
  if (device.isa == Isa::kAmx && !may_use_tiles()) {
    device.warnings.emplace_back(
        "the operating system does not let this process use the CPU's tile units (AMX): Linux 5.16 "
        "or newer grants them, unless a signal stack is too small for their state");
    device.best_isa = device.isa = Isa::kAvx512;
  }
}

// ---- Threads ------------------------------------------------------------------------------------

int affinity(const CpuSources& sources) {
  for (const char* status : {"/thread-self/status", "/self/status"}) {
    const int listed = count_list(field(sources.proc + status, "Cpus_allowed_list"));
    if (listed > 0) return listed;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

std::optional<int> thread_setting(const char* name, const std::string& text, CpuDevice& device) {
  if (text.empty()) return std::nullopt;
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_list = rest != end && *rest == ',';  // OMP_NUM_THREADS: one figure per level
  if (error == std::errc() && (rest == end || is_list) && value >= 1 && value <= kMaxThreads) {
    return value;
  }
  device.warnings.push_back(std::string(name) + " is \"" + text +
                            "\"; it must be a number from 1 to " + std::to_string(kMaxThreads) +
                            "; ignored");
  return std::nullopt;
}

void detect_threads(const CpuSources& sources, CpuDevice& device) {
  device.affinity_threads = affinity(sources);
  device.cores_online =
      std::max(count_list(base::read_word(sources.cpus + "/online")), device.affinity_threads);
  device.quota_threads = base::cpu_quota(sources.proc, sources.cgroup);

  device.threads = std::min(device.affinity_threads, kMaxThreads);
  device.threads_reason = "CPU affinity";
  const int quota = std::max(1, static_cast<int>(std::min(device.quota_threads, 1e6)));
  if (device.quota_threads > 0 && quota < device.threads) {
    device.threads = quota;
    device.threads_reason = "cgroup CPU quota";
  }
  const auto omp = thread_setting("OMP_NUM_THREADS", sources.omp_threads, device);
  if (omp && *omp < device.threads) {
    device.threads = *omp;
    device.threads_reason = "OMP_NUM_THREADS";
  }
  if (const auto own = thread_setting("DEEPGEMM_NUM_THREADS", sources.threads, device)) {
    device.threads = *own;
    device.threads_reason = "DEEPGEMM_NUM_THREADS";
  }
}

// ---- Memory -------------------------------------------------------------------------------------

// "48K", "2M", "300000K" as sysfs writes cache sizes.
int64_t size_of(const std::string& text) {
  int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  switch (rest == text.data() + text.size() ? '\0' : *rest) {
    case 'K':
      return value << 10;
    case 'M':
      return value << 20;
    case 'G':
      return value << 30;
    default:
      return value;
  }
}

void detect_memory(const CpuSources& sources, CpuDevice& device) {
  for (int index = 0; index < 8; ++index) {
    const std::string cache = sources.cpus + "/cpu0/cache/index" + std::to_string(index);
    const std::string level = base::read_word(cache + "/level");
    if (level.empty() || base::read_word(cache + "/type") == "Instruction") continue;
    const int64_t bytes = size_of(base::read_word(cache + "/size"));
    if (level == "1") device.l1d_bytes = bytes;
    if (level == "2") device.l2_bytes = bytes;
    if (level == "3") device.l3_bytes = bytes;
  }
  device.memory_bytes = size_of(field(sources.proc + "/meminfo", "MemTotal")) << 10;
  const int64_t limit = base::memory_limit(sources.proc, sources.cgroup);
  if (limit > 0 && (device.memory_bytes == 0 || limit < device.memory_bytes)) {
    device.memory_bytes = limit;
  }
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAmx:
      return "amx";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kGeneric:
      break;
  }
  return "generic";
}

CpuDevice detect_cpu(const CpuSources& sources) {
  CpuDevice device;
  device.model = field(sources.proc + "/cpuinfo", "model name");
  if (device.model.empty()) device.model = "unknown CPU";
  detect_isa(sources, device);
  detect_threads(sources, device);
  detect_memory(sources, device);
  return device;
}

const CpuDevice& cpu_device() {
  static const CpuDevice device = [] {
    CpuSources sources;
    sources.max_isa = base::env("DEEPGEMM_MAX_CPU_ISA").value_or("");
    sources.threads = base::env("DEEPGEMM_NUM_THREADS").value_or("");
    sources.omp_threads = base::env("OMP_NUM_THREADS").value_or("");
    CpuDevice detected = detect_cpu(sources);
    for (const std::string& warning : detected.warnings) {
      base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kPlan, "{}", warning);
    }
    return detected;
  }();
  return device;
}

schedule::DeviceProfile host_profile() {
  const CpuDevice& device = cpu_device();
  schedule::DeviceProfile profile = schedule::cpu_profile(isa_name(device.isa), device.threads);
  profile.name = "cpu";
  profile.memory_bytes = device.memory_bytes;
  if (!device.model.empty()) profile.title = device.model;
  if (device.l2_bytes > 0) profile.shared_bytes_per_block = device.l2_bytes;
  if (device.l3_bytes > 0) profile.l2_bytes = device.l3_bytes;
  return profile;
}

}  // namespace deepgemm::cpu
