// GPUs: what there is, their facts, and the context in which calls for one of them are made.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/driver.hpp"
#include "base/result.hpp"

namespace deepgemm::cuda {

// What the driver says of a device. Attributes that it does not know are 0.
struct DeviceFacts {
  int ordinal = 0;      // as CUDA counts the visible devices
  CuDevice handle = 0;  // of the driver
  std::string title;    // "NVIDIA H200"
  std::string uuid;     // "GPU-8c9b..."; an instance of MIG has it with "MIG-"
  std::string pci;      // "0000:1b:00.0"
  int sm = 0;           // compute capability * 10: 90
  int sms = 0;          // multiprocessors
  int threads_per_sm = 0;
  int registers_per_sm = 0;
  int64_t shared_bytes_per_block = 0;  // limit after opting in
  int64_t shared_bytes_per_sm = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t persisting_l2_bytes = 0;  // largest part of L2 that can be set aside
  int64_t access_window_bytes = 0;  // largest window of an access policy
  int clock_khz = 0;                // highest of the multiprocessors
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  bool integrated = false;  // shares the host's memory
  bool ecc = false;
  bool pageable_access = false;  // kernels may read ordinary host memory
  bool memory_pools = false;     // stream-ordered pools exist
  bool clusters = false;         // launches in clusters exist
};

// A GPU and its primary context, which it shares with every other user of CUDA in this process. The
// context is retained at first use, and again after someone reset the device. Any thread.
class Device {
 public:
  static base::Result<std::unique_ptr<Device>> open(const Driver& driver, int ordinal);
  // Nothing of the device is in use any more.
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  const Driver& driver() const { return driver_; }
  // "cuda:0"
  const std::string& name() const { return name_; }
  // DEVICE in a child that was forked after CUDA was used.
  base::Result<void> check_process() const { return driver_.process.check(); }
  bool forked() const { return driver_.process.forked(); }

  // Counts the contexts that there were. What was made under another number has gone: nothing of it
  // may be given to the driver, not even to free it.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  // The context; null before the first use.
  CuContext context() const { return context_.load(std::memory_order_acquire); }

 private:
  friend class ContextGuard;
  explicit Device(const Driver& driver) : driver_(driver) {}
  base::Result<void> read_facts(int ordinal);
  base::Result<void> retain(CuContext seen);
  bool is_alive(CuContext context) const;

  const Driver& driver_;
  DeviceFacts facts_;
  std::string name_;
  std::mutex mutex_;  // of retaining
  std::atomic<CuContext> context_{nullptr};
  std::atomic<unsigned long long> context_id_{0};
  std::atomic<uint64_t> generation_{0};
};

// Makes a device's context the calling thread's current one while the object lives, and leaves the
// thread as it found it. Destroy guards in the reverse order of their making, on the same thread.
class [[nodiscard]] ContextGuard {
 public:
  // DEVICE after a fork, or when there is no context to be had.
  static base::Result<ContextGuard> enter(Device& device);
  ContextGuard(ContextGuard&& other) noexcept : driver_(other.driver_) { other.driver_ = nullptr; }
  ContextGuard& operator=(ContextGuard&&) = delete;
  ~ContextGuard();

 private:
  explicit ContextGuard(const Driver* driver) : driver_(driver) {}

  const Driver* driver_;  // null: nothing was pushed
};

// Makes `device` current for the rest of the block, or returns the error from the enclosing
// function.
#define DEEPGEMM_ENTER_DEVICE(device)                    \
  const auto device_guard = ContextGuard::enter(device); \
  if (!device_guard.ok()) return device_guard.error()

enum class MemoryKind {
  kPageable,  // ordinary host memory, or not memory at all
  kPinned,    // host memory that devices reach
  kDevice,
  kManaged,  // moves between host and devices
};

struct PointerFacts {
  MemoryKind kind = MemoryKind::kPageable;
  int ordinal = -1;    // device that it was allocated on or for; -1: none
  uint64_t begin = 0;  // of its allocation
  size_t bytes = 0;    // of its allocation; 0: unknown
};

// An argument that holds an address, for messages.
struct Operand {
  const char* name;
  const void* pointer;
};

// The devices of a driver. Any thread.
class Platform {
 public:
  // `driver` outlives the platform. A device that does not answer is left to device() to report.
  static base::Result<std::unique_ptr<Platform>> create(const Driver& driver);

  const Driver& driver() const { return driver_; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  // INVALID_ARGUMENT for a number that is none of 0 ... device_count() - 1; DEVICE when the device
  // did not answer. Lives as long as the platform.
  base::Result<Device*> device(int ordinal) const;

  // Needs no context. DEVICE after a fork.
  base::Result<PointerFacts> pointer_facts(const void* pointer) const;

  // The device that the operands lie on; null pointers are passed over. Device memory decides, then
  // managed and pinned memory. INVALID_ARGUMENT, naming the operands, when they lie on different
  // devices, in host memory that the device cannot reach, or when all are null.
  base::Result<Device*> device_of(std::span<const Operand> operands) const;

 private:
  explicit Platform(const Driver& driver) : driver_(driver) {}

  const Driver& driver_;
  std::vector<base::Result<std::unique_ptr<Device>>> devices_;
};

// Of process_driver(); made at the first call, never destroyed. Errors as there, and DEVICE in a
// child forked after the first use. Any thread.
base::Result<Platform*> process_platform();

}  // namespace deepgemm::cuda
