#include "jit/work_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace deepgemm::jit {

WorkLock WorkLock::take(const std::string& path) {
  WorkLock lock(State::kImpossible);
  lock.file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.file_.valid()) return lock;
  if (::flock(lock.file_.get(), LOCK_EX | LOCK_NB) == 0) {
    lock.path_ = path;
    lock.state_ = State::kHeld;
  } else if (errno == EWOULDBLOCK) {
    lock.state_ = State::kBusy;
  }
  return lock;
}

WorkLock::~WorkLock() {
  if (state_ != State::kHeld) return;
  // A process that has the file open, but not yet the lock, will lock a file without a name. It
  // then works beside a third one that makes a new file: work done twice, nothing worse.
  ::unlink(path_.c_str());
  // Not left to close(): a child that this process forked meanwhile still has the file open.
  ::flock(file_.get(), LOCK_UN);
}

}  // namespace deepgemm::jit
