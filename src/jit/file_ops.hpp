// The calls that the disk cache makes of a file system; tests put a faulty one in their place.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace deepgemm::jit {

struct FileInfo {
  enum class Kind { kFile, kDirectory, kOther };  // a symbolic link is kOther
  Kind kind = Kind::kOther;
  uid_t owner = 0;
  mode_t permissions = 0;
  int64_t bytes = 0;
  int64_t changed_ns = 0;  // content or last touch, since 1970
};

// Every function returns 0 or an errno value. Any thread.
class FileOps {
 public:
  virtual ~FileOps() = default;

  // Does not follow a symbolic link.
  virtual int inspect(const std::string& path, FileInfo& info);
  // A regular file of at most `max_bytes` (EFBIG), with facts about just the file that was read.
  virtual int read(const std::string& path, int64_t max_bytes, FileInfo& info,
                   std::vector<uint8_t>& bytes);
  // A file that must not exist yet, for its owner alone; with `flush` on the disk when this
  // returns.
  virtual int write_new(const std::string& path, std::span<const uint8_t> bytes, bool flush);
  virtual int make_directory(const std::string& path);  // mode 0700
  virtual int rename(const std::string& from, const std::string& to);
  virtual int remove(const std::string& path);  // a file or an empty directory
  virtual int touch(const std::string& path);   // sets changed_ns to now
  virtual int list(const std::string& path, std::vector<std::string>& names);
};

// The real one; lives as long as the program.
FileOps& system_files();

// Writes all of it to an open file.
int write_all(int file, std::span<const uint8_t> bytes);

// Removes a file or directory with all below it; goes on after errors. Returns the first.
int remove_tree(FileOps& files, const std::string& path);

// A name that no other process or thread uses: "<process>-<random>".
std::string unique_name();

}  // namespace deepgemm::jit
