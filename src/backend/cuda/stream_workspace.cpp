#include "backend/cuda/stream_workspace.hpp"

#include <algorithm>

#include "backend/cuda/stream.hpp"

namespace deepgemm::cuda {

// Free for anybody: never given, or given to a graph that has gone.
bool StreamWorkspaces::is_free(const Buffer& buffer) const {
  if (buffer.generation != device_.generation()) return false;  // went with a reset
  return !buffer.used || (buffer.graphs != nullptr && buffer.graphs->count() == 0);
}

base::Result<void> StreamWorkspaces::add_spare() {
  DEEPGEMM_TRY_ASSIGN(stream, Stream::create(device_));
  DEEPGEMM_TRY_ASSIGN(data, pool_.allocate(largest_.bytes(), stream.get()));
  auto ready = fill(device_, data, 0, largest_.counter_bytes, stream.get());
  if (ready) ready = stream.synchronize();  // other streams use it
  if (!ready) {
    static_cast<void>(pool_.release(data, stream.get()));
    return ready.error();
  }
  buffers_.push_front({static_cast<std::byte*>(data), largest_, device_.generation(), nullptr,
                       nullptr, false, nullptr});
  return {};
}

base::Result<void> StreamWorkspaces::reserve(const WorkspaceSize& size) {
  if (size.bytes() == 0) return {};
  const std::lock_guard lock(mutex_);
  const WorkspaceSize before = largest_;
  largest_ = {std::max(before.counter_bytes, size.counter_bytes),
              std::max(before.partial_bytes, size.partial_bytes)};
  drop_outgrown_spares();
  const auto is_spare = [&](const Buffer& buffer) {
    return is_free(buffer) && buffer.size.fits(largest_);
  };
  for (auto spares = std::ranges::count_if(buffers_, is_spare); spares < kSpares; ++spares) {
    if (auto added = add_spare(); !added.ok()) {
      largest_ = before;
      return added;
    }
  }
  return {};
}

StreamWorkspaces::Buffer* StreamWorkspaces::find(CuStream stream, bool captured, CuGraph graph,
                                                 const WorkspaceSize& size) {
  for (Buffer& buffer : buffers_) {
    const bool fits = buffer.used && buffer.size.fits(size) && buffer.stream == stream &&
                      buffer.graph == graph && (buffer.graphs != nullptr) == captured &&
                      buffer.generation == device_.generation();
    // The handle of a graph that has gone may be that of another one now.
    if (fits && (!captured || buffer.graphs->count() > 0)) return &buffer;
  }
  return nullptr;
}

StreamWorkspaces::Buffer* StreamWorkspaces::find_spare(const WorkspaceSize& size) {
  for (Buffer& buffer : buffers_) {
    if (is_free(buffer) && buffer.size.fits(size)) return &buffer;
  }
  return nullptr;
}

// Nobody will ask for less than what is reserved now.
void StreamWorkspaces::drop_outgrown_spares() {
  for (auto at = buffers_.begin(); at != buffers_.end();) {
    const auto buffer = at++;
    if (!is_free(*buffer) || buffer->size.fits(largest_)) continue;
    static_cast<void>(pool_.release(buffer->data, nullptr));
    buffers_.erase(buffer);
  }
}

// In the order of the stream: its earlier launches may still use it.
void StreamWorkspaces::give_back_outgrown(CuStream stream, const WorkspaceSize& size) {
  for (auto at = buffers_.begin(); at != buffers_.end();) {
    const auto buffer = at++;
    if (!buffer->used || buffer->graphs != nullptr || buffer->stream != stream) continue;
    if (buffer->size.fits(size)) continue;
    if (buffer->generation == device_.generation()) {
      static_cast<void>(pool_.release(buffer->data, stream));
    }
    buffers_.erase(buffer);
  }
}

base::Result<Workspace> StreamWorkspaces::take(CuStream stream, bool captured, CuGraph graph,
                                               const WorkspaceSize& size) {
  const std::lock_guard lock(mutex_);
  const auto parts = [](const Buffer& buffer) {
    return Workspace{buffer.data, buffer.data + buffer.size.counter_bytes};
  };
  if (const Buffer* mine = find(stream, captured, graph, size)) return parts(*mine);
  Buffer* spare = find_spare(size);
  if (spare == nullptr && captured) {
    return base::make_error(
        DEEPGEMM_ERROR_NOT_PREPARED,
        "The launch is captured and needs {} bytes of workspace, and none of the {} that the plan "
        "reserved is left: give gemm_launch_args_t::workspace, or make another plan before the "
        "capture begins. The capture is intact.",
        size.bytes(), kSpares);
  }
  if (spare == nullptr) {
    DEEPGEMM_TRY(add_spare());
    spare = &buffers_.front();
  }
  if (!captured) give_back_outgrown(stream, size);
  std::unique_ptr<GraphUses> graphs;
  if (captured) {
    graphs = std::make_unique<GraphUses>();
    DEEPGEMM_TRY(graphs->keep(device_.driver(), graph, "the workspace of a launch"));
  }
  spare->stream = stream;
  spare->graph = graph;
  spare->used = true;
  spare->graphs = std::move(graphs);
  return parts(*spare);
}

size_t StreamWorkspaces::buffers() const {
  const std::lock_guard lock(mutex_);
  return buffers_.size();
}

}  // namespace deepgemm::cuda
