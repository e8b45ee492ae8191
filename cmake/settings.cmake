# deepgemm_settings: what every compilation of this project has in common.

set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# -O3 gains nothing outside the kernels, which ask for it themselves, and costs a third of the
# build time.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED) # headers; src/base/fmt_library.cpp is its compiled half
find_package(nlohmann_json REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
mark_as_advanced(XXHASH_INCLUDE_DIR)

configure_file("${PROJECT_SOURCE_DIR}/include/deepgemm/version.h.in"
               "${PROJECT_BINARY_DIR}/include/deepgemm/version.h" @ONLY)
foreach(option HOPPER_OPT DEBUG_TRACING)
  if(DEEPGEMM_ENABLE_${option})
    set(ENABLE_${option} true)
  else()
    set(ENABLE_${option} false)
  endif()
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/build_config.hpp.in"
               "${PROJECT_BINARY_DIR}/generated/build_config.hpp" @ONLY)

add_library(deepgemm_settings INTERFACE)
target_include_directories(deepgemm_settings INTERFACE
  "${PROJECT_SOURCE_DIR}/src"
  "${PROJECT_SOURCE_DIR}/include"
  "${PROJECT_BINARY_DIR}/include"
  "${PROJECT_BINARY_DIR}/generated")
target_include_directories(deepgemm_settings SYSTEM INTERFACE "${XXHASH_INCLUDE_DIR}")
target_compile_definitions(deepgemm_settings INTERFACE XXH_INLINE_ALL)
target_link_libraries(deepgemm_settings INTERFACE
  nlohmann_json::nlohmann_json Threads::Threads ${CMAKE_DL_LIBS})

# Results must not depend on where a compiler chooses to fuse a multiplication with an addition.
target_compile_options(deepgemm_settings INTERFACE
  -ffp-contract=off -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> # GCC 12 finds overlaps in std::string that are none
  $<$<BOOL:${DEEPGEMM_DEV}>:-Werror>)

if(DEEPGEMM_SANITIZE)
  # Global, because a program is only checked when all its objects are. Reports need line numbers
  # and no more of what -g writes.
  add_compile_options(-fsanitize=${DEEPGEMM_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${DEEPGEMM_SANITIZE})
endif()
