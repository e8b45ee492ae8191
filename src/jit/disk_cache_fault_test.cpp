// Damaged and foreign entries, and file systems that fail.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "jit/disk_cache_fixture.hpp"
#include "jit/faulty_files.hpp"
#include "jit/log_capture.hpp"

namespace deepgemm::jit {
namespace {

class DiskCacheFaultTest : public DiskCacheTest {};

// Damages of a published entry, by name.
using Damage = void (*)(const std::string& entry);
const std::map<std::string, Damage> kDamages = {
    {"empty kernel", [](const std::string& entry) { write_text(entry + "/kernel.bin", ""); }},
    {"half a kernel", [](const std::string& entry) { fs::resize_file(entry + "/kernel.bin", 50); }},
    {"flipped byte",
     [](const std::string& entry) {
       std::string text = read_text(entry + "/kernel.bin");
       text[40] ^= 1;
       write_text(entry + "/kernel.bin", text);
     }},
    {"no kernel", [](const std::string& entry) { fs::remove(entry + "/kernel.bin"); }},
    {"directory for a kernel",
     [](const std::string& entry) {
       fs::remove(entry + "/kernel.bin");
       fs::create_directories(entry + "/kernel.bin/inside");
     }},
    {"link for a kernel",
     [](const std::string& entry) {
       fs::rename(entry + "/kernel.bin", entry + "/other");
       fs::create_symlink("other", entry + "/kernel.bin");
     }},
    {"pipe for a kernel",
     [](const std::string& entry) {
       fs::remove(entry + "/kernel.bin");
       ASSERT_EQ(::mkfifo((entry + "/kernel.bin").c_str(), 0600), 0);
     }},
    {"empty description", [](const std::string& entry) { write_text(entry + "/meta.json", ""); }},
    {"half a description",
     [](const std::string& entry) { fs::resize_file(entry + "/meta.json", 100); }},
    {"description of another form",
     [](const std::string& entry) { write_text(entry + "/meta.json", "{\"format\": 2}"); }},
    {"description of wrong types",
     [](const std::string& entry) {
       write_text(entry + "/meta.json", "{\"format\": 1, \"key\": 3}");
     }},
    {"file for an entry",
     [](const std::string& entry) {
       fs::remove_all(entry);
       write_text(entry, "x");
     }},
};

TEST_F(DiskCacheFaultTest, SetsADamagedEntryAsideWithOneWarningAndTakesANewOne) {
  for (const auto& [name, damage] : kDamages) {
    SCOPED_TRACE(name);
    fs::remove_all(root_);
    DiskCache cache(settings());
    ASSERT_NE(publish(cache, source_, std::string(100, 'a')), "");
    damage(entry_of(source_));
    LogCapture log;
    DiskCache later(settings());
    EXPECT_EQ(find(later, source_), "miss");
    EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING), 1u) << log.all();
    EXPECT_EQ(files_in("bad"), 1u);
    EXPECT_NE(publish(later, source_, "new"), "");
    EXPECT_EQ(find(later, source_), "new");
    EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING), 1u) << log.all();
  }
}

TEST_F(DiskCacheFaultTest, EveryFlippedByteIsNoticedOrHarmless) {
  DiskCache cache(settings());
  const std::string code(64, 'c');
  publish(cache, source_, code);
  const std::string pristine = directory_ / "pristine";
  fs::copy(entry_of(source_), pristine, fs::copy_options::recursive);
  for (const char* file : {"/meta.json", "/kernel.bin"}) {
    const std::string good = read_text(pristine + file);
    for (size_t i = 0; i < good.size(); i += 5) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 7)));
      write_text(entry_of(source_) + file, bad);
      const std::string found = find(cache, source_);
      EXPECT_TRUE(found == "miss" || found == code) << file << " byte " << i;
      fs::remove_all(entry_of(source_));
      fs::copy(pristine, entry_of(source_), fs::copy_options::recursive);
    }
  }
  EXPECT_EQ(find(cache, source_), code);
}

TEST_F(DiskCacheFaultTest, NoticesTwoEntriesThatWereSwapped) {
  DiskCache cache(settings());
  const Source other = answer_source(2);
  publish(cache, source_, "one");
  publish(cache, other, "two");
  fs::rename(entry_of(source_), directory_ / "x");
  fs::rename(entry_of(other), entry_of(source_));
  fs::rename(directory_ / "x", entry_of(other));
  EXPECT_EQ(find(cache, source_), "miss");
  EXPECT_EQ(find(cache, other), "miss");
}

TEST_F(DiskCacheFaultTest, NoticesAnEntryOfAnotherArchitecture) {
  DiskCache cache(settings());
  Source old_gpu = source_, new_gpu = source_;
  old_gpu.arch = "sm_80";
  new_gpu.arch = "sm_90";
  publish(cache, old_gpu, "code of sm_80");
  fs::create_directories(fs::path(entry_of(new_gpu)).parent_path());
  fs::copy(entry_of(old_gpu), entry_of(new_gpu), fs::copy_options::recursive);
  LogCapture log;
  EXPECT_EQ(find(cache, new_gpu), "miss");
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING), 1u);

  // Even with the right key in it.
  fs::remove_all(entry_of(new_gpu));
  fs::copy(entry_of(old_gpu), entry_of(new_gpu), fs::copy_options::recursive);
  base::Result<EntryMeta> meta = read_meta(read_text(entry_of(new_gpu) + "/meta.json"));
  ASSERT_TRUE(meta.ok());
  meta->key = cache_key(new_gpu, kCompiler, "1.2.3").hex();
  write_text(entry_of(new_gpu) + "/meta.json", write_meta(*meta));
  EXPECT_EQ(find(cache, new_gpu), "miss");
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING, "sm_80"), 1u) << log.all();
  EXPECT_EQ(find(cache, old_gpu), "code of sm_80");
}

TEST_F(DiskCacheFaultTest, NeverReadsWhatOthersCanWrite) {
  DiskCache cache(settings());
  publish(cache, source_, "code");
  const std::string entry = entry_of(source_);
  LogCapture log;
  for (const std::string& path : {root_, entry, entry + "/kernel.bin", entry + "/meta.json"}) {
    SCOPED_TRACE(path);
    struct stat status = {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    for (const mode_t more : {0020u, 0002u}) {
      ASSERT_EQ(::chmod(path.c_str(), (status.st_mode & 0777u) | more), 0);
      EXPECT_EQ(find(cache, source_), "miss");
    }
    ASSERT_EQ(::chmod(path.c_str(), status.st_mode & 0777u), 0);
    EXPECT_EQ(find(cache, source_), "code");
  }
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING, "can be written by others"), 2u) << log.all();
}

// As root one can give files away, and only as root.
TEST_F(DiskCacheFaultTest, NeverReadsWhatBelongsToOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give files to another user";
  DiskCache cache(settings());
  publish(cache, source_, "code");
  const std::string entry = entry_of(source_);
  for (const std::string& path : {root_, entry, entry + "/kernel.bin", entry + "/meta.json"}) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
    EXPECT_EQ(find(cache, source_), "miss") << path;
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
    EXPECT_EQ(find(cache, source_), "code") << path;
  }
}

// What a file system can answer, and where; the cache then serves from memory or takes another
// turn.
struct FaultCase {
  const char* call;
  const char* place;  // part of the path
  int error;
  int times;        // how often before it works
  bool kept;        // is the entry found afterwards?
  size_t warnings;  // at most
};
const FaultCase kFaults[] = {
    {"rename", "/generic/", EEXIST, 1000, false, 0},
    {"rename", "/generic/", ENOTEMPTY, 1000, false, 0},
    {"rename", "/generic/", EBUSY, 2, true, 0},
    {"rename", "/generic/", EBUSY, 1000, false, 1},
    {"rename", "/generic/", ESTALE, 1, true, 0},
    {"rename", "/generic/", ENOENT, 1, true, 0},
    {"rename", "/generic/", EROFS, 1000, false, 1},
    {"rename", "/generic/", EXDEV, 1000, false, 1},
    {"write", "kernel.bin", ENOSPC, 1000, false, 1},
    {"write", "meta.json", ENOSPC, 1000, false, 1},
    {"write", "source", EDQUOT, 1000, false, 1},
    {"write", "kernel.bin", EIO, 1000, false, 1},
    {"mkdir", "", EROFS, 1000, false, 1},
    {"mkdir", "/tmp/", ENOSPC, 1000, false, 1},
    {"mkdir", "/generic", EACCES, 1000, false, 1},
    {"touch", "", EROFS, 1000, true, 0},
    {"list", "", EIO, 1000, true, 0},
    {"read", "meta.json", ESTALE, 1, true, 0},
    {"read", "kernel.bin", ESTALE, 1, true, 0},
    {"read", "kernel.bin", ESTALE, 1000, false, 1},
    {"read", "kernel.bin", EIO, 1000, false, 1},
    {"inspect", "/generic/", ENOENT, 2, true, 0},  // the new name shows late
    {"inspect", "", ESTALE, 1000, false, 2},
};

TEST_F(DiskCacheFaultTest, NoFaultOfTheFileSystemIsAnError) {
  for (const FaultCase& fault : kFaults) {
    SCOPED_TRACE(std::string(fault.call) + " " + fault.place + ": " + std::strerror(fault.error));
    fs::remove_all(root_);
    int left = fault.times;
    FaultyFiles files([&](const std::string& call, const std::string& path) {
      if (call != fault.call || path.find(fault.place) == std::string::npos || left <= 0) return 0;
      --left;
      return fault.error;
    });
    LogCapture log;
    DiskCache cache(settings(&files));
    for (int i = 0; i < 3; ++i) {
      publish(cache, source_, "code");
      const std::string found = find(cache, source_);
      EXPECT_TRUE(found == "code" || found == "miss");
      if (i == 2) {
        EXPECT_EQ(found, fault.kept ? "code" : "miss");
      }
    }
    EXPECT_LE(log.count(DEEPGEMM_LOG_WARNING), fault.warnings) << log.all();
    EXPECT_EQ(log.count(DEEPGEMM_LOG_ERROR), 0u);
    EXPECT_EQ(files_in("bad"), 0u);           // a fault of the system says nothing about an entry
    if (std::string(fault.call) != "list") {  // then they stay until they are old
      EXPECT_EQ(files_in("tmp"), 0u);
    }
  }
}

TEST_F(DiskCacheFaultTest, ServesAReadOnlyDirectory) {
  DiskCache writer(settings());
  publish(writer, source_, "code");
  FaultyFiles files([](const std::string& call, const std::string&) {
    const bool reads = call == "inspect" || call == "read" || call == "list";
    return reads ? 0 : EROFS;
  });
  LogCapture log;
  DiskCache cache(settings(&files));
  EXPECT_EQ(find(cache, source_), "code");
  EXPECT_EQ(publish(cache, answer_source(2), "other"), "");
  EXPECT_EQ(publish(cache, answer_source(3), "other"), "");
  EXPECT_EQ(log.count(DEEPGEMM_LOG_WARNING), 1u) << log.all();
  write_text(entry_of(source_) + "/kernel.bin", "");
  EXPECT_EQ(find(cache, source_), "miss");
}

TEST_F(DiskCacheFaultTest, ReallyFullFileSystemKeepsNothingBehind) {
  FaultyFiles files([used = 0](const std::string& call, const std::string&) mutable {
    return call == "write" && ++used > 4 ? ENOSPC : 0;
  });
  DiskCache cache(settings(&files));
  EXPECT_NE(publish(cache, source_, "code"), "");
  EXPECT_EQ(publish(cache, answer_source(2), "other"), "");
  EXPECT_EQ(find(cache, source_), "code");
  EXPECT_EQ(files_in("tmp"), 0u);
}

}  // namespace
}  // namespace deepgemm::jit
