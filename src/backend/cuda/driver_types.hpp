// What goes over the interface of libcuda, declared by us after the CUDA Driver API reference, so
// that the library builds without a toolkit. driver_header_test.cpp compares all of it with cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepgemm::cuda {

// Handles of the driver; opaque. A stream of null is the default stream.
using CuContext = struct ContextOfDriver*;
using CuModule = struct ModuleOfDriver*;
using CuFunction = struct FunctionOfDriver*;
using CuStream = struct StreamOfDriver*;
using CuEvent = struct EventOfDriver*;
using CuGraph = struct GraphOfDriver*;
using CuGraphNode = struct GraphNodeOfDriver*;
using CuGraphExec = struct GraphExecOfDriver*;
using CuUserObject = struct UserObjectOfDriver*;
using CuMemoryPool = struct MemoryPoolOfDriver*;
using CuDevice = int;
using CuPointer = unsigned long long;

// What a call answers. Other numbers than the listed ones occur.
enum class CuResult : int {
  kSuccess = 0,
#define DEEPGEMM_CUDA_RESULT(name, official, number, kind, meaning) name = number,
#include "backend/cuda/driver_results.inc"
#undef DEEPGEMM_CUDA_RESULT
};

#define DEEPGEMM_CUDA_CONSTANT(name, official, number) inline constexpr int name = number;
#include "backend/cuda/driver_constants.inc"
#undef DEEPGEMM_CUDA_CONSTANT

struct CuUuid {
  unsigned char bytes[16];
};

// Which part of an address range stays in the persisting part of L2, and how the rest is cached.
struct CuAccessWindow {
  void* base;
  size_t bytes;
  float hit_ratio;
  int hit;
  int miss;
};

struct CuClusterSize {
  unsigned x, y, z;
};

struct CuLaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    CuAccessWindow window;
    CuClusterSize cluster;
    int flag;
  } value;
};

struct CuLaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned dynamic_shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};

struct CuPoolProperties {
  int allocation;
  int export_handles;
  int location;
  int location_id;
  void* security;
  size_t max_bytes;
  unsigned char reserved[56];
};

}  // namespace deepgemm::cuda
