// deepgemm cache: the directory of compiled kernels.
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/files.hpp"
#include "deepgemm/terminal.hpp"
#include "deepgemm/verb.hpp"

namespace deepgemm::cli {
namespace {

struct Content {
  int64_t files = 0;
  double bytes = 0;
};

// What lies below a directory; what cannot be read is left out.
Content content_of(const std::string& path) {
  Content content;
  std::error_code error;
  const auto skip = std::filesystem::directory_options::skip_permission_denied;
  for (std::filesystem::recursive_directory_iterator entry(path, skip, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_regular_file(ignored)) continue;
    const auto size = entry->file_size(ignored);
    if (ignored) continue;
    ++content.files;
    content.bytes += static_cast<double>(size);
  }
  return content;
}

base::Result<ExitCode> show_path() {
  const base::CacheDirectory cache = base::resolve_cache_directory();
  if (cache.path.empty()) {
    return base::make_error(DEEPGEMM_ERROR_IO,
                            "there is no cache directory ({}); set DEEPGEMM_CACHE_DIR",
                            cache.reason);
  }
  print("{}\n", cache.path);
  return ExitCode::kOk;
}

base::Result<ExitCode> show_cache() {
  const base::CacheDirectory cache = base::resolve_cache_directory();
  print("directory  {}\n", cache.path.empty() ? "none: memory only" : cache.path);
  if (!cache.source.empty()) print("chosen by  {}\n", cache.source);
  print("state      {}\n", cache.usable ? "writable" : "not usable");
  if (!cache.reason.empty()) print("reason     {}\n", cache.reason);
  const Content content = cache.path.empty() ? Content{} : content_of(cache.path);
  print("entries    {} files, {}\n", content.files, bytes_text(content.bytes));
  print(
      "\nThis build compiles no kernels at run time yet, so it neither reads nor writes "
      "entries.\n");
  return ExitCode::kOk;
}

}  // namespace

Verb add_cache(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("cache", "Show the directory of compiled kernels and its state");
  const auto only_path = std::make_shared<bool>(false);
  command->add_subcommand("path", "Print the path of the directory alone")->callback([only_path] {
    *only_path = true;
  });
  return {command, [only_path] { return *only_path ? show_path() : show_cache(); }};
}

}  // namespace deepgemm::cli
