// A GPU, a compiler for it, and memory on both sides, for tests that run kernels. Uses libcuda and
// NVRTC as the library does, by opening them; where one is missing a test is skipped and says so.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/launch_kernel.hpp"
#include "backend/cuda/memory.hpp"
#include "backend/cuda/stream.hpp"
#include "jit/compiler.hpp"
#include "kernel_cases.hpp"

namespace deepgemm::cuda {

class Gpu {
 public:
  // One for the process. Null: `why` has the reason.
  static Gpu* get(std::string& why);

  Device& device() { return *device_; }
  CuStream stream() { return stream_->get(); }
  std::string arch() const;
  // Compiled once for each source. Fails the test on errors.
  Kernel kernel(const KernelSpec& spec, int shared_bytes);
  // Loaded for the caller alone, in whose hand it is to keep the module.
  Kernel own_kernel(const KernelSpec& spec, int shared_bytes);
  // What the compiler makes of it; empty, and a failed test, on errors.
  std::vector<uint8_t> binary(const jit::Source& source);
  // Lives as long as the process.
  void* allocate(size_t bytes);
  void copy(void* to, const void* from, size_t bytes);
  // Waits; false, and a failed test, when work on the device failed.
  bool synchronize();
  bool launch(const Kernel& kernel, const LaunchShape& shape, int64_t blocks,
              kernel::GemmArguments arguments);
  // Of `launches` in a row, the median of some rounds.
  double median_ms(const Kernel& kernel, const LaunchShape& shape, int64_t blocks,
                   const kernel::GemmArguments& arguments);

 private:
  bool open(std::string& why);
  std::shared_ptr<const Module> load(const jit::Source& source);

  Device* device_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<MemoryPool> pool_;
  std::shared_ptr<const jit::Compiler> compiler_;
  std::map<std::string, std::shared_ptr<const Module>> modules_;  // by source text
};

// Host memory and device memory of the same size, with guard zones around the middle.
class MirroredBuffer {
 public:
  explicit MirroredBuffer(Gpu& gpu, size_t capacity);
  // Bytes 0xFF everywhere, which is NaN in every format of floating point.
  void reset(size_t bytes);
  uint8_t* host() { return host_.data() + kGuard; }
  void* device() { return static_cast<uint8_t*>(device_) + kGuard; }
  void upload();
  void download();
  // The bytes around the middle are as they were.
  bool guards_intact() const;

 private:
  static constexpr size_t kGuard = 1024;
  Gpu& gpu_;
  std::vector<uint8_t> host_;
  size_t capacity_;
  void* device_;
};

}  // namespace deepgemm::cuda
