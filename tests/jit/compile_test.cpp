// Compilers of all kinds, broken and whole, on one kernel.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <set>

#include "jit/compile_report.hpp"
#include "pipeline_fixture.hpp"

namespace deepgemm::jit {
namespace {

namespace fs = std::filesystem;

class CompileTest : public PipelineFixture {
 protected:
  base::Result<Binary> compile(const CompilerSearch& search, const Source& source) {
    EXPECT_EQ(search.compilers.size(), 1u);
    return search.compilers.at(0)->compile(source);
  }
  bool left_nothing() { return fs::is_empty(settings_.temp_directory); }
};

struct BrokenCompiler {
  const char* body;
  const char* how;   // part of the message
  const char* hint;  // likewise
};

TEST_F(CompileTest, FailureTellsCommandEndLinesSourceAndHint) {
  const BrokenCompiler cases[] = {
      {"echo 'kernel.cpp:1: error: no such thing' >&2; exit 1", "exited with status 1",
       "no such thing"},
      {"kill -KILL $$", "killed by signal 9", "out of memory"},
      {"kill -SEGV $$", "killed by signal 11", "crashed"},
      {"exit 0", "wrote no kernel.so", "DEEPGEMM_CXX"},
      {": > kernel.so", "its output is empty", "DEEPGEMM_CXX"},
      {"echo text > kernel.so", "no object file", "DEEPGEMM_CXX"},
      {"mkdir kernel.so", "unreadable", "DEEPGEMM_CXX"},
      {"yes 'endless message' >&2", "after writing 64 MiB", "choose another"},
      {"sleep 60", "was stopped after", "hangs"},
  };
  settings_.compile_limit = std::chrono::milliseconds(1500);
  Source source = answer_source(1);
  source.options = {"-DTEXT=two words"};
  for (const BrokenCompiler& one : cases) {
    SCOPED_TRACE(one.body);
    const base::Result<Binary> result = compile(fake(one.body), source);
    ASSERT_FALSE(result.ok());
    const std::string& message = result.error().message;
    EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_COMPILE_FAILED);
    EXPECT_LT(message.size(), 5000u);
    for (const char* part : {one.how, one.hint, "'answer'", "bin/g++", "'-DTEXT=two words'"}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in\n" << message;
    }
    EXPECT_TRUE(left_nothing());
    const size_t at = message.find(settings_.failed_directory + "/failed-");
    ASSERT_NE(at, std::string::npos) << message;
    const std::string kept = message.substr(at, message.find('\n', at) - at);
    for (const char* file : {"kernel.cpp", "answer.hpp", "command.txt", "output.txt"}) {
      EXPECT_TRUE(fs::exists(kept + "/" + file)) << kept << file;
    }
  }
}

TEST_F(CompileTest, KeepsABoundedNumberOfFailures) {
  const CompilerSearch broken = fake("exit 1");
  for (int i = 0; i < 24; ++i) {
    EXPECT_FALSE(compile(broken, answer_source(i)).ok());
    EXPECT_FALSE(compile(broken, answer_source(0)).ok());
  }
  size_t kept = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(settings_.failed_directory))
    ++kept;
  EXPECT_GE(kept, 2u);
  EXPECT_LE(kept, kFailuresKept);
}

TEST_F(CompileTest, SaysThatASourceWasNotKept) {
  settings_.failed_directory.clear();
  const auto result = compile(fake("exit 1"), answer_source(1));
  EXPECT_NE(result.error().message.find("DEEPGEMM_DUMP_DIR"), std::string::npos);
  std::ofstream(directory_ / "file") << "x";
  settings_.failed_directory = directory_ / "file/below";
  EXPECT_FALSE(compile(fake("exit 1"), answer_source(1)).ok());
}

TEST_F(CompileTest, PathsMayHaveAnyCharacters) {
  for (const char* name :
       {"with space", "it's", "Übergröße", "-dash", "$HOME", "semi;colon", "new\nline"}) {
    SCOPED_TRACE(name);
    settings_.temp_directory = directory_ / name;
    settings_.failed_directory = directory_ / (std::string(name) + "/failed");
    fs::create_directories(settings_.temp_directory);
    const CompilerSearch search = fake(compile_script(), "12.2.0", std::string(name) + "/g++");
    ASSERT_EQ(search.compilers.size(), 1u);
    EXPECT_TRUE(compile(search, answer_source(1)).ok());
    EXPECT_FALSE(
        compile(fake("exit 1", "12.2.0", std::string(name) + "/g++"), answer_source(1)).ok());
    EXPECT_FALSE(fs::is_empty(settings_.failed_directory));
  }
}

TEST_F(CompileTest, OddNamesOfKernelsStayInside) {
  Source source = answer_source(1);
  source.name = "../../-x /$(touch evil)\n";
  EXPECT_FALSE(compile(fake("exit 1"), source).ok());
  for (const auto& entry : fs::directory_iterator(settings_.failed_directory)) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("failed-______-x"));
  }
  for (const char* header : {"../outside.hpp", "/tmp/outside.hpp", "a/../../b.hpp", ""}) {
    source.headers[0].name = header;
    EXPECT_EQ(compile(good(), source).error().code, DEEPGEMM_ERROR_INTERNAL) << header;
  }
  EXPECT_TRUE(left_nothing());
}

TEST_F(CompileTest, CompilerSeesNoVariableThatChangesItsResult) {
  for (const char* name : {"CPATH", "CPLUS_INCLUDE_PATH", "NVCC_APPEND_FLAGS", "GCC_EXEC_PREFIX"}) {
    ASSERT_EQ(::setenv(name, "/somewhere", 1), 0);
  }
  const auto result = compile(fake("env; exit 1"), answer_source(1));
  for (const char* name : {"CPATH", "CPLUS_INCLUDE_PATH", "NVCC_APPEND_FLAGS", "GCC_EXEC_PREFIX"}) {
    ::unsetenv(name);
  }
  EXPECT_EQ(result.error().message.find("/somewhere"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find("LC_ALL=C"), std::string::npos);
}

TEST_F(CompileTest, WorkDirectoryFallsBackAndIsPrivate) {
  settings_.temp_directory = directory_ / "absent/too";
  EXPECT_TRUE(compile(good(), answer_source(1)).ok());
}

class RealCompilerTest : public CompileTest {
 protected:
  // Skips the test when this machine has none.
  std::shared_ptr<const Compiler> real(Language language, CompilerSettings settings) {
    const CompilerSearch search = find_compilers(language, settings);
    return search.compilers.empty() ? nullptr : search.compilers.front();
  }
};

TEST_F(RealCompilerTest, HostCompilersGiveEqualBytesInDifferentDirectories) {
  bool any = false;
  for (const char* name : {"g++", "clang++"}) {
    settings_.cxx = name;
    settings_.temp_directory = directory_ / "temp";
    const auto first = real(Language::kCpp, settings_);
    settings_.temp_directory = directory_ / "another place, with a longer name";
    fs::create_directories(settings_.temp_directory);
    const auto second = real(Language::kCpp, settings_);
    if (!first) continue;
    any = true;
    SCOPED_TRACE(first->identity().version);
    Source source = answer_source(41);
    source.options = {"-g"};
    source.text +=
        "namespace { int hidden = 3; } int* deepgemm_kernel_hidden() { return &hidden; }\n"
        "const char* deepgemm_kernel_file() { return __FILE__; }\n";
    const auto one = first->compile(source);
    const auto two = second->compile(source);
    ASSERT_TRUE(one.ok()) << one.error().message;
    ASSERT_TRUE(two.ok()) << two.error().message;
    EXPECT_EQ(one->bytes, two->bytes);
    EXPECT_GT(one->seconds, 0);
    const auto module = Module::load(source, *one, {});
    EXPECT_EQ(answer_of(module), 41);
    source.text += "this is no C++\n";
    const auto bad = first->compile(source);
    ASSERT_FALSE(bad.ok());
    EXPECT_NE(bad.error().message.find("error"), std::string::npos);
    EXPECT_NE(bad.error().message.find("kernel.cpp"), std::string::npos);
  }
  if (!any) GTEST_SKIP() << "neither g++ nor clang++ is in PATH";
}

Source cuda_source(const std::string& arch) {
  Source source;
  source.language = Language::kCuda;
  source.name = "scale";
  source.text =
      "#include \"scale.cuh\"\n"
      "extern \"C\" __global__ void deepgemm_kernel_scale(float* x, int n) {\n"
      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  if (i < n) x[i] = scaled(x[i]);\n}\n";
  source.headers = {{"scale.cuh", "__device__ inline float scaled(float x) { return x * 2; }\n"}};
  source.arch = arch;
  source.symbols = {"deepgemm_kernel_scale"};
  return source;
}

// Compiles for the architecture, twice, with whichever of the compilers accepts it.
void expect_cubin(const CompilerSearch& search, const std::string& arch) {
  const Source source = cuda_source(arch);
  for (const auto& compiler : search.compilers) {
    if (!compiler->accepts(source)) continue;
    const auto one = compiler->compile(source);
    const auto two = compiler->compile(source);
    ASSERT_TRUE(one.ok()) << one.error().message;
    ASSERT_TRUE(two.ok());
    EXPECT_EQ(one->bytes, two->bytes) << compiler->location();
    const std::string text(one->bytes.begin(), one->bytes.end());
    EXPECT_TRUE(text.starts_with("\177ELF"));
    EXPECT_NE(text.find("deepgemm_kernel_scale"), std::string::npos);
    std::cout << compiler->identity().kind << " " << compiler->location() << " " << arch << ": "
              << one->seconds << " s, then " << two->seconds << " s\n";
    return;
  }
  ADD_FAILURE() << "no compiler for " << arch;
}

TEST_F(RealCompilerTest, NvrtcCompilesForTheArchitecturesItKnows) {
  CompilerSettings settings = compiler_settings_from_environment("");
  settings.failed_directory = settings_.failed_directory;
  if (const char* python = std::getenv("VIRTUAL_ENV")) settings.virtual_env = python;
  CompilerSearch search = find_compilers(Language::kCuda, settings);
  std::erase_if(search.compilers,
                [](const auto& each) { return each->identity().kind != "nvrtc"; });
  if (search.compilers.empty()) GTEST_SKIP() << "no NVRTC: " << search.notes.at(0);
  std::set<char> majors;
  for (const auto& compiler : search.compilers) {
    SCOPED_TRACE(compiler->location());
    EXPECT_TRUE(majors.insert(compiler->identity().version[1]).second);  // "12...", "13..."
    EXPECT_NE(compiler->identity().version.find("build "), std::string::npos);
    EXPECT_EQ(compiler->accepts(cuda_source("sm_70")), compiler->identity().version[1] == '2');
    EXPECT_FALSE(compiler->accepts(cuda_source("sm_35")));
    EXPECT_FALSE(compiler->accepts(cuda_source("avx2")));
    EXPECT_FALSE(compiler->accepts(answer_source(1)));
    Source bad = cuda_source("sm_80");
    bad.text += "int x = no_such_name;\n";
    const auto result = compiler->compile(bad);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_COMPILE_FAILED);
    EXPECT_NE(result.error().message.find("no_such_name"), std::string::npos);
    EXPECT_NE(result.error().message.find("NVRTC_ERROR_COMPILATION"), std::string::npos);
    Source plain = cuda_source("sm_90a");  // no execution space: device
    plain.headers[0].text = "inline float scaled(float x) { return x * 2; }\n";
    EXPECT_TRUE(compiler->compile(plain).ok());
  }
  for (const char* arch : {"sm_75", "sm_80", "sm_89", "sm_90a"}) expect_cubin(search, arch);
  if (majors.contains('2')) expect_cubin(search, "sm_70");
}

TEST_F(RealCompilerTest, NvccGivesCubins) {
  CompilerSettings settings = settings_;
  settings.nvcc_path = "nvcc";
  const CompilerSearch search = find_compilers(Language::kCuda, settings);
  if (search.compilers.empty()) GTEST_SKIP() << search.notes.at(0);
  EXPECT_EQ(search.compilers[0]->identity().kind, "nvcc");
  expect_cubin(search, "sm_90a");
  EXPECT_TRUE(left_nothing());
}

}  // namespace
}  // namespace deepgemm::jit
