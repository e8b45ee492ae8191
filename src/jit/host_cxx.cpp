#include "jit/host_cxx.hpp"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "jit/program_compiler.hpp"

namespace deepgemm::jit {
namespace {

constexpr int kOldestMajor = 10;
constexpr int64_t kMemory = int64_t{512} << 20;

struct Version {
  std::string kind;
  std::string text;
  int major = 0;
};

// -fno-gnu-unique: without it one static variable in a kernel makes it impossible to unload.
// --as-needed: a kernel that does not use the C++ library must not load it.
std::vector<std::string> common_options(const std::string& kind) {
  std::vector<std::string> options = {"-shared",           "-fPIC",           "-O3", "-std=c++20",
                                      "-ffp-contract=off", "-Wl,--as-needed", "-I."};
  if (kind == "g++") options.insert(options.end(), {"-fno-gnu-unique", "-frandom-seed=deepgemm"});
  return options;
}

// First number of a text that leaves out what is in parentheses: vendors put anything there.
int first_number(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')') --depth;
    const bool starts_word = i == 0 || text[i - 1] == ' ';
    if (depth == 0 && starts_word && text[i] >= '0' && text[i] <= '9') {
      return std::atoi(std::string(text.substr(i, 9)).c_str());
    }
  }
  return 0;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char letter : text) {
    if (letter == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += letter;
    }
  }
  return lines;
}

// "g++-12 (Debian 12.2.0-14) 12.2.0" or "Debian clang version 14.0.6". Leaves out the name that it
// was called by and where it is installed.
std::optional<Version> parse_version(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  const std::string& first = lines[0];
  Version version;
  if (const size_t at = first.find("clang version "); at != std::string::npos) {
    version = {"clang++", first, first_number(first.substr(at))};
    for (const std::string& line : lines) {
      if (line.starts_with("Target: ")) version.text += "; " + line;
    }
  } else if (text.find("Free Software Foundation") != std::string::npos) {
    const size_t space = first.find(' ');
    version = {"g++", space == std::string::npos ? first : first.substr(space + 1), 0};
    version.major = first_number(version.text);
  }
  if (version.major == 0) return std::nullopt;
  return version;
}

std::vector<std::string> compile_arguments(const std::string& kind, const Source& source,
                                           const std::string& directory) {
  std::vector<std::string> arguments = common_options(kind);
  arguments.push_back("-ffile-prefix-map=" + directory + "=.");
  arguments.insert(arguments.end(), source.options.begin(), source.options.end());
  arguments.insert(arguments.end(), {"kernel.cpp", "-o", "kernel.so"});
  return arguments;
}

base::Result<std::shared_ptr<const Compiler>> probe(const std::string& path,
                                                    const CompilerSettings& settings) {
  DEEPGEMM_TRY_ASSIGN(text, ask_program(path, {"--version"}, settings));
  const std::optional<Version> version = parse_version(text);
  if (!version) {
    return base::make_error(DEEPGEMM_ERROR_COMPILER_MISSING,
                            "{}: answers --version neither as GCC nor as Clang does: '{}'", path,
                            lines_of(text)[0].substr(0, 80));
  }
  if (version->major < kOldestMajor) {
    return base::make_error(DEEPGEMM_ERROR_COMPILER_MISSING,
                            "{}: is {} {}; version {} or later is needed", path, version->kind,
                            version->text, kOldestMajor);
  }
  const std::string kind = version->kind;
  ProgramSpec spec;
  spec.path = path;
  spec.identity = {kind, version->text, fmt::format("{}", fmt::join(common_options(kind), " "))};
  spec.setting = "DEEPGEMM_CXX";
  spec.source_file = "kernel.cpp";
  spec.output_file = "kernel.so";
  spec.memory_bytes = kMemory;
  spec.accepts = [](const Source& source) { return source.language == Language::kCpp; };
  spec.arguments = [kind](const Source& source, const std::string& directory) {
    return compile_arguments(kind, source, directory);
  };
  return make_program_compiler(std::move(spec), settings);
}

std::vector<std::string> usual_names() {
  constexpr int kNewest = 20;
  std::vector<std::string> names = {"g++", "c++", "clang++"};
  for (const char* stem : {"g++-", "clang++-"}) {
    for (int major = kNewest; major >= kOldestMajor; --major) {
      names.push_back(stem + std::to_string(major));
    }
  }
  return names;
}

}  // namespace

CompilerSearch find_host_cxx(const CompilerSettings& settings) {
  constexpr const char* kNone = "no g++, c++ or clang++ in PATH";
  if (!settings.cxx.empty()) {
    return take_first({{settings.cxx}, "DEEPGEMM_CXX", kNone}, probe, settings);
  }
  return take_first({usual_names(), nullptr, kNone}, probe, settings);
}

}  // namespace deepgemm::jit
