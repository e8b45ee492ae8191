#include "jit/cache_admin.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

namespace deepgemm::jit {
namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kHour = 3600 * kSecond;
constexpr size_t kBadKept = 8;
constexpr size_t kKeyDigits = 32;

bool is_key(std::string_view name) {
  return name.size() == kKeyDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "0.1.0": keeps foreign folders out, so that clearing never touches them.
bool is_version(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789.") == std::string_view::npos &&
         name.find('.') != std::string_view::npos && name.front() != '.';
}

std::vector<std::string> names_in(FileOps& files, const std::string& path) {
  std::vector<std::string> names;
  files.list(path, names);
  std::sort(names.begin(), names.end());
  return names;
}

void measure(FileOps& files, StoredEntry& entry) {
  for (const char* name : {kKernelFile, kSourceFile, kMetaFile}) {
    FileInfo info;
    if (files.inspect(entry.path + "/" + name, info) != 0) continue;
    entry.bytes += info.bytes;
    // find() touches the description.
    if (name == std::string_view(kMetaFile)) entry.last_used_ns = info.changed_ns;
  }
}

// Out of sight first, so that no reader meets half of it.
void remove_entry(FileOps& files, const std::string& root, const StoredEntry& entry,
                  Removed& removed) {
  const std::string drafts = root + "/" + kDrafts.name;
  files.make_directory(drafts);
  const std::string hidden = drafts + "/" + kDrafts.prefix + unique_name();
  int error = files.rename(entry.path, hidden);
  if (error == 0) error = remove_tree(files, hidden);
  if (error == ENOENT) return;  // another process was faster
  if (error != 0) {
    removed.failures.push_back(entry.path + ": " + std::generic_category().message(error));
    return;
  }
  ++removed.entries;
  removed.bytes += entry.bytes;
}

// Removes what is at least `age` old, except the newest `kept`. Returns the first error.
int remove_old(FileOps& files, const std::string& root, const CacheFolder& folder, int64_t age,
               size_t kept) {
  const std::string path = root + "/" + folder.name;
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : names_in(files, path)) {
    FileInfo info;
    if (name.starts_with(folder.prefix) && files.inspect(path + "/" + name, info) == 0) {
      found.emplace_back(info.changed_ns, name);
    }
  }
  std::sort(found.rbegin(), found.rend());
  const int64_t now = int64_t{std::time(nullptr)} * kSecond;
  int first = 0;
  for (size_t i = kept; i < found.size(); ++i) {
    if (now - found[i].first < age) continue;
    const int error = remove_tree(files, path + "/" + found[i].second);
    if (first == 0) first = error;
  }
  return first;
}

// Fails, rightly, when something is in it.
void remove_if_empty(FileOps& files, const std::string& path) {
  FileInfo info;
  if (files.inspect(path, info) == 0 && info.kind == FileInfo::Kind::kDirectory) {
    files.remove(path);
  }
}

}  // namespace

std::vector<StoredEntry> list_entries(FileOps& files, const std::string& root) {
  std::vector<StoredEntry> entries;
  for (const std::string& version : names_in(files, root)) {
    if (!is_version(version)) continue;
    for (const std::string& arch : names_in(files, root + "/" + version)) {
      const std::string folder = root + "/" + version + "/" + arch;
      for (const std::string& key : names_in(files, folder)) {
        if (!is_key(key)) continue;
        entries.push_back({folder + "/" + key, version, arch, key});
        measure(files, entries.back());
      }
    }
  }
  return entries;
}

std::vector<CheckedEntry> verify_entries(FileOps& files, const std::string& root, Trust trust) {
  std::vector<CheckedEntry> checked;
  for (StoredEntry& stored : list_entries(files, root)) {
    EntryRead read = read_entry(files, stored.path, trust);
    if (read.state == EntryRead::State::kAbsent) continue;  // removed meanwhile
    EntryMeta& meta = read.entry.meta;
    if (read.state == EntryRead::State::kGood &&
        (meta.arch != stored.arch || meta.library_version != stored.library_version)) {
      read.reason = fmt::format("is an entry of version {}, architecture {}", meta.library_version,
                                meta.arch);
    }
    checked.push_back({std::move(stored), std::move(meta), std::move(read.reason)});
  }
  return checked;
}

SetAside count_set_aside(FileOps& files, const std::string& root) {
  const auto count = [&](const CacheFolder& folder) {
    const std::vector<std::string> names = names_in(files, root + "/" + folder.name);
    return static_cast<size_t>(
        std::count_if(names.begin(), names.end(),
                      [&](const std::string& name) { return name.starts_with(folder.prefix); }));
  };
  return {count(kBad), count(kFailures)};
}

void remove_leftovers(FileOps& files, const std::string& root) {
  remove_old(files, root, kDrafts, kHour, 0);
  remove_old(files, root, kLocks, 24 * kHour, 0);
  remove_old(files, root, kBad, std::numeric_limits<int64_t>::min(), kBadKept);
}

Removed prune_entries(FileOps& files, const std::string& root, int64_t limit,
                      const std::string& spared) {
  std::vector<StoredEntry> entries = list_entries(files, root);
  int64_t total = 0;
  for (const StoredEntry& entry : entries) total += entry.bytes;
  std::sort(entries.begin(), entries.end(), [](const StoredEntry& left, const StoredEntry& right) {
    return left.last_used_ns < right.last_used_ns;
  });
  Removed removed;
  for (const StoredEntry& entry : entries) {
    if (total <= limit) break;
    if (entry.path == spared) continue;
    remove_entry(files, root, entry, removed);
    total -= entry.bytes;
  }
  remove_leftovers(files, root);
  return removed;
}

Removed clear_entries(FileOps& files, const std::string& root) {
  Removed removed;
  for (const StoredEntry& entry : list_entries(files, root)) {
    remove_entry(files, root, entry, removed);
  }
  for (const CacheFolder& folder : {kDrafts, kLocks, kBad, kFailures}) {
    if (const int error = remove_old(files, root, folder, std::numeric_limits<int64_t>::min(), 0)) {
      removed.failures.push_back(root + "/" + folder.name + ": " +
                                 std::generic_category().message(error));
    }
    remove_if_empty(files, root + "/" + folder.name);
  }
  for (const std::string& version : names_in(files, root)) {
    if (!is_version(version)) continue;
    const std::string path = root + "/" + version;
    for (const std::string& arch : names_in(files, path)) remove_if_empty(files, path + "/" + arch);
    remove_if_empty(files, path);
  }
  return removed;
}

}  // namespace deepgemm::jit
