# libdeepgemm.so (deepgemm::deepgemm) and libdeepgemm.a (deepgemm::deepgemm_static), both from all
# modules' objects. No target is called plainly deepgemm: Ninja would confuse it with the program.

add_library(deepgemm_shared SHARED cmake/deepgemm.map)
add_library(deepgemm_static STATIC cmake/deepgemm.map)
add_library(deepgemm::deepgemm ALIAS deepgemm_shared)
add_library(deepgemm::deepgemm_static ALIAS deepgemm_static)

get_property(modules GLOBAL PROPERTY deepgemm_modules)
foreach(library deepgemm_shared deepgemm_static)
  foreach(module IN LISTS modules)
    get_target_property(type deepgemm_${module} TYPE)
    if(type STREQUAL OBJECT_LIBRARY)
      # Not linked as targets: an installed library must not name targets that are not installed.
      target_sources(${library} PRIVATE $<TARGET_OBJECTS:deepgemm_${module}>)
    endif()
  endforeach()
  set_target_properties(${library} PROPERTIES
    OUTPUT_NAME deepgemm
    LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
    ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  target_link_libraries(${library} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_include_directories(${library} INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include;${PROJECT_BINARY_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
endforeach()

set_target_properties(deepgemm_shared PROPERTIES
  EXPORT_NAME deepgemm
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/deepgemm.map")
target_link_options(deepgemm_shared PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/deepgemm.map")

# deepgemm_self_contained(<target>): no C++ run-time library is needed where the target runs.
function(deepgemm_self_contained target)
  if(NOT DEEPGEMM_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc LINKER:--no-undefined)
  endif()
endfunction()
deepgemm_self_contained(deepgemm_shared)
