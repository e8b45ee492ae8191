// deepgemm cache: the directory of compiled kernels.
#include <algorithm>
#include <ctime>
#include <map>
#include <memory>

#include "base/files.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"
#include "jit/cache_admin.hpp"
#include "jit/disk_cache.hpp"
#include "jit/service.hpp"

namespace deepgemm::cli {
namespace {

// The directory that this process would use, and how.
struct Place {
  std::string path;
  std::string chosen_by;
  jit::DiskCache::Status status;
  bool only_read = false;
};

base::Result<Place> find_place() {
  const base::CacheDirectory found = base::resolve_cache_directory();
  Place place;
  place.chosen_by = found.source;
  place.status = jit::process_service().cache_status();
  place.only_read = place.status.directory.empty();
  place.path = place.only_read ? place.status.shared_directory : place.status.directory;
  if (place.path.empty()) {
    return base::make_error(DEEPGEMM_ERROR_IO,
                            "there is no cache directory ({}); set DEEPGEMM_CACHE_DIR to a "
                            "directory of your own that can be written",
                            place.status.reason);
  }
  return place;
}

std::string state_of(const Place& place) {
  if (place.only_read) return "only read; new kernels stay in memory";
  return place.status.usable ? "writable" : "not used; kernels stay in memory";
}

std::string date_text(int64_t ns) {
  std::tm local = {};
  const std::time_t seconds = ns / 1000000000;
  localtime_r(&seconds, &local);
  char text[32] = "";
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local);
  return text;
}

base::Result<ExitCode> show_path() {
  DEEPGEMM_TRY_ASSIGN(place, find_place());
  print("{}\n", place.path);
  return ExitCode::kOk;
}

void print_groups(const std::vector<jit::StoredEntry>& entries) {
  struct Group {
    size_t count = 0;
    double bytes = 0;
    int64_t last_used_ns = 0;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const jit::StoredEntry& entry : entries) {
    Group& group = groups[{entry.library_version, entry.arch}];
    ++group.count;
    group.bytes += static_cast<double>(entry.bytes);
    group.last_used_ns = std::max(group.last_used_ns, entry.last_used_ns);
  }
  Table table({"version", "architecture", ">entries", ">size", "last used"});
  for (const auto& [name, group] : groups) {
    table.add({name.first, name.second, fmt::format("{}", group.count), bytes_text(group.bytes),
               date_text(group.last_used_ns)});
  }
  print("\n{}", table.text());
}

base::Result<ExitCode> show_cache() {
  DEEPGEMM_TRY_ASSIGN(place, find_place());
  const auto entries = jit::list_entries(jit::system_files(), place.path);
  double bytes = 0;
  for (const jit::StoredEntry& entry : entries) bytes += static_cast<double>(entry.bytes);
  print("directory  {}\n", place.path);
  print("chosen by  {}\n", place.chosen_by);
  print("state      {}\n", state_of(place));
  if (!place.status.usable) print("reason     {}\n", place.status.reason);
  print("entries    {}, {} of at most {}\n", entries.size(), bytes_text(bytes),
        bytes_text(static_cast<double>(place.status.size_limit)));
  const jit::SetAside aside = jit::count_set_aside(jit::system_files(), place.path);
  print("set aside  {} bad entries, {} sources that did not compile\n", aside.bad, aside.failed);
  if (!entries.empty()) print_groups(entries);
  return ExitCode::kOk;
}

base::Result<ExitCode> verify_cache() {
  DEEPGEMM_TRY_ASSIGN(place, find_place());
  const auto checked = jit::verify_entries(
      jit::system_files(), place.path, place.only_read ? jit::Trust::kShared : jit::Trust::kOwn);
  size_t bad = 0;
  for (const jit::CheckedEntry& entry : checked) {
    if (entry.fault.empty()) continue;
    ++bad;
    print("{}  {}\n           {}\n", paint(Color::kRed, "BAD"), entry.stored.path, entry.fault);
  }
  print("{} of {} entries in {} are whole\n", checked.size() - bad, checked.size(), place.path);
  if (bad == 0) return ExitCode::kOk;
  print(
      "No bad entry is ever loaded: its kernel is compiled again when it is needed. "
      "`deepgemm cache prune --all` removes all of them now.\n");
  return ExitCode::kCheckFailed;
}

base::Result<ExitCode> prune_cache(int64_t limit, bool all) {
  DEEPGEMM_TRY_ASSIGN(place, find_place());
  const jit::Removed removed = all ? jit::clear_entries(jit::system_files(), place.path)
                                   : jit::prune_entries(jit::system_files(), place.path, limit);
  print("removed    {} entries, {}\n", removed.entries,
        bytes_text(static_cast<double>(removed.bytes)));
  if (removed.failures.empty()) return ExitCode::kOk;
  return base::make_error(DEEPGEMM_ERROR_IO,
                          "{} could not be removed, first {}; run it as the owner of '{}', where "
                          "that can be written",
                          removed.failures.size(), removed.failures.front(), place.path);
}

}  // namespace

Verb add_cache(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "cache", "Show, verify or prune the directory of compiled kernels (show is the default)");
  command->require_subcommand(0, 1);
  using Run = std::function<base::Result<ExitCode>()>;
  const auto run = std::make_shared<Run>(show_cache);
  const auto add = [&](const char* name, const char* text, Run what) {
    CLI::App* verb = command->add_subcommand(name, text);
    verb->callback([run, what] { *run = what; });
    return verb;
  };
  add("show", "Print where it is, its state, and what is in it", show_cache);
  add("path", "Print the path of the directory alone", show_path);
  add("verify", "Read every entry whole; exit code 1 when one is bad", verify_cache);

  const auto limit = std::make_shared<uint64_t>(jit::DiskCacheSettings{}.size_limit);
  const auto all = std::make_shared<bool>(false);
  CLI::App* prune =
      add("prune", "Remove the entries used longest ago, and what killed processes left",
          [limit, all] { return prune_cache(static_cast<int64_t>(*limit), *all); });
  CLI::Option* size = prune->add_option("--limit", *limit, "bytes that may stay, such as 200MB")
                          ->transform(CLI::AsSizeValue(false))
                          ->check(CLI::Range(uint64_t{0}, uint64_t{INT64_MAX}))
                          ->default_str("1GB");
  prune->add_flag("--all", *all, "remove all entries and kept sources")->excludes(size);
  return {command, [run] { return (*run)(); }};
}

}  // namespace deepgemm::cli
