#include "jit/work_directory.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <vector>

#include "jit/file_ops.hpp"

namespace deepgemm::jit {
namespace {

constexpr const char* kPrefix = "deepgemm-compile-";
constexpr int64_t kAbandonedNs = int64_t{3600} * 1000000000;  // far beyond any time limit

void remove_abandoned(const std::string& parent) {
  FileOps& files = system_files();
  std::vector<std::string> names;
  files.list(parent, names);
  const int64_t now = int64_t{std::time(nullptr)} * 1000000000;
  for (const std::string& name : names) {
    FileInfo info;
    const std::string path = parent + "/" + name;
    if (name.starts_with(kPrefix) && files.inspect(path, info) == 0 &&
        info.kind == FileInfo::Kind::kDirectory && info.owner == ::geteuid() &&
        now - info.changed_ns > kAbandonedNs) {
      remove_tree(files, path);
    }
  }
}

bool stays_inside(const std::filesystem::path& name) {
  if (name.empty() || name.is_absolute()) return false;
  for (const std::filesystem::path& part : name) {
    if (part == "..") return false;
  }
  return true;
}

base::Result<void> write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    return base::make_error(DEEPGEMM_ERROR_IO, "Cannot write '{}'. Check the free space.", path);
  }
  return {};
}

}  // namespace

base::Result<WorkDirectory> WorkDirectory::create(const std::string& parent) {
  std::string tried;
  for (const std::string& place :
       {parent, std::string("/tmp"), std::string("/var/tmp"), std::string("/dev/shm")}) {
    if (place.empty()) continue;
    static std::once_flag swept;
    std::call_once(swept, remove_abandoned, place);
    std::string path = std::filesystem::absolute(place) / (std::string(kPrefix) + "XXXXXX");
    if (::mkdtemp(path.data()) != nullptr) return WorkDirectory(path);
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", place,
                         std::generic_category().message(errno));
  }
  return base::make_error(DEEPGEMM_ERROR_IO,
                          "No directory for temporary files of a compiler ({}). Set TMPDIR to a "
                          "directory that can be written.",
                          tried);
}

WorkDirectory::~WorkDirectory() {
  if (!path_.empty()) remove_tree(system_files(), path_);
}

base::Result<void> write_source(const Source& source, const std::string& directory,
                                const std::string& main_file) {
  DEEPGEMM_TRY(write_text(directory + "/" + main_file, source.text));
  for (const Header& header : source.headers) {
    const std::filesystem::path name(header.name);
    if (!stays_inside(name)) {
      return base::make_error(DEEPGEMM_ERROR_INTERNAL,
                              "Header name '{}' of kernel '{}' leads out of its directory.",
                              header.name, source.name);
    }
    const std::filesystem::path path = directory / name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    DEEPGEMM_TRY(write_text(path, header.text));
  }
  return {};
}

}  // namespace deepgemm::jit
