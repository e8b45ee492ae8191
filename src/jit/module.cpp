#include "jit/module.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/env.hpp"
#include "jit/file_ops.hpp"
#include "jit/work_directory.hpp"

namespace deepgemm::jit {
namespace {

// Newer kernels want to be told that the file will be executed; older ones do not know the flag.
Descriptor anonymous_file() {
#ifdef MFD_EXEC
  Descriptor file(::memfd_create("deepgemm_kernel", MFD_CLOEXEC | MFD_EXEC));
  if (file.valid()) return file;
#endif
  return Descriptor(::memfd_create("deepgemm_kernel", MFD_CLOEXEC));
}

// Asked first, because the loader of glibc leaves a mapping behind when it fails for this reason.
bool lies_where_files_execute(const std::string& path) {
  struct statvfs system = {};
  return !path.empty() && ::statvfs(path.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) == 0;
}

std::string descriptor_path(const Descriptor& file) {
  return fmt::format("/proc/self/fd/{}", file.get());
}

// The loader takes a file whose name it has loaded before for the same file, although a number can
// stand for another one meanwhile.
bool name_is_taken(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  ::dlclose(handle);
  return true;
}

}  // namespace

base::Result<std::shared_ptr<const Module>> Module::load(const Source& source, Binary binary,
                                                         const std::string& kernel_path) {
  std::shared_ptr<Module> module(new Module);
  if (source.language == Language::kCuda) {
    module->binary_ = std::move(binary);
    return std::shared_ptr<const Module>(std::move(module));
  }
  std::string failure = module->open(binary, kernel_path);
  if (failure.empty()) failure = module->resolve(source);
  if (!failure.empty()) {
    return base::make_error(DEEPGEMM_ERROR_COMPILE_FAILED,
                            "Kernel '{}' was compiled but cannot be loaded: {}.", source.name,
                            failure);
  }
  module->binary_.log = std::move(binary.log);
  return std::shared_ptr<const Module>(std::move(module));
}

Module::~Module() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

void* Module::symbol(const std::string& name) const {
  for (const auto& [known, address] : symbols_) {
    if (known == name) return address;
  }
  return nullptr;
}

// The functions below return what went wrong, or nothing.

std::string Module::open(const Binary& binary, const std::string& kernel_path) {
  std::string reason;
  if (lies_where_files_execute(kernel_path) && open_path(kernel_path, reason)) return {};
  std::string other = open_bytes(binary.bytes);
  if (other.empty()) return {};
  return reason.empty() ? other : reason;
}

std::string Module::open_bytes(const std::vector<uint8_t>& bytes) {
  Descriptor file = anonymous_file();
  std::string reason = std::generic_category().message(errno);
  if (file.valid()) {
    const int error = write_all(file.get(), bytes);
    reason = error == 0 ? open_descriptor(std::move(file)) : std::generic_category().message(error);
    if (reason.empty()) return {};
  }
  const std::string other = open_temporary_file(bytes);
  return other.empty() ? other : reason;
}

std::string Module::open_descriptor(Descriptor file) {
  constexpr int kAttempts = 64;
  for (int i = 0; i < kAttempts && name_is_taken(descriptor_path(file)); ++i) {
    Descriptor next(::fcntl(file.get(), F_DUPFD_CLOEXEC, file.get() + 1));
    if (!next.valid()) return "too many open files";
    file = std::move(next);
  }
  std::string reason;
  if (!open_path(descriptor_path(file), reason)) return reason;
  file_ = std::move(file);
  return {};
}

// For systems that execute no anonymous memory.
std::string Module::open_temporary_file(const std::vector<uint8_t>& bytes) {
  const auto directory = WorkDirectory::create(base::env("TMPDIR").value_or(""));
  if (!directory.ok()) return directory.error().message;
  const std::string path = directory->path() + "/kernel.so";
  if (const int error = system_files().write_new(path, bytes, false)) {
    return path + ": " + std::generic_category().message(error);
  }
  std::string reason;
  return open_path(path, reason) ? std::string() : reason;
}

bool Module::open_path(const std::string& path, std::string& reason) {
  handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return true;
  const char* text = ::dlerror();
  reason = text == nullptr ? path + " cannot be loaded" : text;
  return false;
}

std::string Module::resolve(const Source& source) {
  for (const std::string& name : source.symbols) {
    void* address = ::dlsym(handle_, name.c_str());
    if (address == nullptr) return fmt::format("it has no function '{}'", name);
    symbols_.emplace_back(name, address);
  }
  return {};
}

}  // namespace deepgemm::jit
