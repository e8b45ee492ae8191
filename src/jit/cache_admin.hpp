// What one can see and do of a cache directory from outside: `deepgemm cache`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/cache_entry.hpp"
#include "jit/file_ops.hpp"

namespace deepgemm::jit {

// Subdirectories of a cache directory beside those of library versions, and how the names of what
// is in them begin. Nothing else is ever removed from them: somebody may have chosen a directory
// that has such folders for other reasons.
struct CacheFolder {
  const char* name;
  const char* prefix;
};
inline constexpr CacheFolder kDrafts = {"tmp", "draft-"};        // entries being written or removed
inline constexpr CacheFolder kLocks = {"lock", "key-"};          // see WorkLock
inline constexpr CacheFolder kBad = {"bad", "bad-"};             // entries that were set aside
inline constexpr CacheFolder kFailures = {"failed", "failed-"};  // see compile_report.hpp

struct StoredEntry {
  std::string path;
  std::string library_version;
  std::string arch;
  std::string key;
  int64_t bytes = 0;         // of its files
  int64_t last_used_ns = 0;  // since 1970
};

// All entries of a cache directory, of every library version; what does not look like one is left
// out. Empty for a directory that is not there.
std::vector<StoredEntry> list_entries(FileOps& files, const std::string& root);

struct CheckedEntry {
  StoredEntry stored;
  EntryMeta meta;     // filled when the entry is good
  std::string fault;  // empty: good
};
// Reads every entry whole. Bad ones stay where they are; the next process that asks for one sets it
// aside. `trust`: kShared for a directory that is only read.
std::vector<CheckedEntry> verify_entries(FileOps& files, const std::string& root,
                                         Trust trust = Trust::kOwn);

// How many entries were set aside as bad, and how many sources of failed compiles are kept.
struct SetAside {
  size_t bad = 0;
  size_t failed = 0;
};
SetAside count_set_aside(FileOps& files, const std::string& root);

struct Removed {
  size_t entries = 0;
  int64_t bytes = 0;
  std::vector<std::string> failures;  // "path: reason"
};
// Removes what killed processes left behind long ago, and all but the newest bad entries.
void remove_leftovers(FileOps& files, const std::string& root);

// Removes the entries used longest ago until the rest has at most `limit` bytes, sparing the one at
// `spared`; and leftovers.
Removed prune_entries(FileOps& files, const std::string& root, int64_t limit,
                      const std::string& spared = {});

// Removes all entries and the folders above; other files in the directory stay.
Removed clear_entries(FileOps& files, const std::string& root);

}  // namespace deepgemm::jit
