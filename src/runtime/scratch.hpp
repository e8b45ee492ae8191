// The scratch memory that launches without a workspace of their own share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/result.hpp"
#include "runtime/system_memory.hpp"

namespace deepgemm::runtime {

// One buffer for all plans of the process: launches on the CPU queue for its threads anyway, so a
// buffer per plan would only cost memory. It grows when a plan is made and goes with the last plan,
// never at launch. Not part of the pool's statistics, which tell what callers hold.
class Scratch {
 public:
  // Keeps the buffer at least as large as was reserved while it lives.
  class Reservation {
   public:
    explicit Reservation(Scratch& scratch) : scratch_(scratch) {}
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

   private:
    Scratch& scratch_;
  };

  // Exclusive use of the buffer; waits for other users.
  class Use {
   public:
    explicit Use(Scratch& scratch) : lock_(scratch.mutex_), data_(scratch.memory_.data()) {}
    void* data() const { return data_; }

   private:
    std::unique_lock<std::mutex> lock_;
    void* data_;
  };

  // Null for 0 bytes. Waits for a running launch when the buffer must grow.
  base::Result<std::unique_ptr<Reservation>> reserve(size_t bytes);

 private:
  std::mutex mutex_;
  int64_t reservations_ = 0;
  SystemMemory memory_;
};

Scratch& process_scratch();

}  // namespace deepgemm::runtime
