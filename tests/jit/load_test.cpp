// Loading compiled kernels, also where files cannot be executed.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "jit/file_ops.hpp"
#include "pipeline_fixture.hpp"

namespace deepgemm::jit {
namespace {

namespace fs = std::filesystem;

Binary sample(const char* path) {
  Binary binary;
  FileInfo info;
  EXPECT_EQ(system_files().read(path, 1 << 24, info, binary.bytes), 0);
  return binary;
}

size_t mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find(name) != std::string::npos;
  return found;
}

class ModuleTest : public PipelineFixture {
 protected:
  std::string kernel_file() {
    const std::string path = directory_ / "kernel.bin";
    fs::copy_file(DEEPGEMM_SAMPLE_1, path, fs::copy_options::overwrite_existing);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    return path;
  }
  const Source source_ = answer_source(1);
};

TEST_F(ModuleTest, LoadsTheFileAndUnloadsItWithTheLastUser) {
  const std::string path = kernel_file();
  auto module = Module::load(source_, sample(DEEPGEMM_SAMPLE_1), path);
  ASSERT_TRUE(module.ok()) << module.error().message;
  EXPECT_EQ(answer_of(**module), 1);
  EXPECT_EQ((*module)->symbol("deepgemm_kernel_other"), nullptr);
  EXPECT_TRUE((*module)->cubin().empty());
  std::shared_ptr<const Module> second = *module;
  EXPECT_GT(mapped(path), 0u);
  module = base::make_error(DEEPGEMM_ERROR_INTERNAL, "dropped");
  EXPECT_GT(mapped(path), 0u);
  second.reset();
  EXPECT_EQ(mapped(path), 0u);
}

TEST_F(ModuleTest, LoadsBytesWithoutAFileAndKeepsThemApart) {
  for (int round = 0; round < 3; ++round) {
    const auto one = Module::load(source_, sample(DEEPGEMM_SAMPLE_1), {});
    const auto two = Module::load(source_, sample(DEEPGEMM_SAMPLE_2), {});
    EXPECT_EQ(answer_of(one), 1);
    EXPECT_EQ(answer_of(two), 2);
  }
  EXPECT_EQ(mapped("deepgemm_kernel"), 0u);
}

TEST_F(ModuleTest, FallsBackWhenTheFileHasGone) {
  const auto module = Module::load(source_, sample(DEEPGEMM_SAMPLE_2), directory_ / "absent");
  EXPECT_EQ(answer_of(module), 2);
}

TEST_F(ModuleTest, SaysWhatIsWrong) {
  Binary garbage;
  garbage.bytes.assign(1000, 'x');
  auto module = Module::load(source_, garbage, {});
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, DEEPGEMM_ERROR_COMPILE_FAILED);
  EXPECT_NE(module.error().message.find("ELF"), std::string::npos) << module.error().message;
  Source other = source_;
  other.symbols.push_back("deepgemm_kernel_missing");
  module = Module::load(other, sample(DEEPGEMM_SAMPLE_1), {});
  ASSERT_FALSE(module.ok());
  EXPECT_NE(module.error().message.find("deepgemm_kernel_missing"), std::string::npos);
}

TEST_F(ModuleTest, CarriesACubin) {
  Source source = source_;
  source.language = Language::kCuda;
  Binary cubin;
  cubin.bytes = {1, 2, 3};
  const auto module = Module::load(source, cubin, {});
  ASSERT_TRUE(module.ok());
  EXPECT_EQ((*module)->cubin(), cubin.bytes);
  EXPECT_EQ((*module)->symbol("deepgemm_kernel_answer"), nullptr);
}

// In a process of its own, in which a directory can be mounted that executes nothing. 0: the kernel
// was loaded all the same, 77: mounting is not allowed here.
int load_where_nothing_executes(const std::string& directory, const Source& source) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", directory.c_str(), "tmpfs", MS_NOEXEC, "mode=0700") != 0) {
    return 77;
  }
  const std::string path = directory + "/kernel.bin";
  fs::copy_file(DEEPGEMM_SAMPLE_1, path);
  const auto module = Module::load(source, sample(DEEPGEMM_SAMPLE_1), path);
  if (!module.ok()) return 1;
  if (mapped(path) != 0) return 2;
  auto* answer = reinterpret_cast<int (*)()>((*module)->symbol("deepgemm_kernel_answer"));
  return answer() == 1 ? 0 : 3;
}

TEST_F(ModuleTest, LoadsFromADirectoryThatExecutesNothing) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(load_where_nothing_executes(directory_.path(), source_));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "not allowed to mount a file system";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace deepgemm::jit
