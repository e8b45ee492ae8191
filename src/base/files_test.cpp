#include "base/files.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_directory.hpp"

namespace deepgemm::base {
namespace {

void write_plain(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string text_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
void expect_io_error(const Result<T>& result, const std::string& part) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_IO);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(ReadFile, GivesEveryByte) {
  const TemporaryDirectory directory;
  const std::string content("a\0b\r\n\xFF", 6);
  write_plain(directory / "data", content);
  EXPECT_EQ(*read_file(directory / "data", 6), content);
  EXPECT_EQ(text_of(*MappedFile::open(directory / "data", 6)), content);
}

TEST(ReadFile, AcceptsEmptyFilesAndThoseWithoutAStatedSize) {
  const TemporaryDirectory directory;
  write_plain(directory / "empty", "");
  EXPECT_EQ(*read_file(directory / "empty", 0), "");
  EXPECT_TRUE(MappedFile::open(directory / "empty", 0)->bytes().empty());
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20)->empty());
}

TEST(ReadFile, RefusesWhatIsLargerThanTheLimit) {
  const TemporaryDirectory directory;
  write_plain(directory / "big", std::string(1001, 'x'));
  expect_io_error(read_file(directory / "big", 1000), "1001 bytes");
  expect_io_error(MappedFile::open(directory / "big", 1000), "1001 bytes");
  expect_io_error(read_file("/proc/self/status", 10), "more than the 10 bytes");
}

TEST(ReadFile, NamesWhatIsInTheWay) {
  const TemporaryDirectory directory;
  expect_io_error(read_file(directory / "none", 10), "No such file");
  expect_io_error(MappedFile::open(directory / "none", 10), directory / "none");
  expect_io_error(read_file(directory.path(), 10), "is a directory");
  expect_io_error(MappedFile::open(directory.path(), 10), "is a directory");
  write_plain(directory / "file", "");
  expect_io_error(read_file(directory / "file/below", 10), "Not a directory");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_io_error(read_file(directory / "pipe", 10), "no regular file");  // and does not hang
}

TEST(MappedFile, MovesItsMapping) {
  const TemporaryDirectory directory;
  write_plain(directory / "one", "first");
  write_plain(directory / "two", "second");
  Result<MappedFile> one = MappedFile::open(directory / "one", 100);
  Result<MappedFile> two = MappedFile::open(directory / "two", 100);
  MappedFile moved = std::move(*one);
  EXPECT_EQ(text_of(moved), "first");
  EXPECT_TRUE(one->bytes().empty());
  moved = std::move(*two);
  EXPECT_EQ(text_of(moved), "second");
}

TEST(WriteFileAtomic, ReplacesTheContentAndLeavesNothingBeside) {
  const TemporaryDirectory directory;
  const std::string path = directory / "with space 'quote' \xC3\xA9";
  ASSERT_TRUE(write_file_atomic(path, std::string(100000, 'a')).ok());
  ASSERT_TRUE(write_file_atomic(path, "b").ok());
  EXPECT_EQ(*read_file(path, 10), "b");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(WriteFileAtomic, KeepsTheOldFileOpenForItsReaders) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_file_atomic(directory / "file", "old").ok());
  const Result<MappedFile> reader = MappedFile::open(directory / "file", 100);
  ASSERT_TRUE(write_file_atomic(directory / "file", "new").ok());
  EXPECT_EQ(text_of(*reader), "old");
}

TEST(WriteFileAtomic, NamesWhatIsInTheWayAndCleansUp) {
  const TemporaryDirectory directory;
  expect_io_error(write_file_atomic(directory / "none/file", "x"), "No such file");
  ASSERT_EQ(::mkdir((directory / "taken").c_str(), 0700), 0);
  expect_io_error(write_file_atomic(directory / "taken", "x"), "directory");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
  expect_io_error(write_file_atomic("/proc/deepgemm", "x"), "/proc/deepgemm");
}

class CacheDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"DEEPGEMM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = ::getenv(name);
      saved_.emplace_back(name, value == nullptr ? "" : value);
      ::unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) ::setenv(name, value.c_str(), 1);
  }

  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  const TemporaryDirectory directory_;
  std::vector<std::pair<const char*, std::string>> saved_;
};

TEST_F(CacheDirectoryTest, IsMemoryOnlyWithoutAnyVariable) {
  const CacheDirectory found = resolve_cache_directory();
  EXPECT_EQ(found.path, "");
  EXPECT_FALSE(found.usable);
  EXPECT_NE(found.reason.find("HOME"), std::string::npos);
}

TEST_F(CacheDirectoryTest, IsCreatedForThisUserAlone) {
  set("HOME", directory_ / "home");
  const CacheDirectory found = resolve_cache_directory();
  EXPECT_EQ(found.path, directory_ / "home/.cache/deepgemm");
  EXPECT_TRUE(found.usable) << found.reason;
  EXPECT_EQ(found.source, "HOME");
  EXPECT_EQ(found.reason, "");
  struct stat status = {};
  ASSERT_EQ(::stat(found.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0700u);
  EXPECT_TRUE(std::filesystem::is_empty(found.path));  // the probe is gone
}

TEST_F(CacheDirectoryTest, PrefersTheExplicitSettingThenXdg) {
  set("HOME", directory_ / "home");
  set("XDG_CACHE_HOME", directory_ / "xdg");
  EXPECT_EQ(resolve_cache_directory().path, directory_ / "xdg/deepgemm");
  set("DEEPGEMM_CACHE_DIR", directory_ / "own");
  EXPECT_EQ(resolve_cache_directory().path, directory_ / "own");
  EXPECT_EQ(resolve_cache_directory().source, "DEEPGEMM_CACHE_DIR");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "home"));
}

TEST_F(CacheDirectoryTest, DoesNotReplaceAnExplicitSettingThatFails) {
  set("HOME", directory_ / "home");
  write_plain(directory_ / "file", "");
  for (const std::string& bad : {directory_ / "file", directory_ / "file/below",
                                 std::string("/proc/deepgemm"), std::string("~/cache")}) {
    set("DEEPGEMM_CACHE_DIR", bad);
    const CacheDirectory found = resolve_cache_directory();
    EXPECT_FALSE(found.usable) << bad;
    EXPECT_EQ(found.path, bad);
    EXPECT_EQ(found.source, "DEEPGEMM_CACHE_DIR");
    EXPECT_NE(found.reason.find("DEEPGEMM_CACHE_DIR"), std::string::npos) << found.reason;
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "home"));
}

TEST_F(CacheDirectoryTest, PassesOverADefaultPlaceThatFailsAndSaysSo) {
  write_plain(directory_ / "file", "");
  set("XDG_CACHE_HOME", directory_ / "file");
  set("HOME", directory_ / "home");
  const CacheDirectory found = resolve_cache_directory();
  EXPECT_TRUE(found.usable);
  EXPECT_EQ(found.source, "HOME");
  EXPECT_NE(found.reason.find("XDG_CACHE_HOME"), std::string::npos) << found.reason;

  set("HOME", "/proc");
  const CacheDirectory none = resolve_cache_directory();
  EXPECT_EQ(none.path, "");
  EXPECT_FALSE(none.usable);
  EXPECT_NE(none.reason.find("; HOME"), std::string::npos) << none.reason;
}

TEST_F(CacheDirectoryTest, SeesADirectoryThatAppearsLater) {
  write_plain(directory_ / "later", "");
  set("DEEPGEMM_CACHE_DIR", directory_ / "later");
  EXPECT_FALSE(resolve_cache_directory().usable);
  std::filesystem::remove(directory_ / "later");
  EXPECT_TRUE(resolve_cache_directory().usable);
}

}  // namespace
}  // namespace deepgemm::base
