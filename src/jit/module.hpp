// A compiled kernel in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "jit/compiler.hpp"
#include "jit/descriptor.hpp"
#include "jit/source.hpp"

namespace deepgemm::jit {

// Immutable; any thread. A shared object is loaded, and unloaded with the module; whoever calls
// into it keeps the module. A cubin is only carried: the CUDA backend loads it for its device.
class Module {
 public:
  // Loads `kernel_path` when that is not empty, because debuggers and profilers can read a file;
  // where that cannot be executed or has gone, the bytes themselves, from anonymous memory or a
  // private temporary file. COMPILE_FAILED, naming what the loader said or the symbol that lacks.
  static base::Result<std::shared_ptr<const Module>> load(const Source& source, Binary binary,
                                                          const std::string& kernel_path);

  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module();

  // Address of a host function; null unless `name` is one of the source's symbols.
  void* symbol(const std::string& name) const;
  // Content of a cubin; empty for a shared object.
  const std::vector<uint8_t>& cubin() const { return binary_.bytes; }
  const std::string& log() const { return binary_.log; }

 private:
  Module() = default;
  std::string open(const Binary& binary, const std::string& kernel_path);
  std::string open_bytes(const std::vector<uint8_t>& bytes);
  std::string open_descriptor(Descriptor file);
  std::string open_temporary_file(const std::vector<uint8_t>& bytes);
  bool open_path(const std::string& path, std::string& reason);
  std::string resolve(const Source& source);

  Binary binary_;
  void* handle_ = nullptr;
  Descriptor file_;  // of anonymous memory: keeps its name from being used again
  std::vector<std::pair<std::string, void*>> symbols_;
};

}  // namespace deepgemm::jit
