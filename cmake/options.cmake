# Every option of the build. Those that the code reads reach it through build_config.hpp.

# Someone who adds DeepGEMM to a project of their own wants the library only.
if(PROJECT_IS_TOP_LEVEL)
  set(developing ON)
else()
  set(developing OFF)
endif()

option(DEEPGEMM_ENABLE_HOPPER_OPT "Default of the run-time switch for Hopper kernels" ON)
option(DEEPGEMM_ENABLE_DEBUG_TRACING "Record an event trace of plans, compiles and launches" OFF)
set(CMAKE_CUDA_ARCHITECTURES "" CACHE STRING
    "GPU architectures of the ahead-of-time pack, such as 80;90a; needs no CUDA compiler")

option(DEEPGEMM_BUILD_TESTS "Build the tests" ${developing})
option(DEEPGEMM_BUILD_TOOLS "Build the program deepgemm" ${developing})
option(DEEPGEMM_BUILD_BENCH "Build the benchmarks" OFF)
option(DEEPGEMM_BUILD_FUZZ "Build the fuzzers for long runs; with Clang on libFuzzer" OFF)

option(DEEPGEMM_DEV "Treat warnings as errors" OFF)
set(DEEPGEMM_SANITIZE "" CACHE STRING "Sanitizers, such as address,undefined or thread")

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT multi_config AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
foreach(language C CXX)
  if(CCACHE_PROGRAM AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  endif()
endforeach()
