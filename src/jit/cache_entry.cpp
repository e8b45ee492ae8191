#include "jit/cache_entry.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

namespace deepgemm::jit {
namespace {

using Json = nlohmann::json;
using State = EntryRead::State;

constexpr int kFormat = 1;
constexpr int64_t kLargestMeta = int64_t{1} << 20;
constexpr int64_t kLargestKernel = int64_t{256} << 20;
constexpr size_t kLogKept = 16384;

// Each text with its length, so that no two lists of texts give the same bytes.
class KeyText {
 public:
  void add(const std::string& text) {
    bytes_ += std::to_string(text.size());
    bytes_ += ':';
    bytes_ += text;
  }
  void add(const std::vector<std::string>& texts) {
    add(std::to_string(texts.size()));
    for (const std::string& text : texts) add(text);
  }
  base::Hash128 hash() const { return base::hash_bytes(bytes_); }

 private:
  std::string bytes_;
};

KeyText source_text(const Source& source, const std::string& library_version) {
  KeyText key;
  key.add(std::to_string(kFormat));
  key.add(library_version);
  key.add(language_name(source.language));
  key.add(source.arch);
  key.add(source.options);
  key.add(source.symbols);
  key.add(source.text);
  for (const Header& header : source.headers) {
    key.add(header.name);
    key.add(header.text);
  }
  return key;
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

EntryRead fail(State state, std::string reason) { return {state, std::move(reason), {}}; }

EntryRead fail_read(const std::string& file, int error) {
  const std::string reason = file + ": " + std::generic_category().message(error);
  // A directory, a link or a huge file is no error of the file system but a wrong entry; so is an
  // entry that lacks a file, because entries are published whole.
  const bool bad =
      error == ENOENT || error == EISDIR || error == EINVAL || error == ELOOP || error == EFBIG;
  return fail(bad ? State::kBad : State::kUnreadable, reason);
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

EntryRead read_whole(FileOps& files, const std::string& path, Trust trust) {
  FileInfo info;
  if (const int error = files.inspect(path, info)) {
    const bool absent = error == ENOENT || error == ENOTDIR;
    return absent ? fail(State::kAbsent, {})
                  : fail(State::kUnreadable, std::generic_category().message(error));
  }
  if (info.kind != FileInfo::Kind::kDirectory) return fail(State::kBad, "is no directory");
  if (const std::string why = distrust(info, trust); !why.empty()) {
    return fail(State::kUntrusted, why);
  }

  std::vector<uint8_t> bytes;
  if (const int error = files.read(path + "/" + kMetaFile, kLargestMeta, info, bytes)) {
    return fail_read(kMetaFile, error);
  }
  if (const std::string why = distrust(info, trust); !why.empty()) {
    return fail(State::kUntrusted, fmt::format("{} {}", kMetaFile, why));
  }
  base::Result<EntryMeta> meta = read_meta(text_of(bytes));
  if (!meta.ok()) return fail(State::kBad, fmt::format("{} {}", kMetaFile, meta.error().message));
  if (meta->key != last_part(path)) {
    return fail(State::kBad, fmt::format("is the entry of key {}", meta->key));
  }

  EntryRead result{State::kGood, {}, {std::move(*meta), {}}};
  Binary& binary = result.entry.binary;
  if (const int error = files.read(path + "/" + kKernelFile, kLargestKernel, info, binary.bytes)) {
    return fail_read(kKernelFile, error);
  }
  if (const std::string why = distrust(info, trust); !why.empty()) {
    return fail(State::kUntrusted, fmt::format("{} {}", kKernelFile, why));
  }
  const int64_t size = static_cast<int64_t>(binary.bytes.size());
  if (size != result.entry.meta.kernel_bytes) {
    return fail(State::kBad, fmt::format("{} has {} bytes instead of {}", kKernelFile, size,
                                         result.entry.meta.kernel_bytes));
  }
  if (base::hash_bytes(binary.bytes.data(), binary.bytes.size()).hex() !=
      result.entry.meta.kernel_hash) {
    return fail(State::kBad, fmt::format("{} does not have its checksum", kKernelFile));
  }
  binary.log = result.entry.meta.log;
  return result;
}

}  // namespace

base::Hash128 cache_key(const Source& source, const CompilerIdentity& identity,
                        const std::string& library_version) {
  KeyText key = source_text(source, library_version);
  const uint64_t high = key.hash().high;
  key.add(identity.kind);
  key.add(identity.version);
  key.add(identity.options);
  return {high, key.hash().low};
}

std::string source_key(const Source& source, const std::string& library_version) {
  const base::Hash128 key{source_text(source, library_version).hash().high, 0};
  return key.hex().substr(0, 16);
}

std::string write_meta(const EntryMeta& meta) {
  const Json json = {
      {"format", kFormat},
      {"key", meta.key},
      {"library_version", meta.library_version},
      {"arch", meta.arch},
      {"language", meta.language},
      {"name", meta.name},
      {"symbols", meta.symbols},
      {"compiler",
       {{"kind", meta.compiler.kind},
        {"version", meta.compiler.version},
        {"options", meta.compiler.options}}},
      {"kernel", {{"bytes", meta.kernel_bytes}, {"xxh3_128", meta.kernel_hash}}},
      {"source", {{"bytes", meta.source_bytes}, {"xxh3_128", meta.source_hash}}},
      {"log", meta.log.substr(0, kLogKept)},
  };
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

base::Result<EntryMeta> read_meta(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return base::make_error(DEEPGEMM_ERROR_FORMAT, "is not JSON");
  try {
    if (json.at("format") != kFormat) {
      return base::make_error(DEEPGEMM_ERROR_FORMAT, "has another format");
    }
    EntryMeta meta;
    json.at("key").get_to(meta.key);
    json.at("library_version").get_to(meta.library_version);
    json.at("arch").get_to(meta.arch);
    json.at("language").get_to(meta.language);
    json.at("name").get_to(meta.name);
    json.at("symbols").get_to(meta.symbols);
    json.at("compiler").at("kind").get_to(meta.compiler.kind);
    json.at("compiler").at("version").get_to(meta.compiler.version);
    json.at("compiler").at("options").get_to(meta.compiler.options);
    json.at("kernel").at("bytes").get_to(meta.kernel_bytes);
    json.at("kernel").at("xxh3_128").get_to(meta.kernel_hash);
    json.at("source").at("bytes").get_to(meta.source_bytes);
    json.at("source").at("xxh3_128").get_to(meta.source_hash);
    json.at("log").get_to(meta.log);
    return meta;
  } catch (const Json::exception&) {
    return base::make_error(DEEPGEMM_ERROR_FORMAT, "lacks a field");
  }
}

std::string source_listing(const Source& source) {
  std::string text =
      fmt::format("// kernel: {}\n// arch: {}\n// options: {}\n// symbols: {}\n", source.name,
                  source.arch, fmt::join(source.options, " "), fmt::join(source.symbols, " "));
  text += source.text;
  for (const Header& header : source.headers) {
    text += fmt::format("\n// ---- header \"{}\"\n{}", header.name, header.text);
  }
  return text;
}

std::string distrust(const FileInfo& info, Trust trust) {
  const uid_t user = ::geteuid();
  if (info.owner != user && !(trust == Trust::kShared && info.owner == 0)) {
    return fmt::format("belongs to user {}, this process runs as {}", info.owner, user);
  }
  if ((info.permissions & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format("can be written by others (mode {:04o})", info.permissions);
  }
  return {};
}

EntryRead read_entry(FileOps& files, const std::string& path, Trust trust) {
  EntryRead result = read_whole(files, path, trust);
  FileInfo info;
  // Another process may remove an entry, as a whole, between two files of it.
  if (result.state == State::kBad && files.inspect(path, info) == ENOENT) {
    return fail(State::kAbsent, {});
  }
  return result;
}

}  // namespace deepgemm::jit
