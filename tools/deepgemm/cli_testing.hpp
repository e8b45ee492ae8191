// Runs the program as its users do.
#pragma once

#include <string>

namespace deepgemm::cli {

struct Outcome {
  int code = -1;  // exit code; 128 + n when signal n ended the program
  std::string out, err;
};

// `arguments` as a shell reads them; `environment` such as "HOME=/nowhere" goes before the program,
// and `pipe` such as "| head -1" after it (the code is still the program's).
Outcome run_program(const std::string& arguments, const std::string& environment = "",
                    const std::string& pipe = "");

// A path in a directory of this test process.
std::string scratch(const std::string& name);
void write_text(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);

}  // namespace deepgemm::cli
