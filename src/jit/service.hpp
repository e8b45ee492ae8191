// What backends ask for kernels: compilers, disk cache and pipeline of a process, as its
// environment says.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "jit/compiler.hpp"
#include "jit/disk_cache.hpp"
#include "jit/module.hpp"
#include "jit/pack_file.hpp"
#include "jit/pipeline.hpp"
#include "jit/remembered.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

// Nothing is looked for, opened or started before the first call that needs it. Variables are read
// at each call: a changed one counts from then on, compilers are then searched anew, and the cache
// opened anew. Thread-safe; usable in a forked process as Pipeline is. Never prints.
class Service {
 public:
  explicit Service(PipelineSettings settings = {});
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // The kernel of `source`: from memory, from a pack, from disk, or compiled (then some 50 ms to
  // seconds). Who calls into it keeps the module. With a pack that has it no compiler is looked
  // for.
  //   COMPILER_MISSING   no compiler, and no cached kernel: who can do without it takes that way
  //   NOT_PREPARED       the same where DEEPGEMM_JIT=0 forbids compiling; no program is started
  //   COMPILE_FAILED     with command, last lines and the kept source
  //   INVALID_ARGUMENT   DEEPGEMM_JIT is neither 0 nor 1
  base::Result<std::shared_ptr<const Module>> build(const Source& source);

  // For a kernel that a device refused although it is whole: the next build makes it anew.
  void reject(const Source& source, const std::string& reason);

  // Takes the place of DEEPGEMM_NVCC_PATH; empty: that variable again.
  void set_nvcc_path(const std::string& path);
  // As set, else DEEPGEMM_NVCC_PATH; empty when neither is.
  std::string nvcc_path() const;

  // For people: what build() would use. The first call searches: that starts programs and opens
  // libraries.
  std::shared_ptr<const CompilerSearch> compilers(Language language);
  std::shared_ptr<const PackSet> packs();  // of DEEPGEMM_PACK_PATH
  DiskCache::Status cache_status();
  base::Result<bool> may_compile() const;
  PipelineCounters counters() const { return pipeline_.counters(); }

 private:
  // DEEPGEMM_CACHE_DIR, XDG_CACHE_HOME and HOME.
  using CacheVariables = std::array<std::optional<std::string>, 3>;

  CompilerSettings compiler_settings(Language language);
  std::shared_ptr<DiskCache> cache();

  Pipeline pipeline_;
  Remembered<CacheVariables, DiskCache> cache_;
  std::array<Remembered<CompilerSettings, const CompilerSearch>, 2> searches_;  // by language
  Remembered<std::string, const PackSet> packs_;
  mutable std::mutex mutex_;
  std::string nvcc_path_;  // under mutex_; as set, else empty
};

// The service of this process; never destroyed, because threads may still build during exit.
Service& process_service();

}  // namespace deepgemm::jit
