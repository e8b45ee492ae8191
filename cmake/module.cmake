# One folder of src/ = one module = one object library.

include(GoogleTest)

if(DEEPGEMM_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()

# deepgemm_module(<name> [SOURCES <file>...] [DEPENDS <module>...])
#
# Defines deepgemm_<name>, and the list deepgemm_<name>_modules of <name> and all modules below it.
# A module that has only headers is an INTERFACE library. A file for one instruction set gets its
# flags beside the call, with
#   set_source_files_properties(<file> PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
# Such a file must not use inline functions that other files use too: the linker keeps one copy of
# each, and it might be the one that an older CPU cannot run.
function(deepgemm_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  set(target deepgemm_${name})
  set(modules ${name})
  foreach(module IN LISTS arg_DEPENDS)
    get_property(below GLOBAL PROPERTY deepgemm_${module}_modules)
    list(APPEND modules ${below})
  endforeach()
  list(REMOVE_DUPLICATES modules)
  set_property(GLOBAL PROPERTY ${target}_modules ${modules})
  set_property(GLOBAL APPEND PROPERTY deepgemm_modules ${name})

  if(arg_SOURCES)
    add_library(${target} OBJECT ${arg_SOURCES})
    target_link_libraries(${target} PUBLIC deepgemm_settings)
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE deepgemm_settings)
  endif()
endfunction()

# deepgemm_link_modules(<target> <module>...): links the objects of these modules and of all below
# them. Object libraries do not pass their objects on, hence the list.
function(deepgemm_link_modules target)
  foreach(module IN LISTS ARGN)
    get_property(modules GLOBAL PROPERTY deepgemm_${module}_modules)
    list(TRANSFORM modules PREPEND deepgemm_)
    target_link_libraries(${target} PRIVATE ${modules})
  endforeach()
endfunction()

# NVIDIA's run-time compilers that scripts/bootstrap fetched, for tests with label nvrtc or gpu;
# without the newer one they take what they find.
find_file(DEEPGEMM_TEST_NVRTC libnvrtc.so.13
  PATHS "${PROJECT_SOURCE_DIR}/build/nvrtc/nvidia/cu13/lib" NO_DEFAULT_PATH)
find_file(DEEPGEMM_TEST_NVRTC_12 libnvrtc.so.12
  PATHS "${PROJECT_SOURCE_DIR}/build/nvrtc12/nvidia/cuda_nvrtc/lib" NO_DEFAULT_PATH)
mark_as_advanced(DEEPGEMM_TEST_NVRTC DEEPGEMM_TEST_NVRTC_12)

# deepgemm_test(<target> [SOURCES <file>...] [MODULES <module>...] [LABELS <label>...])
#
# A GoogleTest program; each of its tests is a test of ctest, with label `cpu` unless LABELS says
# otherwise. The tests are listed when ctest starts, so that a program that is missing or does not
# start fails ctest and not the build. Property tests run with one seed under ctest, so that a
# change is judged by what it changes; the program run by hand takes a new seed each time.
function(deepgemm_test target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;MODULES;LABELS")
  if(NOT DEEPGEMM_BUILD_TESTS OR NOT arg_SOURCES)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  add_executable(${target} ${arg_SOURCES})
  deepgemm_link_modules(${target} ${arg_MODULES})
  target_link_libraries(${target} PRIVATE
    deepgemm_settings GTest::gmock GTest::gtest GTest::gtest_main rapidcheck_gtest)
  set(environment "RC_PARAMS=seed=20261130")
  # A machine with a GPU runs the tests of the CPU backend too.
  if("cpu" IN_LIST arg_LABELS)
    list(APPEND environment "DEEPGEMM_DEVICE=cpu")
  endif()
  if(arg_LABELS MATCHES "nvrtc|gpu")
    if(DEEPGEMM_TEST_NVRTC)
      list(APPEND environment "DEEPGEMM_NVRTC_PATH=${DEEPGEMM_TEST_NVRTC}")
    endif()
    if(DEEPGEMM_TEST_NVRTC_12)
      list(APPEND environment "DEEPGEMM_TEST_NVRTC_12=${DEEPGEMM_TEST_NVRTC_12}")
    endif()
  endif()
  gtest_discover_tests(${target}
    DISCOVERY_MODE PRE_TEST NO_PRETTY_TYPES NO_PRETTY_VALUES
    TEST_LIST ${target}_names
    PROPERTIES TIMEOUT 600)
  # gtest_discover_tests would take each item of a list but the first for a property.
  set(settings "${CMAKE_CURRENT_BINARY_DIR}/${target}_environment.cmake")
  file(WRITE "${settings}" "foreach(test IN LISTS ${target}_names)
  set_tests_properties(\"\${test}\" PROPERTIES
    LABELS \"${arg_LABELS}\" ENVIRONMENT \"${environment}\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${settings}")
endfunction()

# deepgemm_module_test(<name> [SOURCES <file>...]): the unit tests of a module, which lie beside its
# sources.
function(deepgemm_module_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  deepgemm_test(deepgemm_${name}_test SOURCES ${arg_SOURCES} MODULES ${name})
endfunction()
