// A private directory for one compile.
#pragma once

#include <string>
#include <utility>

#include "base/result.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

// Removed with its content at the end of its life.
class WorkDirectory {
 public:
  // Below `parent`, else below /tmp, /var/tmp or /dev/shm; mode 0700. IO when none of them takes a
  // directory. Now and then removes what killed processes of this user left there.
  static base::Result<WorkDirectory> create(const std::string& parent);

  WorkDirectory(WorkDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkDirectory& operator=(WorkDirectory&&) = delete;
  ~WorkDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit WorkDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Writes the text as `main_file` and the headers under their names into a directory. INTERNAL for a
// header name that leads out of it.
base::Result<void> write_source(const Source& source, const std::string& directory,
                                const std::string& main_file);

}  // namespace deepgemm::jit
