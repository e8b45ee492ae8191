# Installed: headers, both libraries, find_package(deepgemm CONFIG) and the pkg-config file.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/deepgemm")

install(TARGETS deepgemm_shared deepgemm_static EXPORT deepgemm_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT deepgemm_targets
  NAMESPACE deepgemm::
  FILE deepgemm-targets.cmake
  DESTINATION ${package_dir})

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/deepgemm" "${PROJECT_BINARY_DIR}/include/deepgemm"
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

configure_file("${PROJECT_SOURCE_DIR}/cmake/deepgemm-config.cmake.in"
               "${PROJECT_BINARY_DIR}/deepgemm-config.cmake" @ONLY)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/deepgemm-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/deepgemm-config.cmake"
  "${PROJECT_BINARY_DIR}/deepgemm-config-version.cmake"
  DESTINATION ${package_dir})

# The file finds its prefix from its own place, so that an installed tree can be moved.
file(RELATIVE_PATH pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file("${PROJECT_SOURCE_DIR}/cmake/deepgemm.pc.in"
               "${PROJECT_BINARY_DIR}/deepgemm.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/deepgemm.pc"
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
