// From a source to a loaded kernel: memory, disk, compiler.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "jit/compiler.hpp"
#include "jit/disk_cache.hpp"
#include "jit/job_slots.hpp"
#include "jit/module.hpp"
#include "jit/pack_file.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

struct PipelineSettings {
  size_t kept_modules = 1024;  // those used longest ago drop out; who holds one keeps it
  // How long to wait for another process that compiles the same kernel before doing it as well.
  std::chrono::milliseconds lock_wait{10000};
  std::chrono::milliseconds progress_interval{5000};  // of log lines while waiting or compiling
};

struct PipelineCounters {
  uint64_t memory_hits = 0;
  uint64_t disk_hits = 0;
  uint64_t pack_hits = 0;
  uint64_t misses = 0;    // requests that neither had, in this process
  uint64_t compiles = 0;  // that succeeded
  uint64_t failures = 0;  // of a compiler
  uint64_t shared = 0;    // requests that waited for another thread's
  double compile_seconds = 0;
};

// Thread-safe. A process forked while another thread builds can build too, unless the fork falls
// into one of the moments, well below a microsecond, in which a thread holds the table's lock.
class Pipeline {
 public:
  explicit Pipeline(PipelineSettings settings = {});
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // The kernel of `source`: several threads asking at once get the result of one. Compilers that
  // accept the source are tried in their order; without any, a cached kernel of another compiler
  // serves. COMPILER_MISSING, COMPILE_FAILED (of the first compiler). A failure is not remembered.
  // Where compiling is off, memory and disk have it, of whichever compiler, or it is NOT_PREPARED.
  base::Result<std::shared_ptr<const Module>> build(const Source& source,
                                                    const CompilerSearch& search, DiskCache& cache,
                                                    bool may_compile = true);

  // The kernel of `source` from memory or a pack; null when no pack has it whole. A damaged kernel
  // is a warning in the log.
  std::shared_ptr<const Module> from_packs(const Source& source, const PackSet& packs);
  // As reject, for what a pack has: it is not taken from there again.
  void reject_packed(const Source& source, const PackSet& packs);

  // For a kernel that a device could not load although it was whole: forgets it, on disk too, so
  // that the next build makes it anew.
  void reject(const Source& source, const CompilerSearch& search, DiskCache& cache,
              const std::string& reason);

  PipelineCounters counters() const;

 private:
  using ModulePointer = std::shared_ptr<const Module>;
  using BuildResult = base::Result<ModulePointer>;
  struct Flight;
  struct Request;
  struct Kept {
    ModulePointer module;
    std::list<base::Hash128>::iterator place;
  };
  struct KeyHash {
    size_t operator()(const base::Hash128& key) const { return static_cast<size_t>(key.low); }
  };

  static base::Error not_prepared(const Request& request);
  BuildResult make(const Request& request);
  ModulePointer from_disk(const Request& request, const Compiler* compiler);
  BuildResult compile(const Request& request, const Compiler& compiler);
  BuildResult compile_here(const Request& request, const Compiler& compiler);
  void keep(const base::Hash128& key, const ModulePointer& module);
  void count(uint64_t PipelineCounters::*counter);

  const PipelineSettings settings_;
  JobSlots slots_;
  mutable std::mutex mutex_;
  // All under mutex_.
  std::unordered_map<base::Hash128, Kept, KeyHash> modules_;
  std::list<base::Hash128> order_;  // used last first
  std::unordered_map<base::Hash128, std::shared_ptr<Flight>, KeyHash> flights_;
  std::set<std::string> rejected_;  // kernel hashes
  PipelineCounters counters_;
};

}  // namespace deepgemm::jit
