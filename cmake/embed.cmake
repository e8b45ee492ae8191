# deepgemm_embed(<output.cpp> <array> FILES <file>...): writes a source file that defines
#   extern const deepgemm::base::EmbeddedFile <array>[]; extern const int <array>_count;
# with the texts of the files, named by their paths from the project's root. Files are read when
# CMake configures; it does so again when one of them changes.
function(deepgemm_embed output array)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "FILES")
  set(entries "")
  foreach(file IN LISTS arg_FILES)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${file}")
    file(READ "${PROJECT_SOURCE_DIR}/${file}" text)
    string(APPEND entries "    {\"${file}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  list(LENGTH arg_FILES count)
  set(content "#include \"base/embedded_file.hpp\"\n\n")
  string(APPEND content "extern const deepgemm::base::EmbeddedFile ${array}[] = {\n${entries}};\n")
  string(APPEND content "extern const int ${array}_count = ${count};\n")
  file(CONFIGURE OUTPUT "${output}" CONTENT "${content}" @ONLY)
endfunction()
