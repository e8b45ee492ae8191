// A text file that travels in the library (cmake/embed.cmake).
#pragma once

namespace deepgemm::base {

struct EmbeddedFile {
  const char* name;  // path from the project's root
  const char* text;
};

}  // namespace deepgemm::base
