// Scratch memory of launches that bring none.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "backend/cuda/memory.hpp"
#include "backend/cuda/stream_capture.hpp"

namespace deepgemm::cuda {

// What a launch with split K needs.
struct WorkspaceSize {
  size_t counter_bytes = 0;  // zero before a launch, and again after it
  size_t partial_bytes = 0;

  size_t bytes() const { return counter_bytes + partial_bytes; }
  bool fits(const WorkspaceSize& other) const {
    return counter_bytes >= other.counter_bytes && partial_bytes >= other.partial_bytes;
  }
};

struct Workspace {
  void* counters = nullptr;
  void* partials = nullptr;
};

// A buffer for each stream, because launches of two streams run at once; and one for each stream of
// each captured graph, because a graph may run beside the stream that it was captured on. A launch
// takes no memory: making a plan reserves, and spare buffers wait for streams and graphs that are
// not known yet. Launches of all plans find their counters at the same place, where nothing else
// ever lies. Any thread.
class StreamWorkspaces {
 public:
  static constexpr int kSpares = 4;

  // The device outlives it.
  explicit StreamWorkspaces(Device& device) : device_(device), pool_(device, "workspace", 0, 0) {}

  // From now on buffers have at least this size, and kSpares of them wait. OUT_OF_MEMORY, and then
  // nothing has changed.
  base::Result<void> reserve(const WorkspaceSize& size);

  // The buffer of the stream, of at least `size`, which was reserved. `graph` is what the stream
  // is captured into, null when it is not; `captured` tells which. While no spare is left a stream
  // gets a new buffer, and a captured one NOT_PREPARED.
  base::Result<Workspace> take(CuStream stream, bool captured, CuGraph graph,
                               const WorkspaceSize& size);

  size_t buffers() const;

 private:
  struct Buffer {
    std::byte* data = nullptr;
    WorkspaceSize size;
    uint64_t generation = 0;  // of the device's context
    CuStream stream = nullptr;
    CuGraph graph = nullptr;
    bool used = false;
    std::unique_ptr<GraphUses> graphs;  // of a captured launch
  };
  base::Result<void> add_spare();
  bool is_free(const Buffer& buffer) const;
  Buffer* find(CuStream stream, bool captured, CuGraph graph, const WorkspaceSize& size);
  Buffer* find_spare(const WorkspaceSize& size);
  void give_back_outgrown(CuStream stream, const WorkspaceSize& size);
  void drop_outgrown_spares();

  Device& device_;
  mutable std::mutex mutex_;
  MemoryPool pool_;
  WorkspaceSize largest_;
  std::list<Buffer> buffers_;
};

}  // namespace deepgemm::cuda
