#include "jit/disk_cache.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "base/log.hpp"
#include "deepgemm/version.h"
#include "jit/cache_admin.hpp"

namespace deepgemm::jit {
namespace {

using State = EntryRead::State;

constexpr int kCountAgainAfter = 64;  // publishes: other processes publish too

std::string text_of(int error) { return std::generic_category().message(error); }

// Fit for a folder name.
bool is_plain(const std::string& name) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.";
  return !name.empty() && name.front() != '.' &&
         name.find_first_not_of(kPlain) == std::string::npos;
}

// A cache that lies elsewhere behind a symbolic link is fine; below it there are no links.
std::string resolved(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real.string();
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

int make_path(FileOps& files, const std::string& path) {
  int error = files.make_directory(path);
  if (error == ENOENT) {
    const std::string parent = std::filesystem::path(path).parent_path().string();
    if (parent.empty() || parent == path) return error;
    error = make_path(files, parent);
    if (error == 0) error = files.make_directory(path);
  }
  if (error == 0) return 0;
  FileInfo info;  // some systems say "read-only" or "denied" of directories that exist
  return files.inspect(path, info) == 0 && info.kind == FileInfo::Kind::kDirectory ? 0 : error;
}

std::string mismatch(const EntryMeta& meta, const Source& source,
                     const std::string& library_version) {
  if (meta.arch != source.arch) return fmt::format("is for architecture '{}'", meta.arch);
  if (meta.language != language_name(source.language)) return "is of language " + meta.language;
  if (meta.library_version != library_version) return "is of version " + meta.library_version;
  if (meta.symbols != source.symbols) return "has other symbols";
  return {};
}

}  // namespace

DiskCacheSettings disk_cache_settings_from_environment() {
  const base::CacheDirectory found = base::resolve_cache_directory();
  DiskCacheSettings settings;
  std::error_code ignored;
  if (found.usable) {
    settings.directory = found.path;
  } else if (std::filesystem::is_directory(found.path, ignored)) {
    settings.shared_directory = found.path;
  }
  settings.directory_reason = found.reason;
  if (found.reason.empty() && found.usable) settings.directory_reason = "from " + found.source;
  return settings;
}

DiskCache::DiskCache(DiskCacheSettings settings)
    : settings_(std::move(settings)),
      files_(settings_.files == nullptr ? system_files() : *settings_.files) {
  settings_.directory = resolved(settings_.directory);
  settings_.shared_directory = resolved(settings_.shared_directory);
  if (settings_.library_version.empty()) settings_.library_version = DEEPGEMM_VERSION_STRING;
  if (settings_.directory.empty()) {
    warn_once("directory",
              fmt::format("Compiled kernels stay in memory only{}: {}. Set "
                          "DEEPGEMM_CACHE_DIR to a directory of your own.",
                          settings_.shared_directory.empty() ? "" : ", and the cache is only read",
                          settings_.directory_reason.empty() ? "no cache directory was given"
                                                             : settings_.directory_reason));
  }
}

DiskCache::Status DiskCache::status() const {
  Status status;
  status.directory = settings_.directory;
  status.reason = settings_.directory_reason;
  status.shared_directory = settings_.shared_directory;
  status.size_limit = settings_.size_limit;
  std::string why;
  status.usable = !settings_.directory.empty() && trusted(settings_.directory, Trust::kOwn, why);
  if (!why.empty()) status.reason = why;
  if (!status.usable && why.empty() && !status.directory.empty()) {
    status.reason = "does not exist yet; it is created with the first kernel";
  }
  return status;
}

base::Hash128 DiskCache::key_of(const Source& source, const CompilerIdentity& identity) const {
  return cache_key(source, identity, settings_.library_version);
}

// No reason when there is no such directory.
bool DiskCache::trusted(const std::string& root, Trust trust, std::string& reason) const {
  FileInfo info;
  if (const int error = files_.inspect(root, info)) {
    if (error != ENOENT) reason = fmt::format("'{}': {}", root, text_of(error));
    return false;
  }
  std::string why = distrust(info, trust);
  if (info.kind != FileInfo::Kind::kDirectory) why = "is no directory";
  if (why.empty()) return true;
  reason =
      fmt::format("'{}' {}; use a directory of your own, such as a new one below it", root, why);
  return false;
}

std::string DiskCache::folder_of(const std::string& root, const Source& source) const {
  return root + "/" + settings_.library_version + "/" + source.arch;
}

std::optional<DiskCache::Hit> DiskCache::find(const Source& source, const base::Hash128& key) {
  const std::string name = key.hex();
  if (auto hit = read_level(settings_.directory, Trust::kOwn, source, name)) return hit;
  return read_level(settings_.shared_directory, Trust::kShared, source, name);
}

std::optional<DiskCache::Hit> DiskCache::find_by_any_compiler(const Source& source) {
  const std::string prefix = source_key(source, settings_.library_version);
  const std::pair<std::string, Trust> levels[] = {{settings_.directory, Trust::kOwn},
                                                  {settings_.shared_directory, Trust::kShared}};
  for (const auto& [root, trust] : levels) {
    if (root.empty() || !is_plain(source.arch)) continue;
    std::vector<std::string> names;
    files_.list(folder_of(root, source), names);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (!name.starts_with(prefix)) continue;
      if (auto hit = read_level(root, trust, source, name)) return hit;
    }
  }
  return std::nullopt;
}

std::optional<DiskCache::Hit> DiskCache::read_level(const std::string& root, Trust trust,
                                                    const Source& source, const std::string& key) {
  if (root.empty() || !is_plain(source.arch)) return std::nullopt;
  std::string reason;
  if (!trusted(root, trust, reason)) {
    if (!reason.empty()) {
      warn_once("trust " + root, fmt::format("The cache is not used: {}.", reason));
    }
    return std::nullopt;
  }
  return take_entry(folder_of(root, source) + "/" + key, trust, source);
}

std::optional<DiskCache::Hit> DiskCache::take_entry(const std::string& path, Trust trust,
                                                    const Source& source) {
  EntryRead read = read_entry(files_, path, trust);
  if (read.state == State::kUnreadable) read = read_entry(files_, path, trust);  // a stale handle
  if (read.state == State::kGood) {
    read.reason = mismatch(read.entry.meta, source, settings_.library_version);
    if (!read.reason.empty()) read.state = State::kBad;
  }
  switch (read.state) {
    case State::kGood:
      if (trust == Trust::kOwn) files_.touch(path + "/" + kMetaFile);
      return Hit{std::move(read.entry.binary), std::move(read.entry.meta.compiler),
                 path + "/" + kKernelFile};
    case State::kAbsent:
      break;
    case State::kBad:
      if (trust == Trust::kOwn) {
        set_aside(path, read.reason);
        break;
      }
      [[fallthrough]];
    case State::kUnreadable:
    case State::kUntrusted:
      warn_once("entry " + path,
                fmt::format("Cache entry '{}' is not used: {}.", path, read.reason));
  }
  return std::nullopt;
}

void DiskCache::set_aside(const std::string& path, const std::string& reason) {
  const std::string folder = settings_.directory + "/" + kBad.name;
  files_.make_directory(folder);
  const std::string to = folder + "/" + kBad.prefix + unique_name();
  const int error = files_.rename(path, to);
  if (error == ENOENT) return;  // another process has just done it
  if (error != 0) {
    warn_once("entry " + path,
              fmt::format("Cache entry '{}' is bad ({}) and cannot be moved away: {}.", path,
                          reason, text_of(error)));
    return;
  }
  remove_leftovers(files_, settings_.directory);
  base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kCache,
            "Cache entry '{}' was bad ({}); it is now '{}', and the kernel is compiled again.",
            path, reason, to);
}

void DiskCache::discard(const Source& source, const base::Hash128& key, const std::string& reason) {
  if (settings_.directory.empty() || !is_plain(source.arch)) return;
  set_aside(folder_of(settings_.directory, source) + "/" + key.hex(), reason);
}

bool DiskCache::make_folders(const Source& source) {
  int error = 0;
  for (const std::string& path : {settings_.directory, settings_.directory + "/" + kDrafts.name,
                                  settings_.directory + "/" + settings_.library_version,
                                  folder_of(settings_.directory, source)}) {
    if (error == 0) error = make_path(files_, path);
  }
  std::string reason;
  if (error != 0) {
    reason = fmt::format("folders of '{}': {}", settings_.directory, text_of(error));
  } else if (trusted(settings_.directory, Trust::kOwn, reason)) {
    return true;
  }
  warn_once("write", fmt::format("Compiled kernels stay in memory: {}.", reason));
  return false;
}

int DiskCache::write_draft(const std::string& draft, const Source& source,
                           const CompilerIdentity& identity, const std::string& key,
                           const Binary& binary) {
  const std::string listing = source_listing(source);
  EntryMeta meta;
  meta.key = key;
  meta.library_version = settings_.library_version;
  meta.arch = source.arch;
  meta.language = language_name(source.language);
  meta.name = source.name;
  meta.symbols = source.symbols;
  meta.compiler = identity;
  meta.kernel_bytes = static_cast<int64_t>(binary.bytes.size());
  meta.kernel_hash = base::hash_bytes(binary.bytes.data(), binary.bytes.size()).hex();
  meta.source_bytes = static_cast<int64_t>(listing.size());
  meta.source_hash = base::hash_bytes(listing).hex();
  meta.log = binary.log;
  // What is loaded is flushed, so that a crash leaves no entry whose content is missing. That a
  // crash may lose a name is harmless.
  int error = files_.make_directory(draft);
  if (error == 0) error = files_.write_new(draft + "/" + kSourceFile, bytes_of(listing), false);
  if (error == 0) error = files_.write_new(draft + "/" + kKernelFile, binary.bytes, true);
  if (error == 0)
    error = files_.write_new(draft + "/" + kMetaFile, bytes_of(write_meta(meta)), true);
  return error;
}

int DiskCache::move_into_place(const std::string& draft, const std::string& path,
                               const Source& source) {
  constexpr int kAttempts = 4;
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    error = files_.rename(draft, path);
    switch (error) {
      case 0:
        return 0;
      case EEXIST:
      case ENOTEMPTY:
      case ENOTDIR: {  // a file in its place
        const EntryRead read = read_entry(files_, path, Trust::kOwn);
        if (read.state != State::kBad) return EEXIST;
        set_aside(path, read.reason);
        break;
      }
      case ENOENT:  // somebody cleared the cache
        if (!make_folders(source)) return error;
        break;
      case EBUSY:
      case ESTALE:
      case EAGAIN:
      case EINTR:
        std::this_thread::sleep_for(std::chrono::milliseconds(10 << attempt));
        break;
      default:
        return error;
    }
  }
  return error;
}

std::string DiskCache::publish(const Source& source, const CompilerIdentity& identity,
                               const base::Hash128& key, const Binary& binary) {
  if (settings_.directory.empty() || !is_plain(source.arch) || !make_folders(source)) return {};
  const std::string draft =
      fmt::format("{}/{}/{}{}", settings_.directory, kDrafts.name, kDrafts.prefix, unique_name());
  const std::string path = folder_of(settings_.directory, source) + "/" + key.hex();
  int error = write_draft(draft, source, identity, key.hex(), binary);
  if (error == 0) error = move_into_place(draft, path, source);
  if (error != 0) {
    remove_tree(files_, draft);
    if (error != EEXIST) {
      warn_once("write",
                fmt::format("Compiled kernels stay in memory: cannot write below '{}': {}.",
                            settings_.directory, text_of(error)));
    }
    return {};
  }
  keep_limits(path, static_cast<int64_t>(binary.bytes.size()));
  return path + "/" + kKernelFile;
}

void DiskCache::keep_limits(const std::string& newest, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const bool count = known_bytes_ < 0 || ++publishes_since_count_ >= kCountAgainAfter;
    if (!count) known_bytes_ += bytes;
    if (!count && known_bytes_ <= settings_.size_limit) return;
    publishes_since_count_ = 0;
    known_bytes_ = 0;  // others need not count meanwhile
  }
  // Some room for the next ones, so that not every publish has to look for victims.
  const int64_t goal = settings_.size_limit - settings_.size_limit / 10;
  int64_t total = 0;
  for (const StoredEntry& entry : list_entries(files_, settings_.directory)) total += entry.bytes;
  if (total > settings_.size_limit) {
    total -= prune_entries(files_, settings_.directory, goal, newest).bytes;
  } else {
    remove_leftovers(files_, settings_.directory);
  }
  const std::lock_guard lock(mutex_);
  known_bytes_ = total;
}

WorkLock DiskCache::lock(const base::Hash128& key) {
  const std::string folder = settings_.directory + "/" + kLocks.name;
  std::string reason;
  if (settings_.directory.empty() || make_path(files_, folder) != 0 ||
      !trusted(settings_.directory, Trust::kOwn, reason)) {
    return WorkLock::take({});
  }
  return WorkLock::take(folder + "/" + kLocks.prefix + key.hex());
}

void DiskCache::warn_once(const std::string& subject, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(subject).second) return;
  }
  base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kCache, "{}", message);
}

}  // namespace deepgemm::jit
