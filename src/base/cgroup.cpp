#include "base/cgroup.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace deepgemm::base {
namespace {

// Version 1 writes a huge number for "no limit".
constexpr int64_t kUnlimitedBytes = int64_t{1} << 60;

struct Group {
  std::string root;  // where the hierarchy is mounted
  std::string path;  // of the process's group in it: "/a/b"
  bool v2;
};

bool names_controller(std::string_view list, std::string_view controller) {
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    if (name == controller) return true;
    list.remove_prefix(std::min(list.size(), name.size() + 1));
  }
  return false;
}

// Groups of the process that may limit `controller`. A line of /proc/self/cgroup is
// "<id>:<controllers>:<path>"; version 2 has id 0 and no controllers.
std::vector<Group> groups_for(std::string_view controller, const std::string& proc,
                              const std::string& cgroup) {
  std::vector<Group> groups;
  std::ifstream file(proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (list.empty()) {
      groups.push_back({cgroup, path, true});
      groups.push_back({cgroup + "/unified", path, true});  // hybrid mounts
    } else if (names_controller(list, controller)) {
      groups.push_back({cgroup + "/" + list, path, false});
      groups.push_back({cgroup + "/" + std::string(controller), path, false});
    }
  }
  return groups;
}

// Visits the group's folder and those above, the mount itself last: inside a container the path may
// be the host's, of which only the mount exists.
void walk_up(const Group& group, const std::function<void(const std::string&)>& visit) {
  std::string path = group.path;
  while (!path.empty() && path != "/") {
    visit(group.root + path);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) break;
    path.resize(slash);
  }
  visit(group.root);
}

// A number of bytes in a file; absent when there is none, or one that stands for "no limit".
std::optional<int64_t> bytes_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value) || value < 0 || value >= kUnlimitedBytes) return std::nullopt;
  return value;
}

// File cache counts as used but can be had: "inactive_file" of memory.stat.
int64_t reclaimable(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == "inactive_file" || name == "total_inactive_file") return value;
  }
  return 0;
}

const char* limit_file(bool v2) { return v2 ? "/memory.max" : "/memory.limit_in_bytes"; }
const char* usage_file(bool v2) { return v2 ? "/memory.current" : "/memory.usage_in_bytes"; }

double number(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

// "400000 100000" or "max 100000" (version 2); two files in version 1, quota -1 for none.
double quota_in(const std::string& folder, bool v2) {
  std::string quota;
  std::string period;
  if (v2) {
    std::ifstream file(folder + "/cpu.max");
    file >> quota >> period;
  } else {
    quota = read_word(folder + "/cpu.cfs_quota_us");
    period = read_word(folder + "/cpu.cfs_period_us");
  }
  const double length = number(period);
  const double time = number(quota);  // "max" reads as 0
  return time > 0 && length > 0 ? time / length : 0;
}

}  // namespace

std::string read_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

double cpu_quota(const std::string& proc, const std::string& cgroup) {
  double smallest = 0;
  for (const Group& group : groups_for("cpu", proc, cgroup)) {
    walk_up(group, [&](const std::string& folder) {
      const double quota = quota_in(folder, group.v2);
      if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    });
  }
  return smallest;
}

int64_t memory_limit(const std::string& proc, const std::string& cgroup) {
  int64_t smallest = 0;
  for (const Group& group : groups_for("memory", proc, cgroup)) {
    walk_up(group, [&](const std::string& folder) {
      const int64_t limit = bytes_in(folder + limit_file(group.v2)).value_or(0);
      if (limit > 0 && (smallest == 0 || limit < smallest)) smallest = limit;
    });
  }
  return smallest;
}

int64_t memory_left(const std::string& proc, const std::string& cgroup) {
  int64_t least = -1;
  for (const Group& group : groups_for("memory", proc, cgroup)) {
    walk_up(group, [&](const std::string& folder) {
      const auto limit = bytes_in(folder + limit_file(group.v2));
      const auto used = bytes_in(folder + usage_file(group.v2));
      if (!limit || !used) return;
      const int64_t left = std::max<int64_t>(0, *limit - *used + reclaimable(folder));
      if (least < 0 || left < least) least = left;
    });
  }
  return least;
}

}  // namespace deepgemm::base
