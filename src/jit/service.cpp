#include "jit/service.hpp"

#include <utility>

#include "base/env.hpp"

namespace deepgemm::jit {

Service::Service(PipelineSettings settings) : pipeline_(std::move(settings)) {}

base::Result<std::shared_ptr<const Module>> Service::build(const Source& source) {
  if (auto packed = pipeline_.from_packs(source, *packs())) return packed;
  DEEPGEMM_TRY_ASSIGN(compiling, may_compile());
  const std::shared_ptr<DiskCache> disk = cache();
  std::shared_ptr<const CompilerSearch> search;
  if (compiling) {
    search = compilers(source.language);
  } else {
    // Kernels that were compiled before it was forbidden are named by these.
    search = searches_[static_cast<size_t>(source.language)].newest();
    if (!search) search = std::make_shared<const CompilerSearch>();
  }
  return pipeline_.build(source, *search, *disk, compiling);
}

void Service::reject(const Source& source, const std::string& reason) {
  pipeline_.reject_packed(source, *packs());
  const std::shared_ptr<DiskCache> disk = cache();
  pipeline_.reject(source, *compilers(source.language), *disk, reason);
}

void Service::set_nvcc_path(const std::string& path) {
  const std::lock_guard lock(mutex_);
  nvcc_path_ = path;
}

std::string Service::nvcc_path() const {
  {
    const std::lock_guard lock(mutex_);
    if (!nvcc_path_.empty()) return nvcc_path_;
  }
  return base::env("DEEPGEMM_NVCC_PATH").value_or("");
}

std::shared_ptr<const CompilerSearch> Service::compilers(Language language) {
  const CompilerSettings settings = compiler_settings(language);
  return searches_[static_cast<size_t>(language)].get(settings, [&] {
    return std::make_shared<const CompilerSearch>(find_compilers(language, settings));
  });
}

std::shared_ptr<const PackSet> Service::packs() {
  const std::string list = base::env("DEEPGEMM_PACK_PATH").value_or("");
  return packs_.get(list, [&] { return open_packs(list); });
}

DiskCache::Status Service::cache_status() { return cache()->status(); }

base::Result<bool> Service::may_compile() const {
  DEEPGEMM_TRY_ASSIGN(value, base::env_integer("DEEPGEMM_JIT", 0, 1));
  return value.value_or(1) == 1;
}

// Without what the search for the other language reads, so that a change there does not repeat this
// one.
CompilerSettings Service::compiler_settings(Language language) {
  CompilerSettings settings = compiler_settings_from_environment(cache()->first_directory());
  if (language == Language::kCpp) {
    settings.nvrtc_path.clear();
    settings.nvcc_path.clear();
    settings.cuda_home.clear();
    settings.virtual_env.clear();
  } else {
    settings.cxx.clear();
    settings.nvcc_path = nvcc_path();
  }
  return settings;
}

std::shared_ptr<DiskCache> Service::cache() {
  const CacheVariables variables = {base::env("DEEPGEMM_CACHE_DIR"), base::env("XDG_CACHE_HOME"),
                                    base::env("HOME")};
  return cache_.get(variables, [] {
    return std::make_shared<DiskCache>(disk_cache_settings_from_environment());
  });
}

Service& process_service() {
  static Service& service = *new Service;
  return service;
}

}  // namespace deepgemm::jit
