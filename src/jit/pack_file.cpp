#include "jit/pack_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "deepgemm/version.h"

namespace deepgemm::jit {
namespace {

static_assert(std::endian::native == std::endian::little, "packs are written as memory is");

using Json = nlohmann::json;

constexpr std::string_view kMagic = "DGPACK01";
constexpr int64_t kHeadBytes = 8 + 8 + 16;
constexpr int64_t kLargestIndex = int64_t{64} << 20;
constexpr int64_t kLargestKernel = int64_t{256} << 20;
constexpr const char* kExtension = ".dgpack";

template <class... Args>
base::Error wrong(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  return base::make_error(DEEPGEMM_ERROR_FORMAT, "Pack '{}' {}. Make it anew: deepgemm pack.", path,
                          fmt::format(format, std::forward<Args>(args)...));
}

void append(std::string& to, const void* data, size_t bytes) {
  to.append(static_cast<const char*>(data), bytes);
}

EntryMeta meta_of(const PackedKernel& kernel) {
  EntryMeta meta;
  meta.library_version = DEEPGEMM_VERSION_STRING;
  meta.key = source_key(kernel.source, meta.library_version);
  meta.arch = kernel.source.arch;
  meta.language = language_name(kernel.source.language);
  meta.name = kernel.source.name;
  meta.symbols = kernel.source.symbols;
  meta.compiler = kernel.compiler;
  meta.kernel_bytes = static_cast<int64_t>(kernel.binary.bytes.size());
  meta.kernel_hash = base::hash_bytes(kernel.binary.bytes.data(), kernel.binary.bytes.size()).hex();
  return meta;
}

std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace

base::Result<void> write_pack(const std::string& path, const std::vector<PackedKernel>& kernels) {
  std::map<std::string, std::pair<EntryMeta, const PackedKernel*>> sorted;  // by key
  for (const PackedKernel& kernel : kernels) {
    EntryMeta meta = meta_of(kernel);
    std::string key = meta.key;
    sorted.try_emplace(std::move(key), std::move(meta), &kernel);
  }
  Json index = Json::array();
  std::string content;
  for (const auto& [key, entry] : sorted) {
    const auto& [meta, kernel] = entry;
    index.push_back({{"offset", content.size()}, {"meta", Json::parse(write_meta(meta))}});
    append(content, kernel->binary.bytes.data(), kernel->binary.bytes.size());
  }
  const std::string text = index.dump();
  const uint64_t size = text.size();
  const base::Hash128 hash = base::hash_bytes(text);
  std::string file(kMagic);
  append(file, &size, sizeof size);
  append(file, &hash.high, sizeof hash.high);
  append(file, &hash.low, sizeof hash.low);
  return base::write_file_atomic(path, file + text + content);
}

base::Result<std::shared_ptr<const PackFile>> PackFile::open(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) {
    return base::make_error(DEEPGEMM_ERROR_IO, "Pack '{}' cannot be opened: {}.", path,
                            error_text(errno));
  }
  if (!S_ISREG(info.st_mode)) return wrong(path, "is no regular file");
  FileInfo facts;
  facts.owner = info.st_uid;
  facts.permissions = info.st_mode & 07777U;
  if (const std::string why = distrust(facts, Trust::kShared); !why.empty()) {
    return base::make_error(DEEPGEMM_ERROR_FORMAT, "Pack '{}' is not used: it {}.", path, why);
  }
  std::shared_ptr<PackFile> pack(new PackFile(path, std::move(file), info.st_size));
  DEEPGEMM_TRY(pack->read_index());
  return std::shared_ptr<const PackFile>(std::move(pack));
}

base::Result<std::string> PackFile::read_bytes(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > bytes_ || bytes > bytes_ - offset) {
    return wrong(path_, "ends at byte {}, before {} + {}", bytes_, offset, bytes);
  }
  std::string content(static_cast<size_t>(bytes), '\0');
  for (size_t done = 0; done < content.size();) {
    const ssize_t got = ::pread(file_.get(), content.data() + done, content.size() - done,
                                offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return base::make_error(DEEPGEMM_ERROR_IO, "Pack '{}' cannot be read: {}.", path_,
                              error_text(errno));
    }
    if (got == 0) return wrong(path_, "became shorter while it was in use");
    done += static_cast<size_t>(got);
  }
  return content;
}

base::Result<void> PackFile::read_index() {
  DEEPGEMM_TRY_ASSIGN(head, read_bytes(0, kHeadBytes));
  if (!head.starts_with(kMagic)) return wrong(path_, "does not begin with {}", kMagic);
  uint64_t size = 0;
  base::Hash128 hash;
  std::memcpy(&size, head.data() + 8, sizeof size);
  std::memcpy(&hash.high, head.data() + 16, sizeof hash.high);
  std::memcpy(&hash.low, head.data() + 24, sizeof hash.low);
  if (size > static_cast<uint64_t>(kLargestIndex)) {
    return wrong(path_, "has an index of {} bytes; at most {}", size, kLargestIndex);
  }
  DEEPGEMM_TRY_ASSIGN(text, read_bytes(kHeadBytes, static_cast<int64_t>(size)));
  if (base::hash_bytes(text) != hash) return wrong(path_, "has a damaged index");
  const Json index = Json::parse(text, nullptr, false);
  if (!index.is_array()) return wrong(path_, "has an index that is no list");
  const int64_t first = kHeadBytes + static_cast<int64_t>(size);
  for (const Json& each : index) {
    if (!each.is_object() || !each.contains("offset") || !each["offset"].is_number_integer() ||
        !each.contains("meta")) {
      return wrong(path_, "has an entry without offset or description");
    }
    auto meta = read_meta(each["meta"].dump());
    if (!meta.ok()) return wrong(path_, "has an entry that {}", meta.error().message);
    const auto offset = each["offset"].get<int64_t>();
    if (offset < 0 || offset > bytes_) return wrong(path_, "has an entry at {}", offset);
    DEEPGEMM_TRY(add_entry(std::move(*meta), first + offset));
  }
  return {};
}

base::Result<void> PackFile::add_entry(EntryMeta meta, int64_t offset) {
  if (meta.kernel_bytes < 0 || meta.kernel_bytes > kLargestKernel || offset > bytes_ ||
      meta.kernel_bytes > bytes_ - offset) {
    return wrong(path_, "is {} bytes long; kernel '{}' has {} from {} on", bytes_, meta.name,
                 meta.kernel_bytes, offset);
  }
  if (!by_key_.try_emplace(meta.key, entries_.size()).second) {
    return wrong(path_, "has two kernels of one source ('{}')", meta.name);
  }
  entries_.push_back({std::move(meta), offset});
  return {};
}

base::Result<Binary> PackFile::read(const Entry& entry) const {
  DEEPGEMM_TRY_ASSIGN(content, read_bytes(entry.offset, entry.meta.kernel_bytes));
  if (base::hash_bytes(content).hex() != entry.meta.kernel_hash) {
    return wrong(path_, "has a damaged kernel ('{}')", entry.meta.name);
  }
  Binary binary;
  binary.bytes.assign(content.begin(), content.end());
  return binary;
}

const PackFile::Entry* PackFile::find(const Source& source) const {
  const auto found = by_key_.find(source_key(source, DEEPGEMM_VERSION_STRING));
  if (found == by_key_.end()) return nullptr;
  const Entry& entry = entries_[found->second];
  // Half of a hash names it: what the name stands for must agree too.
  const bool same = entry.meta.library_version == DEEPGEMM_VERSION_STRING &&
                    entry.meta.arch == source.arch && entry.meta.symbols == source.symbols &&
                    entry.meta.language == language_name(source.language);
  return same ? &entry : nullptr;
}

std::optional<PackSet::Hit> PackSet::find(const Source& source) const {
  for (const auto& pack : packs) {
    if (const PackFile::Entry* entry = pack->find(source)) return Hit{pack, entry};
  }
  return std::nullopt;
}

namespace {

// The packs of a folder in the order of their names; a file is itself.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& each : std::filesystem::directory_iterator(path, error)) {
    if (each.path().extension() == kExtension) files.push_back(each.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::shared_ptr<const PackSet> open_packs(const std::string& list) {
  auto set = std::make_shared<PackSet>();
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    const std::string path = list.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    for (const std::string& file : files_of(path)) {
      auto pack = PackFile::open(file);
      if (pack.ok()) {
        set->packs.push_back(std::move(*pack));
        continue;
      }
      base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kJit, "{}", pack.error().message);
      set->notes.push_back(pack.error().message);
    }
  }
  return set;
}

}  // namespace deepgemm::jit
