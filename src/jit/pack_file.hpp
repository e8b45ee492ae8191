// Ahead-of-time packs: one file with the kernels of many sources, for machines without a compiler.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "jit/cache_entry.hpp"
#include "jit/compiler.hpp"
#include "jit/descriptor.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

// A kernel on its way into a pack.
struct PackedKernel {
  Source source;
  CompilerIdentity compiler;
  Binary binary;
};

// Replaces `path` as a whole. The same kernels give the same bytes, in whatever order they come; of
// two kernels of one source the first stays. IO names the path.
base::Result<void> write_pack(const std::string& path, const std::vector<PackedKernel>& kernels);

// A pack that is open: its index in memory, its kernels on disk. Immutable; any thread. The file
// may be replaced meanwhile (write_pack does so), but not written into.
//
// The file: 8 bytes "DGPACK01", the size of the index (64 bits, little endian), its 128-bit
// checksum, the index (JSON, see docs/packs.md), the kernels.
class PackFile {
 public:
  // What an entry is about: `key` is the source's (source_key), `kernel_bytes` and `kernel_hash`
  // the kernel's.
  struct Entry {
    EntryMeta meta;
    int64_t offset = 0;  // in the file
  };

  // IO when it cannot be read; FORMAT, naming the rule, for a file that is no pack or is damaged,
  // and for one that others can write or own (as for the disk cache).
  static base::Result<std::shared_ptr<const PackFile>> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<Entry>& entries() const { return entries_; }
  // The kernel of an entry. FORMAT when it does not have its checksum, IO.
  base::Result<Binary> read(const Entry& entry) const;
  // Null: the pack has no kernel of this source, made for this version of the library.
  const Entry* find(const Source& source) const;

 private:
  PackFile(std::string path, Descriptor file, int64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}
  base::Result<void> read_index();
  base::Result<void> add_entry(EntryMeta meta, int64_t offset);
  base::Result<std::string> read_bytes(int64_t offset, int64_t bytes) const;

  const std::string path_;
  const Descriptor file_;
  const int64_t bytes_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_key_;
};

// The packs of a process, in the order in which they are asked.
struct PackSet {
  std::vector<std::shared_ptr<const PackFile>> packs;
  std::vector<std::string> notes;  // why others were passed over

  struct Hit {
    std::shared_ptr<const PackFile> pack;
    const PackFile::Entry* entry = nullptr;
  };
  std::optional<Hit> find(const Source& source) const;
};

// `list`: files, and folders whose *.dgpack count in the order of their names, separated by colons.
// What cannot be opened is a note and one warning in the log.
std::shared_ptr<const PackSet> open_packs(const std::string& list);

}  // namespace deepgemm::jit
