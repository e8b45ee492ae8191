// What the program tells of compilers and of the cache of compiled kernels. The rows named are of
// the list of complaints in docs/cache.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "deepgemm/cli_testing.hpp"
#include "jit/disk_cache.hpp"
#include "jit/fake_compiler.hpp"

namespace deepgemm::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// A directory of its own, with no compilers but those of a test.
class JitVerbs : public testing::Test {
 protected:
  JitVerbs() { fs::create_directories(root_ + "/bin"); }
  ~JitVerbs() override { fs::remove_all(root_); }

  std::string environment(const std::string& more = "") const {
    return "env -u HOME -u XDG_CACHE_HOME -u DEEPGEMM_CXX -u VIRTUAL_ENV PATH='" + root_ +
           "/bin' DEEPGEMM_CACHE_DIR='" + cache_ + "' " + more;
  }
  Outcome run(const std::string& arguments, const std::string& more = "") const {
    return run_program(arguments, environment(more));
  }
  json doctor(const std::string& more = "") const {
    return json::parse(run("doctor --json", more).out, nullptr, false);
  }
  // Kernels number 1 to `count`, of 1000 bytes each; the path of the last.
  std::string fill(int count) const {
    jit::DiskCacheSettings settings;
    settings.directory = cache_;
    jit::DiskCache cache(settings);
    const jit::CompilerIdentity compiler = {"g++", "12.2", "-O3"};
    std::string path;
    for (int i = 1; i <= count; ++i) {
      jit::Binary binary;
      binary.bytes.assign(1000, static_cast<uint8_t>(i));
      const jit::Source source = jit::answer_source(i);
      path = cache.publish(source, compiler, cache.key_of(source, compiler), binary);
    }
    return path;
  }

  const std::string root_ = scratch("jit verbs");
  const std::string cache_ = root_ + "/cache";
};

// J11, D4: the directory, whether it can be written and why not, and its path alone.
TEST_F(JitVerbs, CacheShowsDirectoryStateAndContent) {
  EXPECT_EQ(run("cache path").out, cache_ + "\n");
  EXPECT_THAT(run("cache").out, HasSubstr("entries    0, "));
  fill(3);
  for (const char* verb : {"cache", "cache show"}) {
    const Outcome outcome = run(verb);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    for (const char* part : {"chosen by  DEEPGEMM_CACHE_DIR", "state      writable",
                             "entries    3, ", "of at most 1.0 GiB", "generic"}) {
      EXPECT_THAT(outcome.out, HasSubstr(part));
    }
    EXPECT_THAT(outcome.out, HasSubstr("directory  " + cache_ + "\n"));
  }
}

TEST_F(JitVerbs, CacheSaysWhyThereIsNone) {
  write_text(root_ + "/file", "x");
  for (const char* verb : {"cache", "cache path", "cache verify", "cache prune"}) {
    const Outcome none = run(verb, "DEEPGEMM_CACHE_DIR=");
    EXPECT_EQ(none.code, 4) << verb;
    EXPECT_THAT(none.err, HasSubstr("set DEEPGEMM_CACHE_DIR"));
    const Outcome file = run(verb, "DEEPGEMM_CACHE_DIR='" + root_ + "/file/below'");
    EXPECT_EQ(file.code, 4) << verb;
    EXPECT_THAT(file.err, HasSubstr("/file"));
  }
}

TEST_F(JitVerbs, CacheTellsOfADirectoryThatOthersMayWrite) {
  fill(1);
  ASSERT_EQ(::chmod(cache_.c_str(), 0777), 0);
  const Outcome outcome = run("cache");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("not used"));
  EXPECT_THAT(outcome.out, HasSubstr("a directory of your own"));
  EXPECT_EQ(doctor()["cache"]["state"], false);
}

// J5, G4.
TEST_F(JitVerbs, CacheVerifyFindsDamageAndWrongArchitectures) {
  const std::string kernel = fill(2);
  Outcome outcome = run("cache verify");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 of 2 entries"));
  std::string bytes = read_text(kernel);
  bytes[500] ^= 1;
  write_text(kernel, bytes);
  outcome = run("cache verify");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("1 of 2 entries"));
  EXPECT_THAT(outcome.out, HasSubstr(fs::path(kernel).parent_path().string()));
  EXPECT_THAT(outcome.out, HasSubstr("cache prune --all"));
  EXPECT_TRUE(fs::exists(kernel));
  const fs::path arch = fs::path(kernel).parent_path().parent_path();
  fs::rename(arch, arch.parent_path() / "sm_90a");
  outcome = run("cache verify");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("architecture generic"));
}

TEST_F(JitVerbs, CachePruneKeepsTheLimitAndForeignFiles) {
  fill(4);
  write_text(cache_ + "/mine.txt", "x");
  EXPECT_THAT(run("cache prune").out, HasSubstr("removed    0 entries"));
  const Outcome some = run("cache prune --limit 4KB");
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_THAT(run("cache").out, Not(HasSubstr("entries    4")));
  EXPECT_THAT(run("cache").out, Not(HasSubstr("entries    0")));
  EXPECT_EQ(run("cache prune --all").code, 0);
  EXPECT_THAT(run("cache").out, HasSubstr("entries    0, "));
  EXPECT_TRUE(fs::exists(cache_ + "/mine.txt"));
}

TEST_F(JitVerbs, CacheRefusesWrongUsage) {
  for (const char* verb : {"cache frobnicate", "cache prune --limit much", "cache prune --limit -1",
                           "cache prune --all --limit 1KB", "cache verify show"}) {
    const Outcome outcome = run(verb);
    EXPECT_EQ(outcome.code, 2) << verb << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("deepgemm: "));
  }
}

TEST_F(JitVerbs, DoctorTriesTheCompilerThatItFinds) {
  jit::write_script(root_ + "/bin/g++", "", "PATH=/usr/bin:/bin exec g++ \"$@\"");
  // The script answers --version with nothing of its own.
  write_text(root_ + "/bin/c++", "#!/bin/sh\nPATH=/usr/bin:/bin exec g++ \"$@\"\n");
  fs::permissions(root_ + "/bin/c++", fs::perms::owner_all);
  const json report = doctor();
  const json& compilers = report["compilers"];
  ASSERT_EQ(compilers["C++"].size(), 1u) << report.dump(2);
  EXPECT_EQ(compilers["C++"][0]["location"], root_ + "/bin/c++");
  EXPECT_THAT(compilers["C++ passed over"].dump(), HasSubstr("/bin/g++"));
  EXPECT_TRUE(compilers["trial kernel"].is_number()) << report["advice"].dump(2);
  EXPECT_EQ(report["cache"]["entries"], 0);
  EXPECT_EQ(report["healthy"], true);
}

// D1, J13: what is there but does not work, and what to do.
TEST_F(JitVerbs, DoctorSaysWhatIsMissingAndHowToGetIt) {
  json report = doctor();
  EXPECT_TRUE(report["compilers"]["C++"].empty());
  EXPECT_THAT(report["advice"].dump(), HasSubstr("Install g++"));
  EXPECT_EQ(report["healthy"], true);
  jit::write_script(root_ + "/bin/g++", jit::gnu_version("12.2.0"), "echo no cc1plus; exit 1");
  report = doctor();
  EXPECT_EQ(report["compilers"]["C++"].size(), 1u);
  EXPECT_TRUE(report["compilers"]["trial kernel"].is_null());
  EXPECT_THAT(report["advice"].dump(), HasSubstr("no cc1plus"));
  report = doctor("DEEPGEMM_NVCC_PATH=/nowhere/nvcc DEEPGEMM_JIT=0");
  EXPECT_TRUE(report["compilers"]["CUDA"].empty());
  EXPECT_THAT(report["compilers"]["CUDA passed over"].dump(), HasSubstr("/nowhere/nvcc"));
  EXPECT_EQ(report["compilers"]["at run time"], false);
  EXPECT_THAT(report["advice"].dump(), HasSubstr("DEEPGEMM_JIT is 0"));
  report = doctor("DEEPGEMM_CACHE_DIR=/proc/none");
  EXPECT_EQ(report["cache"]["state"], false);
  EXPECT_THAT(report["advice"].dump(), HasSubstr("/proc/none"));
}

}  // namespace
}  // namespace deepgemm::cli
