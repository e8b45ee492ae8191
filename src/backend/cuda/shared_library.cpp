#include "backend/cuda/shared_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <utility>

namespace deepgemm::cuda {

base::Result<SharedLibrary> SharedLibrary::open(std::span<const char* const> names) {
  std::string reasons;
  for (const char* name : names) {
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      link_map* map = nullptr;
      const bool known = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
      return SharedLibrary(handle, known && map->l_name[0] != '\0' ? map->l_name : name);
    }
    const char* why = ::dlerror();
    if (!reasons.empty()) reasons += "; ";
    reasons += why == nullptr ? name : why;
  }
  return base::Error{DEEPGEMM_ERROR_IO, std::move(reasons)};
}

void* SharedLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

}  // namespace deepgemm::cuda
