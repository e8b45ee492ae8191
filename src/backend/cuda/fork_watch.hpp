// Has this process been forked since? Drivers do not survive a fork, and their calls may hang.
#pragma once

#include <sys/types.h>

#include "base/result.hpp"

namespace deepgemm::cuda {

// Remembers the process in which it was made. Any thread.
class ForkWatch {
 public:
  ForkWatch();

  // Is this another process than the one it was made in? Reads one number.
  bool forked() const;
  // DEVICE, naming both processes, after a fork.
  base::Result<void> check() const;

 private:
  unsigned generation_;
  pid_t pid_;
};

}  // namespace deepgemm::cuda
