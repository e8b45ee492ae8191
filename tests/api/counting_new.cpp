// Replaces the allocation functions of this program by counting ones. In a file of its own: inlined
// into callers they would look like pairs that do not match.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "support.hpp"

namespace {

std::atomic<int64_t> allocations = 0;

void* allocate(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

int64_t deepgemm::api_test::heap_allocations() { return allocations; }
