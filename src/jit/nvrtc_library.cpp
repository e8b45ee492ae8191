#include "jit/nvrtc_library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "jit/file_ops.hpp"

namespace deepgemm::jit {
namespace {

constexpr int kMajors[] = {13, 12};
constexpr int64_t kLargestLibrary = int64_t{4} << 30;

template <class Function>
bool resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

// Name of the first call that is missing; null when all are there.
const char* resolve_all(void* handle, NvrtcCalls& calls) {
#define DEEPGEMM_RESOLVE(member, name) \
  if (!resolve(handle, name, calls.member)) return name
  DEEPGEMM_RESOLVE(version, "nvrtcVersion");
  DEEPGEMM_RESOLVE(error_text, "nvrtcGetErrorString");
  DEEPGEMM_RESOLVE(arch_count, "nvrtcGetNumSupportedArchs");
  DEEPGEMM_RESOLVE(archs, "nvrtcGetSupportedArchs");
  DEEPGEMM_RESOLVE(create, "nvrtcCreateProgram");
  DEEPGEMM_RESOLVE(destroy, "nvrtcDestroyProgram");
  DEEPGEMM_RESOLVE(compile, "nvrtcCompileProgram");
  DEEPGEMM_RESOLVE(log_size, "nvrtcGetProgramLogSize");
  DEEPGEMM_RESOLVE(log, "nvrtcGetProgramLog");
  DEEPGEMM_RESOLVE(cubin_size, "nvrtcGetCUBINSize");
  DEEPGEMM_RESOLVE(cubin, "nvrtcGetCUBIN");
#undef DEEPGEMM_RESOLVE
  return nullptr;
}

struct BuildId {
  uintptr_t address;  // in the library that is asked for
  std::string hex;
};

void read_notes(const char* at, size_t size, BuildId& id) {
  const char* end = at + size;
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
    const char* name = at + sizeof(*note);
    const char* content = name + ((note->n_namesz + 3) & ~3U);
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !std::memcmp(name, "GNU", 4)) {
      for (size_t i = 0; i < note->n_descsz; ++i) {
        id.hex += fmt::format("{:02x}", static_cast<uint8_t>(content[i]));
      }
      return;
    }
    at = content + ((note->n_descsz + 3) & ~3U);
  }
}

int visit_library(dl_phdr_info* info, size_t, void* data) {
  BuildId& id = *static_cast<BuildId*>(data);
  bool contains = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && id.address >= begin && id.address < begin + part.p_memsz) {
      contains = true;
    }
  }
  if (!contains) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_NOTE && id.hex.empty()) {
      read_notes(reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr), part.p_memsz, id);
    }
  }
  return 1;
}

// The linker's build id, which costs nothing; for a library without one the hash of the file.
std::string build_of(const NvrtcLibrary& library) {
  BuildId id{reinterpret_cast<uintptr_t>(library.calls.version), {}};
  ::dl_iterate_phdr(visit_library, &id);
  if (!id.hex.empty()) return "build " + id.hex;
  base::Result<base::MappedFile> file = base::MappedFile::open(library.path, kLargestLibrary);
  if (!file.ok()) return "build unknown";
  const auto bytes = file->bytes();
  return fmt::format("{} bytes {}", bytes.size(),
                     base::hash_bytes(bytes.data(), bytes.size()).hex());
}

base::Error unusable(const std::string& name, const std::string& why) {
  return base::make_error(DEEPGEMM_ERROR_COMPILER_MISSING, "{}: {}", name, why);
}

// NVRTC opens its second library by name alone, which fails for some packages unless it is already
// there. Where it is not beside the first, NVRTC says so itself.
void open_builtins(const NvrtcLibrary& library) {
  const auto folder = std::filesystem::path(library.path).parent_path();
  const auto path =
      folder / fmt::format("libnvrtc-builtins.so.{}.{}", library.major, library.minor);
  ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// `name` is a path, or a name for the loader.
base::Result<std::shared_ptr<const NvrtcLibrary>> open_library(const std::string& name, int flags) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return unusable(name, why == nullptr ? "not loaded" : why);
  }
  auto library = std::make_shared<NvrtcLibrary>();
  if (const char* missing = resolve_all(handle, library->calls)) {
    ::dlclose(handle);
    return unusable(name, fmt::format("has no {}; NVRTC 12 or 13 is needed", missing));
  }
  const NvrtcCalls& calls = library->calls;
  int count = 0;
  if (calls.version(&library->major, &library->minor) != 0 || calls.arch_count(&count) != 0 ||
      count <= 0) {
    return unusable(name, "does not tell its version and architectures");
  }
  library->archs.resize(static_cast<size_t>(count));
  calls.archs(library->archs.data());
  Dl_info info = {};
  const bool known = ::dladdr(reinterpret_cast<void*>(calls.version), &info) != 0;
  library->path = known && info.dli_fname != nullptr ? info.dli_fname : name;
  open_builtins(*library);
  library->build = build_of(*library);
  return std::shared_ptr<const NvrtcLibrary>(std::move(library));
}

void add_python_packages(const std::string& prefix, std::vector<std::string>& directories) {
  std::vector<std::string> versions;
  system_files().list(prefix + "/lib", versions);
  for (const std::string& version : versions) {
    if (!version.starts_with("python3")) continue;
    for (const char* packages : {"/site-packages", "/dist-packages"}) {
      const std::string site = prefix + "/lib/" + version + packages;
      directories.push_back(site + "/nvidia/cu13/lib");
      directories.push_back(site + "/nvidia/cuda_nvrtc/lib");
    }
  }
}

void add_toolkit(const std::string& root, std::vector<std::string>& directories) {
  for (const char* below :
       {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"}) {
    directories.push_back(root + below);
  }
}

// Where libraries lie that the loader does not find by itself, best first.
std::vector<std::string> usual_directories(const CompilerSettings& settings) {
  std::vector<std::string> directories;
  if (!settings.virtual_env.empty()) add_python_packages(settings.virtual_env, directories);
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) add_python_packages(program.parent_path().parent_path(), directories);
  if (!settings.user_home.empty()) {
    add_python_packages(settings.user_home + "/.local", directories);
  }
  add_python_packages("/usr/local", directories);
  add_python_packages("/usr", directories);
  if (!settings.cuda_home.empty()) add_toolkit(settings.cuda_home, directories);
  add_toolkit("/usr/local/cuda", directories);
  std::vector<std::string> names;
  system_files().list("/usr/local", names);
  for (const std::string& name : names) {
    if (name.starts_with("cuda-")) add_toolkit("/usr/local/" + name, directories);
  }
  return directories;
}

std::string library_name(int major) { return fmt::format("libnvrtc.so.{}", major); }

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

NvrtcSearch open_explicit(const std::string& path) {
  std::vector<std::string> files;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    for (const int major : kMajors) {
      if (is_there(path + "/" + library_name(major))) {
        files.push_back(path + "/" + library_name(major));
      }
    }
  } else if (is_there(path)) {
    files.push_back(path);
  }
  NvrtcSearch search;
  for (const std::string& file : files) {
    auto opened = open_library(std::filesystem::absolute(file, ignored).string(), 0);
    if (opened.ok()) {
      search.libraries.push_back(*opened);
    } else {
      search.notes.push_back("DEEPGEMM_NVRTC_PATH: " + opened.error().message);
    }
  }
  if (files.empty()) {
    search.notes.push_back(fmt::format(
        "DEEPGEMM_NVRTC_PATH is '{}': no libnvrtc.so.13 or libnvrtc.so.12 there", path));
  }
  return search;
}

// The library of one major version, or null with a note for each one that did not work.
std::shared_ptr<const NvrtcLibrary> open_usual(int major, const std::vector<std::string>& places,
                                               std::vector<std::string>& notes) {
  const std::string name = library_name(major);
  if (auto loaded = open_library(name, RTLD_NOLOAD); loaded.ok()) return *loaded;
  std::string note = name + ": not found";
  for (const std::string& place : places) {
    const std::string path = place + "/" + name;
    if (!is_there(path)) continue;
    auto opened = open_library(path, 0);
    if (opened.ok()) return *opened;
    note = opened.error().message;
  }
  if (auto opened = open_library(name, 0); opened.ok()) return *opened;
  notes.push_back(std::move(note));
  return nullptr;
}

}  // namespace

NvrtcSearch find_nvrtc_libraries(const CompilerSettings& settings) {
  if (!settings.nvrtc_path.empty()) return open_explicit(settings.nvrtc_path);
  NvrtcSearch search;
  const std::vector<std::string> places = usual_directories(settings);
  for (const int major : kMajors) {
    if (auto library = open_usual(major, places, search.notes)) {
      search.libraries.push_back(std::move(library));
    }
  }
  return search;
}

}  // namespace deepgemm::jit
