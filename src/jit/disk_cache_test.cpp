#include "jit/disk_cache.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <set>
#include <thread>

#include "jit/cache_admin.hpp"
#include "jit/disk_cache_fixture.hpp"
#include "jit/faulty_files.hpp"
#include "jit/log_capture.hpp"

namespace deepgemm::jit {
namespace {

TEST_F(DiskCacheTest, KeepsABinaryWithItsDescription) {
  DiskCache cache(settings());
  EXPECT_EQ(find(cache, source_), "miss");
  EXPECT_EQ(publish(cache, source_, "code"), entry_of(source_) + "/kernel.bin");
  DiskCache later(settings());
  const auto hit = later.find(source_, later.key_of(source_, kCompiler));
  ASSERT_TRUE(hit.has_value());
  EXPECT_EQ(text_of(hit->binary), "code");
  EXPECT_EQ(hit->binary.log, "a note");
  EXPECT_EQ(hit->compiler.version, "12.2");
  EXPECT_EQ(files_in("tmp"), 0u);
  const std::string listing = read_text(entry_of(source_) + "/source");
  EXPECT_NE(listing.find("deepgemm_kernel_answer"), std::string::npos);
  EXPECT_NE(listing.find("kAnswer = 1"), std::string::npos);
  struct stat status = {};
  ASSERT_EQ(::stat(root_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0700u);
}

TEST_F(DiskCacheTest, KeyIsTheContentAndNothingElse) {
  const base::Hash128 key = cache_key(source_, kCompiler, "1");
  std::set<std::string> keys = {key.hex()};
  const auto differs = [&](const Source& source, const CompilerIdentity& compiler = kCompiler,
                           const std::string& version = "1") {
    return keys.insert(cache_key(source, compiler, version).hex()).second;
  };
  Source other = source_;
  other.text += " ";
  EXPECT_TRUE(differs(other));
  other = source_, other.headers[0].text.back() = '\t';
  EXPECT_TRUE(differs(other));
  other = source_, other.headers[0].name = "b.hpp";
  EXPECT_TRUE(differs(other));
  other = source_, other.headers.push_back({"c.hpp", ""});
  EXPECT_TRUE(differs(other));
  other = source_, other.options = {"-mavx2"};
  EXPECT_TRUE(differs(other));
  other = source_, other.options = {"-mavx", "2"};
  EXPECT_TRUE(differs(other));
  other = source_, other.arch = "avx2";
  EXPECT_TRUE(differs(other));
  other = source_, other.symbols = {"deepgemm_kernel_b"};
  EXPECT_TRUE(differs(other));
  other = source_, other.language = Language::kCuda;
  EXPECT_TRUE(differs(other));
  EXPECT_TRUE(differs(source_, {"g++", "12.3", "-O3"}));
  EXPECT_TRUE(differs(source_, {"clang++", "12.2", "-O3"}));
  EXPECT_TRUE(differs(source_, {"g++", "12.2", "-O2"}));
  EXPECT_TRUE(differs(source_, kCompiler, "2"));
  other = source_, other.name = "another name";
  EXPECT_FALSE(differs(other));
  EXPECT_EQ(key.hex().substr(0, 16), source_key(source_, "1"));
}

TEST_F(DiskCacheTest, MovesWithItsDirectory) {
  DiskCache cache(settings());
  publish(cache, source_, "code");
  const std::string moved = directory_ / "elsewhere with spaces";
  fs::rename(root_, moved);
  DiskCacheSettings there = settings();
  there.directory = moved;
  DiskCache second(there);
  EXPECT_EQ(find(second, source_), "code");
}

TEST_F(DiskCacheTest, FollowsALinkToItsDirectory) {
  fs::create_directory(directory_ / "real");
  fs::permissions(directory_ / "real", fs::perms::owner_all);
  fs::create_directory_symlink(directory_ / "real", root_);
  DiskCache cache(settings());
  EXPECT_NE(publish(cache, source_, "code"), "");
  EXPECT_EQ(find(cache, source_), "code");
}

TEST_F(DiskCacheTest, ReadsASecondLevelAndNeverWritesIt) {
  DiskCache builder(settings());
  publish(builder, source_, "shared code");
  DiskCacheSettings two = settings();
  two.directory = directory_ / "own";
  two.shared_directory = root_;
  DiskCache cache(two);
  EXPECT_EQ(find(cache, source_), "shared code");
  EXPECT_FALSE(fs::exists(directory_ / "own"));
  const Source other = answer_source(2);
  EXPECT_NE(publish(cache, other, "own code"), "");
  EXPECT_EQ(find(cache, other), "own code");
  EXPECT_FALSE(fs::exists(entry_of(other)));
  write_text(entry_of(source_) + "/kernel.bin", "damaged");
  LogCapture log;
  EXPECT_EQ(find(cache, source_), "miss");
  EXPECT_EQ(find(cache, source_), "miss");
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING), 1u);
  EXPECT_TRUE(fs::exists(entry_of(source_)));
}

TEST_F(DiskCacheTest, FindsTheSourceByAnyCompiler) {
  DiskCache cache(settings());
  EXPECT_FALSE(cache.find_by_any_compiler(source_).has_value());
  publish(cache, source_, "code");
  publish(cache, answer_source(2), "other");
  const auto hit = cache.find_by_any_compiler(source_);
  ASSERT_TRUE(hit.has_value());
  EXPECT_EQ(text_of(hit->binary), "code");
  EXPECT_FALSE(cache.find_by_any_compiler(answer_source(3)).has_value());
}

TEST_F(DiskCacheTest, KeepsItsSizeAndDropsWhatWasUsedLongestAgo) {
  DiskCacheSettings small = settings();
  small.size_limit = 40000;
  DiskCache cache(small);
  const std::string code(5000, 'x');
  for (int i = 0; i < 30; ++i) {
    publish(cache, answer_source(i), code);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(find(cache, answer_source(0)), code) << "used all the time, after " << i;
  }
  int64_t bytes = 0;
  for (const StoredEntry& entry : list_entries(system_files(), root_)) bytes += entry.bytes;
  EXPECT_LE(bytes, 40000 + 7000);
  EXPECT_GE(bytes, 20000);
  EXPECT_EQ(find(cache, answer_source(29)), code);
  EXPECT_EQ(find(cache, answer_source(1)), "miss");
  EXPECT_EQ(files_in("tmp"), 0u);
}

TEST_F(DiskCacheTest, BoundsTheEntriesSetAside) {
  DiskCache cache(settings());
  for (int i = 0; i < 20; ++i) {
    publish(cache, source_, "code");
    write_text(entry_of(source_) + "/kernel.bin", "");
    EXPECT_EQ(find(cache, source_), "miss");
  }
  EXPECT_LE(files_in("bad"), 8u);
}

TEST_F(DiskCacheTest, ToleratesATimeInTheFuture) {
  DiskCache cache(settings());
  publish(cache, source_, "code");
  const timespec future[2] = {{4000000000, 0}, {4000000000, 0}};
  ::utimensat(AT_FDCWD, (entry_of(source_) + "/meta.json").c_str(), future, 0);
  EXPECT_EQ(find(cache, source_), "code");
  const auto entries = list_entries(system_files(), root_);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_LT(entries[0].last_used_ns / 1000000000, 4000000000);  // touched: now
}

TEST_F(DiskCacheTest, LockIsHeldByOneAndReleased) {
  DiskCache cache(settings());
  publish(cache, source_, "code");
  const base::Hash128 key = cache.key_of(source_, kCompiler);
  {
    const WorkLock first = cache.lock(key);
    EXPECT_EQ(first.state(), WorkLock::State::kHeld);
    EXPECT_EQ(cache.lock(key).state(), WorkLock::State::kBusy);
  }
  EXPECT_EQ(cache.lock(key).state(), WorkLock::State::kHeld);
  EXPECT_EQ(files_in("lock"), 0u);
  DiskCacheSettings none = settings();
  none.directory.clear();
  EXPECT_EQ(DiskCache(none).lock(key).state(), WorkLock::State::kImpossible);
}

TEST_F(DiskCacheTest, WorksInMemoryOnlyWithOneWarning) {
  LogCapture log;
  DiskCacheSettings none;
  none.directory_reason = "HOME is read-only";
  DiskCache cache(none);
  EXPECT_EQ(publish(cache, source_, "code"), "");
  EXPECT_EQ(find(cache, source_), "miss");
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING), 1u);
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING, "HOME is read-only"), 1u);
  EXPECT_FALSE(cache.status().usable);
}

TEST_F(DiskCacheTest, CreatesItsDirectoryAgainWhenItWasRemoved) {
  DiskCache cache(settings());
  publish(cache, source_, "code");
  fs::remove_all(root_);
  EXPECT_FALSE(cache.status().usable);
  EXPECT_EQ(find(cache, source_), "miss");
  EXPECT_NE(publish(cache, source_, "code"), "");
  EXPECT_EQ(find(cache, source_), "code");
  EXPECT_TRUE(cache.status().usable);
}

TEST_F(DiskCacheTest, RefusesAFileForADirectory) {
  write_text(root_, "a file");
  LogCapture log;
  DiskCache cache(settings());
  EXPECT_EQ(find(cache, source_), "miss");
  EXPECT_EQ(publish(cache, source_, "code"), "");
  EXPECT_EQ(publish(cache, source_, "code"), "");
  EXPECT_FALSE(cache.status().usable);
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING), 2u) << log.all();  // one for reading, one for writing
  EXPECT_EQ(read_text(root_), "a file");
}

TEST_F(DiskCacheTest, FollowsTheEnvironmentAtEachOpening) {
  ASSERT_EQ(::setenv("DEEPGEMM_CACHE_DIR", (directory_ / "first").c_str(), 1), 0);
  DiskCache first(disk_cache_settings_from_environment());
  EXPECT_EQ(first.status().directory, fs::canonical(directory_ / "first").string());
  ASSERT_EQ(::setenv("DEEPGEMM_CACHE_DIR", (directory_ / "second/deeper").c_str(), 1), 0);
  DiskCache cache(disk_cache_settings_from_environment());
  EXPECT_TRUE(cache.status().usable);
  EXPECT_NE(cache.status().reason.find("DEEPGEMM_CACHE_DIR"), std::string::npos);
  EXPECT_NE(publish(cache, source_, "code"), "");
  write_text(directory_ / "file", "");
  ASSERT_EQ(::setenv("DEEPGEMM_CACHE_DIR", (directory_ / "file").c_str(), 1), 0);
  DiskCache refused(disk_cache_settings_from_environment());
  ::unsetenv("DEEPGEMM_CACHE_DIR");
  EXPECT_FALSE(refused.status().usable);
  EXPECT_NE(refused.status().reason.find("not a directory"), std::string::npos);
}

TEST_F(DiskCacheTest, AdministrationListsVerifiesPrunesAndClears) {
  DiskCache cache(settings());
  for (int i = 0; i < 4; ++i) publish(cache, answer_source(i), std::string(1000, 'x'));
  FileOps& files = system_files();
  EXPECT_EQ(list_entries(files, root_).size(), 4u);
  write_text(entry_of(answer_source(2)) + "/kernel.bin", "damaged");
  size_t faults = 0;
  for (const CheckedEntry& entry : verify_entries(files, root_)) {
    if (entry.fault.empty()) {
      EXPECT_EQ(entry.meta.compiler.version, "12.2");
      EXPECT_EQ(entry.meta.name, "answer");
    } else {
      ++faults;
      EXPECT_NE(entry.fault.find("bytes"), std::string::npos);
    }
  }
  EXPECT_EQ(faults, 1u);
  write_text(root_ + "/mine", "foreign");
  fs::create_directories(root_ + "/tmp/mine");
  fs::create_directories(root_ + "/1.2.3/generic/mine");
  const Removed pruned = prune_entries(files, root_, 3000);
  EXPECT_GE(pruned.entries, 2u);
  EXPECT_TRUE(pruned.failures.empty());
  const Removed cleared = clear_entries(files, root_);
  EXPECT_EQ(pruned.entries + cleared.entries, 4u);
  EXPECT_TRUE(list_entries(files, root_).empty());
  EXPECT_TRUE(fs::exists(root_ + "/mine"));
  EXPECT_TRUE(fs::exists(root_ + "/tmp/mine"));
  EXPECT_TRUE(fs::exists(root_ + "/1.2.3/generic/mine"));
  EXPECT_TRUE(list_entries(files, directory_ / "absent").empty());
  EXPECT_EQ(clear_entries(files, directory_ / "absent").entries, 0u);
}

TEST_F(DiskCacheTest, AdministrationSaysWhatItCannotRemove) {
  DiskCache cache(settings());
  publish(cache, source_, "code");
  FaultyFiles files([](const std::string& call, const std::string&) {
    return call == "rename" || call == "remove" || call == "mkdir" ? EROFS : 0;
  });
  const Removed removed = clear_entries(files, root_);
  EXPECT_EQ(removed.entries, 0u);
  ASSERT_EQ(removed.failures.size(), 1u);
  EXPECT_NE(removed.failures[0].find("Read-only"), std::string::npos);
}

}  // namespace
}  // namespace deepgemm::jit
