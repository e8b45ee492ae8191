// One entry of the disk cache: its key, its description, and what makes it trustworthy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "jit/compiler.hpp"
#include "jit/file_ops.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

// Content key: source, headers, options, arch, symbols and library version in the first half; these
// and the compiler's identity in the second. No paths, no times, not the name. Entries of one
// source therefore share the first 16 of 32 digits.
base::Hash128 cache_key(const Source& source, const CompilerIdentity& identity,
                        const std::string& library_version);

// The first half of the key in hex, which needs no compiler.
std::string source_key(const Source& source, const std::string& library_version);

// Files of an entry's directory.
inline constexpr const char* kKernelFile = "kernel.bin";
inline constexpr const char* kSourceFile = "source";
inline constexpr const char* kMetaFile = "meta.json";

struct EntryMeta {
  std::string key;
  std::string library_version;
  std::string arch;
  std::string language;
  std::string name;
  std::vector<std::string> symbols;
  CompilerIdentity compiler;
  int64_t kernel_bytes = 0;
  std::string kernel_hash;
  int64_t source_bytes = 0;
  std::string source_hash;
  std::string log;
};

std::string write_meta(const EntryMeta& meta);
// FORMAT when the text is not what write_meta wrote.
base::Result<EntryMeta> read_meta(const std::string& text);

// The source with its headers and options as one text for people.
std::string source_listing(const Source& source);

// Whose files are believed. An entry of the first level must belong to this user; one of the shared
// level to this user or root. Neither may be writable for others.
enum class Trust { kOwn, kShared };
// Empty, or what is wrong: "belongs to user 0, this process runs as 1000".
std::string distrust(const FileInfo& info, Trust trust);

struct LoadedEntry {
  EntryMeta meta;
  Binary binary;
};

// How reading an entry ended.
struct EntryRead {
  enum class State {
    kGood,
    kAbsent,
    kUnreadable,  // an error of the file system, which may pass
    kUntrusted,   // not ours
    kBad          // its content is wrong
  };
  State state = State::kAbsent;
  std::string reason;  // of the last three
  LoadedEntry entry;
};

// Reads and checks the entry at `path`, whose directory name must be its key: owners, sizes,
// checksums.
EntryRead read_entry(FileOps& files, const std::string& path, Trust trust);

}  // namespace deepgemm::jit
