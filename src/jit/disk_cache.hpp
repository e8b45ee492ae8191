// Compiled kernels on disk: one directory an entry, published atomically, trusted only when whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/hash.hpp"
#include "jit/cache_entry.hpp"
#include "jit/compiler.hpp"
#include "jit/file_ops.hpp"
#include "jit/source.hpp"
#include "jit/work_lock.hpp"

namespace deepgemm::jit {

struct DiskCacheSettings {
  std::string directory;                  // first level; empty: none
  std::string directory_reason;           // why there is none, or why it is this one; for status()
  std::string shared_directory;           // second level, only read; empty: none
  int64_t size_limit = int64_t{1} << 30;  // bytes of all entries of the first level
  std::string library_version;            // empty: the version of this library
  FileOps* files = nullptr;               // null: the real file system; outlives the cache
};

// The directory that base::resolve_cache_directory() finds; one that is there and cannot be
// written, such as part of a container's image, is only read. Reads the environment at each call.
DiskCacheSettings disk_cache_settings_from_environment();

// Where entries are read and written; see docs/cache.md. Any number of processes and threads may
// share the directory; correctness needs no lock. No fault of the file system is an error: what
// cannot be read is absent, what cannot be written stays in memory, and the log has one warning of
// each kind. All functions may be called by any thread.
class DiskCache {
 public:
  explicit DiskCache(DiskCacheSettings settings);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  struct Status {
    std::string directory;
    bool usable = false;  // exists and is trusted; whether it can be written shows when it is
    std::string reason;
    std::string shared_directory;
    int64_t size_limit = 0;
  };
  // Looks anew at each call.
  Status status() const;
  // Of the first level; empty: none.
  const std::string& first_directory() const { return settings_.directory; }

  base::Hash128 key_of(const Source& source, const CompilerIdentity& identity) const;

  struct Hit {
    Binary binary;
    CompilerIdentity compiler;
    std::string kernel_path;  // the file that `binary` was read from
  };
  std::optional<Hit> find(const Source& source, const base::Hash128& key);
  // An entry of this source by any compiler: for hosts that have none.
  std::optional<Hit> find_by_any_compiler(const Source& source);

  // Path of the published kernel file; empty when it stays in memory (no directory, no space,
  // another process was faster).
  std::string publish(const Source& source, const CompilerIdentity& identity,
                      const base::Hash128& key, const Binary& binary);

  // Sets an entry of the first level aside that turned out to be bad.
  void discard(const Source& source, const base::Hash128& key, const std::string& reason);

  // Lock on the work of making one entry.
  WorkLock lock(const base::Hash128& key);

 private:
  std::optional<Hit> read_level(const std::string& root, Trust trust, const Source& source,
                                const std::string& key);
  std::optional<Hit> take_entry(const std::string& path, Trust trust, const Source& source);
  std::string folder_of(const std::string& root, const Source& source) const;
  bool trusted(const std::string& root, Trust trust, std::string& reason) const;
  bool make_folders(const Source& source);
  int write_draft(const std::string& draft, const Source& source, const CompilerIdentity& identity,
                  const std::string& key, const Binary& binary);
  int move_into_place(const std::string& draft, const std::string& path, const Source& source);
  void set_aside(const std::string& path, const std::string& reason);
  void keep_limits(const std::string& newest, int64_t bytes);
  // Logs the first warning with this subject.
  void warn_once(const std::string& subject, const std::string& message);

  DiskCacheSettings settings_;
  FileOps& files_;
  std::mutex mutex_;
  std::set<std::string> warned_;   // under mutex_
  int64_t known_bytes_ = -1;       // under mutex_; of all entries, -1: not yet counted
  int publishes_since_count_ = 0;  // under mutex_
};

}  // namespace deepgemm::jit
