#include "jit/compiler.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/temporary_directory.hpp"
#include "jit/fake_compiler.hpp"

namespace deepgemm::jit {
namespace {

namespace fs = std::filesystem;

// Takes a fake compiler for every name of a temporary directory, and nothing of the machine's.
class CompilerTest : public testing::Test {
 protected:
  CompilerTest() {
    settings_.search_path = (directory_ / "bin") + ":/usr/bin:/bin";
    settings_.probe_limit = std::chrono::milliseconds(1000);
  }
  // Only the scripts' own interpreter may be found, not the real compilers.
  CompilerSearch find_fakes(Language language = Language::kCpp) {
    CompilerSettings settings = settings_;
    settings.search_path = directory_ / "bin";
    return find_compilers(language, settings);
  }
  void add(const std::string& name, const std::string& version,
           const std::string& body = "exit 0") {
    write_script(directory_ / ("bin/" + name), version, body);
  }

  base::TemporaryDirectory directory_;
  CompilerSettings settings_ = settings_in(directory_.path());
};

TEST_F(CompilerTest, TakesTheFirstThatWorksAndNotesTheOthers) {
  add("g++", "garbage 1.0");
  write_script(directory_ / "bin/c++", "", "exit 1");
  add("clang++", "Test clang version 15.0.7\nTarget: x86_64-pc-linux-gnu\nInstalledDir: /opt/x");
  const CompilerSearch found = find_fakes();
  ASSERT_EQ(found.compilers.size(), 1u);
  EXPECT_EQ(found.compilers[0]->identity().kind, "clang++");
  EXPECT_EQ(found.compilers[0]->identity().version,
            "Test clang version 15.0.7; Target: x86_64-pc-linux-gnu");
  ASSERT_EQ(found.notes.size(), 2u);
  EXPECT_NE(found.notes[0].find("garbage"), std::string::npos);
}

TEST_F(CompilerTest, FindsAVersionedName) {
  add("g++-13", gnu_version("13.2.0"));
  ASSERT_EQ(find_fakes().compilers.size(), 1u);
  EXPECT_EQ(find_fakes().compilers[0]->location(), directory_ / "bin/g++-13");
}

TEST_F(CompilerTest, IdentityHasTheWholeVersionAndNoName) {
  add("g++", gnu_version("12.2.0"));
  const CompilerIdentity first = find_fakes().compilers.at(0)->identity();
  fs::rename(directory_ / "bin/g++", directory_ / "bin/g++-12");
  const CompilerIdentity second = find_fakes().compilers.at(0)->identity();
  EXPECT_EQ(first.version, "(Test) 12.2.0");
  EXPECT_EQ(second.version, first.version);
  add("g++", gnu_version("12.2.1"));
  EXPECT_NE(find_fakes().compilers.at(0)->identity().version, first.version);
}

struct OddVersion {
  const char* text;
  bool accepted;
};

TEST_F(CompilerTest, ReadsVersionsAsVendorsWriteThem) {
  const std::string free = "\nCopyright (C) 2024 Free Software Foundation, Inc.";
  const OddVersion versions[] = {
      {"g++ (Debian 12.2.0-14+deb12u1) 12.2.0", true},
      {"g++ (GCC) 13.2.1 20240316 (Red Hat 13.2.1-7)", true},
      {"x86_64-conda-linux-gnu-c++ (conda-forge gcc 14.1.0-0) 14.1.0", true},
      {"g++ (Test (of (brackets))) 99.0.0-weird", true},
      {"g++ (GCC) 9.4.0", false},
      {"g++ (GCC) 4.8.5", false},
      {"g++ (GCC 12)", false},
      {"g++", false},
  };
  for (const OddVersion& version : versions) {
    add("g++", version.text + free);
    EXPECT_EQ(find_fakes().compilers.size(), version.accepted ? 1u : 0u) << version.text;
  }
  const OddVersion clangs[] = {
      {"Debian clang version 14.0.6", true},
      {"clang version 18.1.3 (Fedora 18.1.3-1.fc40)", true},
      {"clang version 9.0.1", false},
      {"clang version ", false},
      {"", false},
      {"icpc (ICC) 2021.10.0 20230609", false},
  };
  for (const OddVersion& version : clangs) {
    add("g++", version.text);
    EXPECT_EQ(find_fakes().compilers.size(), version.accepted ? 1u : 0u) << version.text;
  }
}

TEST_F(CompilerTest, PassesOverOneThatHangsOrFloodsOrDies) {
  for (const char* body : {"sleep 60", "yes", "kill -KILL $$"}) {
    std::ofstream script(directory_ / "g");
    script << "#!/bin/sh\nPATH=/usr/bin:/bin\n" << body << "\n";
    script.close();
    fs::create_directories(directory_ / "bin");
    fs::rename(directory_ / "g", directory_ / "bin/g++");
    fs::permissions(directory_ / "bin/g++", fs::perms::owner_all);
    add("c++", gnu_version("12.2.0"));
    const CompilerSearch found = find_fakes();
    ASSERT_EQ(found.compilers.size(), 1u) << body;
    EXPECT_EQ(found.compilers[0]->location(), directory_ / "bin/c++");
    ASSERT_EQ(found.notes.size(), 1u);
    EXPECT_NE(found.notes[0].find("g++ --version was"), std::string::npos) << found.notes[0];
  }
}

TEST_F(CompilerTest, ExplicitChoiceWinsOrFails) {
  add("g++", gnu_version("12.2.0"));
  write_script(directory_ / "other/my c++", gnu_version("14.1.0"), "exit 0");
  settings_.cxx = directory_ / "other/my c++";
  EXPECT_EQ(find_fakes().compilers.at(0)->location(), settings_.cxx);
  settings_.cxx = "g++";
  EXPECT_EQ(find_fakes().compilers.at(0)->location(), directory_ / "bin/g++");
  for (const std::string& wrong :
       {directory_ / "absent", directory_.path(), std::string("absent")}) {
    settings_.cxx = wrong;
    const CompilerSearch found = find_fakes();
    EXPECT_TRUE(found.compilers.empty()) << wrong;
    ASSERT_EQ(found.notes.size(), 1u);
    EXPECT_NE(found.notes[0].find("DEEPGEMM_CXX"), std::string::npos);
  }
  add("broken", "garbage");
  settings_.cxx = "broken";
  EXPECT_TRUE(find_fakes().compilers.empty());
}

TEST_F(CompilerTest, SaysWhatIsMissingAndWhatToDo) {
  const CompilerSearch none = find_fakes();
  EXPECT_TRUE(none.compilers.empty());
  const base::Error error = no_compiler_error(none, answer_source(1));
  EXPECT_EQ(error.code, DEEPGEMM_ERROR_COMPILER_MISSING);
  EXPECT_NE(error.message.find("DEEPGEMM_CXX"), std::string::npos);
  EXPECT_NE(error.message.find("no g++"), std::string::npos);
}

TEST_F(CompilerTest, IgnoresRelativePartsOfThePath) {
  add("g++", gnu_version("12.2.0"));
  CompilerSettings settings = settings_;
  settings.search_path = ":.:bin:" + (directory_ / "bin");
  EXPECT_EQ(find_compilers(Language::kCpp, settings).compilers.at(0)->location(),
            directory_ / "bin/g++");
}

TEST_F(CompilerTest, ReadsTheEnvironmentAnew) {
  ASSERT_EQ(::setenv("DEEPGEMM_CXX", "/first", 1), 0);
  EXPECT_EQ(compiler_settings_from_environment("").cxx, "/first");
  ASSERT_EQ(::setenv("DEEPGEMM_CXX", "/second", 1), 0);
  EXPECT_EQ(compiler_settings_from_environment("").cxx, "/second");
  ::unsetenv("DEEPGEMM_CXX");
  EXPECT_EQ(compiler_settings_from_environment("").cxx, "");
  EXPECT_EQ(compiler_settings_from_environment("/c").failed_directory, "/c/failed");
}

std::string nvcc_version(const std::string& number) {
  return "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release x, V" + number;
}

TEST_F(CompilerTest, ProbesNvcc) {
  Source source;
  source.language = Language::kCuda;
  const std::string path = directory_ / "cuda toolkit/bin/nvcc";
  settings_.nvcc_path = path;
  const std::string lists = "[ \"$1\" = --list-gpu-code ] && echo sm_80 sm_90";
  struct Case {
    std::string version;
    std::string body;
    bool found;
  };
  const Case cases[] = {{nvcc_version("13.0.88"), lists, true},
                        {nvcc_version("12.1.105"), lists, true},
                        {nvcc_version("11.8.89"), lists, false},
                        {"garbage, V13.0", lists, false},
                        {"", lists, false},
                        {nvcc_version("13.0.88"), "exit 1", false},
                        {nvcc_version("13.0.88"), "sleep 60", false}};
  for (const Case& one : cases) {
    write_script(path, one.version, one.body);
    const CompilerSearch found = find_compilers(Language::kCuda, settings_);
    ASSERT_EQ(found.compilers.size(), one.found ? 1u : 0u) << one.version << one.body;
    if (!one.found) {
      EXPECT_NE(found.notes.at(0).find("DEEPGEMM_NVCC_PATH"), std::string::npos);
      continue;
    }
    for (const char* arch : {"sm_80", "sm_90", "sm_90a"}) {
      source.arch = arch;
      EXPECT_TRUE(found.compilers[0]->accepts(source)) << arch;
    }
    source.arch = "sm_70";
    EXPECT_FALSE(found.compilers[0]->accepts(source));
    EXPECT_FALSE(found.compilers[0]->accepts(answer_source(1)));
  }
}

TEST_F(CompilerTest, ExplicitNvrtcWinsOrFails) {
  settings_.nvrtc_path = directory_ / "absent";
  CompilerSearch found = find_compilers(Language::kCuda, settings_);
  EXPECT_TRUE(found.compilers.empty());
  EXPECT_NE(found.notes.at(0).find("DEEPGEMM_NVRTC_PATH"), std::string::npos);
  std::ofstream(directory_ / "libnvrtc.so.13") << "no library";
  settings_.nvrtc_path = directory_.path();
  found = find_compilers(Language::kCuda, settings_);
  EXPECT_TRUE(found.compilers.empty());
  EXPECT_NE(found.notes.at(0).find("libnvrtc.so.13"), std::string::npos);
}

}  // namespace
}  // namespace deepgemm::jit
