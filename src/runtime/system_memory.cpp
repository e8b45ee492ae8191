#include "runtime/system_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

namespace deepgemm::runtime {
namespace {

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

SystemMemory::SystemMemory(size_t bytes) {
  const size_t page = page_size();
  if (bytes == 0 || bytes > std::numeric_limits<size_t>::max() / 2) return;
  const size_t rounded = (bytes + page - 1) / page * page;
  // mmap aligns to pages only: take one huge page more and give the ends back.
  const size_t taken = rounded >= kHugePage ? rounded + kHugePage : rounded;
  void* memory = mmap(nullptr, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  auto* start = static_cast<std::byte*>(memory);
  if (taken > rounded) {
    const size_t excess = reinterpret_cast<uintptr_t>(start) % kHugePage;
    const size_t before = excess == 0 ? 0 : kHugePage - excess;
    const size_t after = taken - rounded - before;
    if (before > 0) munmap(start, before);
    if (after > 0) munmap(start + before + rounded, after);
    start += before;
    // A wish: without it, or where the system has no huge pages, the memory is as usable.
    static_cast<void>(madvise(start, rounded, MADV_HUGEPAGE));
  }
  data_ = start;
  bytes_ = rounded;
}

SystemMemory::~SystemMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace deepgemm::runtime
