#include "jit/pipeline.hpp"

#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/trace.hpp"

namespace deepgemm::jit {
namespace {

using Clock = std::chrono::steady_clock;

// Says every so often, in a thread of its own, that something is still going on.
class Progress {
 public:
  Progress(std::string what, std::chrono::milliseconds interval)
      : what_(std::move(what)), interval_(interval) {
    if (base::log_enabled(DEEPGEMM_LOG_INFO)) thread_ = std::thread(&Progress::run, this);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    const Clock::time_point begin = Clock::now();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, interval_, [this] { return done_; })) {
      base::log(DEEPGEMM_LOG_INFO, base::LogCategory::kJit, "{}, since {:.0f} s.", what_,
                std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }

  const std::string what_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

// One build that several threads may wait for. Its thread exists in the process that began it only.
struct Pipeline::Flight {
  pid_t process = ::getpid();
  std::promise<BuildResult> promise;
  std::shared_future<BuildResult> result = promise.get_future().share();
};

struct Pipeline::Request {
  const Source& source;
  DiskCache& cache;
  const CompilerSearch& search;
  const bool may_compile;
  std::vector<const Compiler*> compilers;  // that accept the source

  Request(const Source& wanted, const CompilerSearch& found, DiskCache& disk, bool compiling)
      : source(wanted), cache(disk), search(found), may_compile(compiling) {
    for (const auto& compiler : found.compilers) {
      if (compiler->accepts(source)) compilers.push_back(compiler.get());
    }
  }
  base::Hash128 key(const Compiler* compiler) const {
    return cache.key_of(source, compiler == nullptr ? CompilerIdentity{} : compiler->identity());
  }
  // Names the result in memory.
  base::Hash128 key() const { return key(compilers.empty() ? nullptr : compilers.front()); }
};

base::Error Pipeline::not_prepared(const Request& request) {
  const DiskCache::Status status = request.cache.status();
  const std::string where =
      status.directory.empty()
          ? fmt::format("in memory, and there is no cache directory of one's own ({})",
                        status.reason)
          : fmt::format("in the cache '{}'", status.directory);
  return base::make_error(DEEPGEMM_ERROR_NOT_PREPARED,
                          "Kernel '{}', architecture '{}', is not {}, and compiling is off "
                          "(DEEPGEMM_JIT=0). Allow it, or bring a pack that has the kernel "
                          "(deepgemm pack) and name it in DEEPGEMM_PACK_PATH, or such a cache in "
                          "DEEPGEMM_CACHE_DIR.",
                          request.source.name, request.source.arch, where);
}

Pipeline::Pipeline(PipelineSettings settings)
    : settings_(settings), slots_([] { return free_memory(); }, [] { return usable_cpus(); }) {}

Pipeline::~Pipeline() = default;

base::Result<std::shared_ptr<const Module>> Pipeline::build(const Source& source,
                                                            const CompilerSearch& search,
                                                            DiskCache& cache, bool may_compile) {
  const Request request(source, search, cache, may_compile);
  const base::Hash128 key = request.key();
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    if (const auto kept = modules_.find(key); kept != modules_.end()) {
      ++counters_.memory_hits;
      order_.splice(order_.begin(), order_, kept->second.place);
      return kept->second.module;
    }
    const auto other = flights_.find(key);
    if (other != flights_.end() && other->second->process == ::getpid()) {
      ++counters_.shared;
      const std::shared_future<BuildResult> result = other->second->result;
      lock.unlock();
      return result.get();
    }
    flight = std::make_shared<Flight>();
    flights_[key] = flight;
  }
  BuildResult result = [&]() -> BuildResult {
    try {
      return make(request);
    } catch (const std::exception& error) {
      return base::make_error(DEEPGEMM_ERROR_INTERNAL, "Building kernel '{}' failed: {}.",
                              source.name, error.what());
    }
  }();
  {
    const std::lock_guard lock(mutex_);
    if (result.ok()) keep(key, *result);
    flights_.erase(key);
  }
  flight->promise.set_value(result);
  return result;
}

std::shared_ptr<const Module> Pipeline::from_packs(const Source& source, const PackSet& packs) {
  const std::optional<PackSet::Hit> hit = packs.find(source);
  if (!hit) return nullptr;
  CompilerIdentity pack;  // names the result in memory
  pack.kind = "pack";
  pack.version = hit->entry->meta.kernel_hash;
  const base::Hash128 key = cache_key(source, pack, hit->entry->meta.library_version);
  {
    const std::lock_guard lock(mutex_);
    if (rejected_.contains(pack.version)) return nullptr;
    if (const auto kept = modules_.find(key); kept != modules_.end()) {
      ++counters_.memory_hits;
      order_.splice(order_.begin(), order_, kept->second.place);
      return kept->second.module;
    }
  }
  auto binary = hit->pack->read(*hit->entry);
  BuildResult module =
      binary.ok() ? Module::load(source, std::move(*binary), {}) : BuildResult(binary.error());
  if (!module.ok()) {
    base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kJit, "{}", module.error().message);
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  ++counters_.pack_hits;
  keep(key, *module);
  return *module;
}

void Pipeline::reject_packed(const Source& source, const PackSet& packs) {
  const std::optional<PackSet::Hit> hit = packs.find(source);
  if (!hit) return;
  const std::lock_guard lock(mutex_);
  rejected_.insert(hit->entry->meta.kernel_hash);
}

void Pipeline::reject(const Source& source, const CompilerSearch& search, DiskCache& cache,
                      const std::string& reason) {
  const Request request(source, search, cache, true);
  for (const Compiler* compiler : request.compilers) {
    cache.discard(source, request.key(compiler), reason);
  }
  const std::lock_guard lock(mutex_);
  const auto kept = modules_.find(request.key());
  if (kept == modules_.end()) return;
  order_.erase(kept->second.place);
  modules_.erase(kept);
}

PipelineCounters Pipeline::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

Pipeline::BuildResult Pipeline::make(const Request& request) {
  const Source& source = request.source;
  for (const Compiler* compiler : request.compilers) {
    if (ModulePointer module = from_disk(request, compiler)) return module;
  }
  if (request.compilers.empty() || !request.may_compile) {
    if (ModulePointer module = from_disk(request, nullptr)) return module;
  }
  count(&PipelineCounters::misses);
  if (!request.may_compile) return not_prepared(request);
  if (request.compilers.empty()) return no_compiler_error(request.search, source);
  std::optional<base::Error> first;
  for (const Compiler* compiler : request.compilers) {
    BuildResult result = compile(request, *compiler);
    if (result.ok()) return result;
    count(&PipelineCounters::failures);
    base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kJit, "{}", result.error().message);
    if (!first) first = result.error();
  }
  return *first;
}

// With no compiler: of any.
Pipeline::ModulePointer Pipeline::from_disk(const Request& request, const Compiler* compiler) {
  const Source& source = request.source;
  const base::Hash128 key = request.key(compiler);
  std::optional<DiskCache::Hit> hit = compiler != nullptr
                                          ? request.cache.find(source, key)
                                          : request.cache.find_by_any_compiler(source);
  if (!hit) return nullptr;
  BuildResult module = Module::load(source, std::move(hit->binary), hit->kernel_path);
  if (!module.ok()) {
    if (compiler != nullptr) request.cache.discard(source, key, module.error().message);
    return nullptr;
  }
  count(&PipelineCounters::disk_hits);
  if (compiler == nullptr) {
    base::log(DEEPGEMM_LOG_INFO, base::LogCategory::kJit,
              "Kernel '{}' is from the cache, made by {} {}: {}.", source.name, hit->compiler.kind,
              hit->compiler.version,
              request.may_compile ? "no compiler was found here" : "compiling is off");
  }
  return *module;
}

Pipeline::BuildResult Pipeline::compile(const Request& request, const Compiler& compiler) {
  const base::Hash128 key = request.key(&compiler);
  const Clock::time_point give_up = Clock::now() + settings_.lock_wait;
  std::optional<Progress> progress;
  for (;;) {
    const WorkLock lock = request.cache.lock(key);
    // Another process may have finished since the look at the disk.
    if (ModulePointer module = from_disk(request, &compiler)) return module;
    if (lock.state() != WorkLock::State::kBusy || Clock::now() >= give_up) {
      progress.reset();
      return compile_here(request, compiler);
    }
    if (!progress) {
      base::log(DEEPGEMM_LOG_INFO, base::LogCategory::kJit,
                "Kernel '{}' is being compiled by another process; waiting at most {:.1f} s.",
                request.source.name, std::chrono::duration<double>(settings_.lock_wait).count());
      progress.emplace(
          fmt::format("Waiting for another process to compile kernel '{}'", request.source.name),
          settings_.progress_interval);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Pipeline::BuildResult Pipeline::compile_here(const Request& request, const Compiler& compiler) {
  const Source& source = request.source;
  DEEPGEMM_TRACE("compile", source.name);
  const Progress progress(
      fmt::format("Compiling kernel '{}' with {}", source.name, compiler.location()),
      settings_.progress_interval);
  const JobSlot slot(slots_, compiler.memory_bytes());
  DEEPGEMM_TRY_ASSIGN(binary, compiler.compile(source));
  const double seconds = binary.seconds;
  base::log(DEEPGEMM_LOG_DEBUG, base::LogCategory::kJit, "Kernel '{}' was compiled in {:.3f} s.",
            source.name, seconds);
  const base::Hash128 key = request.key(&compiler);
  const std::string path = request.cache.publish(source, compiler.identity(), key, binary);
  BuildResult module = Module::load(source, std::move(binary), path);
  if (!module.ok()) {
    if (!path.empty()) request.cache.discard(source, key, module.error().message);
    return module;
  }
  const std::lock_guard lock(mutex_);
  ++counters_.compiles;
  counters_.compile_seconds += seconds;
  return module;
}

// Under mutex_.
void Pipeline::keep(const base::Hash128& key, const ModulePointer& module) {
  if (const auto old = modules_.find(key); old != modules_.end()) order_.erase(old->second.place);
  order_.push_front(key);
  modules_[key] = {module, order_.begin()};
  while (modules_.size() > settings_.kept_modules) {
    modules_.erase(order_.back());
    order_.pop_back();
  }
}

void Pipeline::count(uint64_t PipelineCounters::*counter) {
  const std::lock_guard lock(mutex_);
  ++(counters_.*counter);
}

}  // namespace deepgemm::jit
