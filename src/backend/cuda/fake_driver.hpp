// A driver without a GPU, for tests: it records every call, keeps "device" memory in host memory,
// refuses what a driver would refuse, and fails where it is told to. Kernels do not run; a hook may
// stand for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/driver.hpp"

namespace deepgemm::cuda {

// A call, with those of its arguments that are numbers or addresses.
struct FakeCall {
  std::string name;  // cuStreamCreate
  std::vector<uint64_t> arguments;
};

// What a launch asked for.
struct FakeLaunch {
  std::string kernel;
  CuLaunchConfig config;
  std::vector<CuLaunchAttribute> attributes;
  bool captured = false;
  // Null when there is no such attribute.
  const CuLaunchAttribute* attribute(int id) const;
};

// A GPU of the driver; set before Platform::create reads it.
struct FakeDevice {
  std::string title = "Fake H200";
  size_t memory_bytes = size_t{1} << 30;
  std::map<int, int> attributes;  // by kDevice...; starts as those of an H200
  // State.
  int retained = 0;
  uint64_t context = 0;  // id of the live one; 0: none. Its handle stays the same
  CuResult fault = CuResult::kSuccess;
  size_t persisting_l2 = 0;
  size_t used_bytes = 0;
};

struct FakeAllocation {
  size_t bytes = 0;
  int ordinal = 0;
  unsigned type = 0;  // kMemoryTypeDevice, kMemoryTypeHost
  bool managed = false;
  CuMemoryPool pool = nullptr;
  bool owned = false;  // memory of the fake
};

struct FakeStream {
  int ordinal = 0;
  int capture = 0;  // kCapture...
  CuGraph graph = nullptr;
};

struct FakePool {
  int ordinal = 0;
  uint64_t release_threshold = 0;
  uint64_t reserved = 0;
  uint64_t used = 0;
};

struct FakeModule {
  uint64_t context = 0;
  std::vector<std::string> kernels;  // empty: has every name
};

struct FakeFunction {
  CuModule module = nullptr;
  std::string name;
  std::map<int, int> attributes;  // by kFunction...
};

struct FakeUserObject {
  void* data = nullptr;
  void (*destroy)(void* data) = nullptr;
  unsigned references = 0;
};

// Success if `fine`.
inline CuResult fake_answer(bool fine, CuResult otherwise = CuResult::kInvalidHandle) {
  return fine ? CuResult::kSuccess : otherwise;
}

// Its calls find the living instance, of which there may be one at a time. Any thread.
class FakeDriver {
 public:
  explicit FakeDriver(int devices = 1);
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // Loaded and initialised; fails the test's program when load_driver does.
  const Driver& driver();
  // For load_driver.
  void* symbol(const std::string& name) const;

  // Lets calls of this name answer `result`: after `skip` calls that work, `times` times (-1: for
  // good).
  void fail(const std::string& name, CuResult result, int skip = 0, int times = 1);
  // Every later call on the device answers `result`, as after a fault in a kernel.
  void fault(int ordinal, CuResult result);
  // What cuDevicePrimaryCtxReset does: everything of the device is gone.
  void reset_device(int ordinal);
  // A stream of somebody else, on a device; in capture when told.
  CuStream make_stream(int ordinal, int capture = kCaptureNone);
  // Marks a range as allocated by somebody else; type and device as told.
  void add_allocation(const void* pointer, const FakeAllocation& allocation);

  std::vector<FakeCall> calls() const;
  int count(const std::string& name) const;
  void forget_calls();

  std::vector<FakeDevice> devices;
  std::map<CuPointer, FakeAllocation> allocations;
  std::map<CuStream, FakeStream> streams;
  std::map<CuModule, FakeModule> modules;
  std::map<CuFunction, FakeFunction> functions;
  std::map<CuMemoryPool, FakePool> pools;
  std::map<CuEvent, double> events;  // when recorded, in milliseconds; negative: never
  std::map<CuUserObject, FakeUserObject> user_objects;
  std::map<CuGraph, std::vector<CuUserObject>> graphs;  // with what they keep
  std::map<CuGraphExec, std::vector<CuUserObject>> executables;
  std::vector<FakeLaunch> launches;
  std::function<void(const FakeLaunch&, void** parameters)> on_launch;
  std::function<void(const std::string& name)> on_call;         // before each call
  std::map<std::string, std::map<int, int>> kernel_attributes;  // what functions start with
  int version = 12080;

 private:
  template <auto kMethod, auto kName>
  friend struct FakeEntry;
  struct Failure {
    CuResult result;
    int skip;
    int times;
  };

  static FakeDriver* active_;

  template <class Handle>
  Handle make_handle() {
    return reinterpret_cast<Handle>(next_handle_ += 0x10);
  }
  CuResult before(const char* name, std::vector<uint64_t> arguments);
  CuResult injected(const std::string& name);
  // Of the calling thread's context; -1: it has none that lives.
  int current() const;
  FakeDevice& here() { return devices[static_cast<size_t>(current())]; }
  bool usable(CuStream stream) const;
  CuResult take(CuPointer* pointer, FakeAllocation allocation);
  CuResult give(CuPointer pointer);
  void drop(CuUserObject object, unsigned count);

#define DEEPGEMM_CUDA_CALL(member, symbol, parameters) CuResult member parameters;
#include "backend/cuda/driver_api.inc"
#undef DEEPGEMM_CUDA_CALL

  mutable std::recursive_mutex mutex_;
  std::map<std::string, void*> symbols_;
  Driver driver_;
  std::vector<FakeCall> calls_;
  std::map<std::string, Failure> failures_;
  uint64_t next_handle_ = 0x1000;
  uint64_t next_context_ = 1;
  double now_ = 0;
};

}  // namespace deepgemm::cuda
