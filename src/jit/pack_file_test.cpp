#include "jit/pack_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "base/temporary_directory.hpp"
#include "jit/service.hpp"

namespace deepgemm::jit {
namespace {

using ::testing::HasSubstr;

Source source(const std::string& text) {
  Source made;
  made.language = Language::kCuda;
  made.name = "kernel " + text;
  made.text = text;
  made.arch = "sm_90a";
  made.symbols = {"deepgemm_kernel_" + text};
  return made;
}

PackedKernel kernel(const std::string& text, const std::string& bytes) {
  PackedKernel made{source(text), {"nvrtc", "13.0", ""}, {}};
  made.binary.bytes.assign(bytes.begin(), bytes.end());
  return made;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class Packs : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "a.dgpack") const {
    return folder_.path() + "/" + name;
  }
  void make(const std::vector<PackedKernel>& kernels, const std::string& name = "a.dgpack") {
    const auto written = write_pack(path(name), kernels);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  base::TemporaryDirectory folder_;
};

TEST_F(Packs, GiveBackTheKernelOfASource) {
  make({kernel("one", "binary of one"), kernel("two", std::string("\0\xFF", 2)),
        kernel("none", "")});
  const auto pack = PackFile::open(path());
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  EXPECT_EQ((*pack)->entries().size(), 3U);
  const PackFile::Entry* entry = (*pack)->find(source("one"));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->meta.name, "kernel one");
  EXPECT_EQ(entry->meta.compiler.kind, "nvrtc");
  const auto binary = (*pack)->read(*entry);
  ASSERT_TRUE(binary.ok());
  EXPECT_EQ(std::string(binary->bytes.begin(), binary->bytes.end()), "binary of one");
  EXPECT_EQ((*pack)->read(*(*pack)->find(source("two")))->bytes.size(), 2U);
  EXPECT_EQ((*pack)->find(source("three")), nullptr);
  Source other_chip = source("one");
  other_chip.arch = "sm_80";
  EXPECT_EQ((*pack)->find(other_chip), nullptr);
}

TEST_F(Packs, AreTheSameBytesInWhateverOrderKernelsCome) {
  make({kernel("one", "1"), kernel("two", "2"), kernel("one", "again")}, "a.dgpack");
  make({kernel("two", "2"), kernel("one", "1")}, "b.dgpack");
  EXPECT_EQ(content(path("a.dgpack")), content(path("b.dgpack")));
}

TEST_F(Packs, OfNothingAreWhole) {
  make({});
  const auto pack = PackFile::open(path());
  ASSERT_TRUE(pack.ok());
  EXPECT_TRUE((*pack)->entries().empty());
}

TEST_F(Packs, ThatEndEarlyAreRefusedAtEveryByte) {
  make({kernel("one", "some bytes"), kernel("two", "more bytes")});
  const std::string whole = content(path());
  for (size_t size = 0; size < whole.size(); ++size) {
    write(path(), whole.substr(0, size));
    const auto pack = PackFile::open(path());
    ASSERT_FALSE(pack.ok()) << size;
    EXPECT_EQ(pack.error().code, DEEPGEMM_ERROR_FORMAT) << size;
    EXPECT_THAT(pack.error().message, HasSubstr("a.dgpack"));
  }
}

TEST_F(Packs, WithAnyByteChangedGiveNoWrongKernel) {
  make({kernel("one", "some bytes")});
  const std::string whole = content(path());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    write(path(), damaged);
    const auto pack = PackFile::open(path());
    if (!pack.ok()) continue;
    const PackFile::Entry* entry = (*pack)->find(source("one"));
    EXPECT_TRUE(entry == nullptr || !(*pack)->read(*entry).ok()) << "byte " << at;
  }
}

TEST_F(Packs, ThatOthersCanWriteAreNotBelieved) {
  make({kernel("one", "1")});
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  const auto pack = PackFile::open(path());
  ASSERT_FALSE(pack.ok());
  EXPECT_THAT(pack.error().message, HasSubstr("can be written by others"));
}

TEST_F(Packs, ThatAreMissingOrNoFileSayWhy) {
  EXPECT_EQ(PackFile::open(path("absent")).error().code, DEEPGEMM_ERROR_IO);
  EXPECT_EQ(PackFile::open(folder_.path()).error().code, DEEPGEMM_ERROR_FORMAT);
  write(path("text"), "this is a text of more than thirty-two bytes, and no pack");
  EXPECT_THAT(PackFile::open(path("text")).error().message, HasSubstr("DGPACK01"));
}

TEST_F(Packs, AreAskedInTheirOrder) {
  make({kernel("one", "first")}, "a.dgpack");
  make({kernel("one", "second"), kernel("two", "2")}, "b.dgpack");
  write(path("c.txt"), "not looked at");
  const auto folder = open_packs(folder_.path());
  EXPECT_EQ(folder->packs.size(), 2U);
  EXPECT_TRUE(folder->notes.empty());
  EXPECT_EQ(folder->find(source("one"))->pack->path(), path("a.dgpack"));
  const auto list = open_packs(path("b.dgpack") + "::/nowhere/x:" + path("a.dgpack"));
  EXPECT_EQ(list->packs.size(), 2U);
  EXPECT_EQ(list->notes.size(), 1U);
  EXPECT_EQ(list->find(source("one"))->pack->path(), path("b.dgpack"));
  EXPECT_FALSE(list->find(source("three")));
}

TEST_F(Packs, AreReadByManyThreads) {
  std::vector<PackedKernel> kernels;
  for (int i = 0; i < 50; ++i) kernels.push_back(kernel(std::to_string(i), std::string(5000, 'x')));
  make(kernels);
  const auto pack = *PackFile::open(path());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (const PackFile::Entry& entry : pack->entries()) {
        const auto binary = pack->read(entry);
        if (!binary.ok() || binary->bytes.size() != 5000) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Without compiler and cache: the pack is enough.
TEST_F(Packs, ServeWhereCompilingIsForbidden) {
  make({kernel("served", "a cubin")});
  setenv("DEEPGEMM_JIT", "0", 1);
  setenv("DEEPGEMM_CACHE_DIR", folder_.path().c_str(), 1);
  Service service;
  const auto missing = service.build(source("served"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, DEEPGEMM_ERROR_NOT_PREPARED);
  EXPECT_THAT(missing.error().message, HasSubstr("DEEPGEMM_PACK_PATH"));
  setenv("DEEPGEMM_PACK_PATH", path().c_str(), 1);
  const auto module = service.build(source("served"));
  ASSERT_TRUE(module.ok()) << module.error().message;
  EXPECT_EQ((*module)->cubin().size(), 7U);
  EXPECT_EQ(*service.build(source("served")), *module) << "from memory";
  EXPECT_EQ(service.counters().pack_hits, 1U);
  service.reject(source("served"), "the driver refused it");
  EXPECT_FALSE(service.build(source("served")).ok());
  for (const char* name : {"DEEPGEMM_JIT", "DEEPGEMM_CACHE_DIR", "DEEPGEMM_PACK_PATH"}) {
    unsetenv(name);
  }
}

}  // namespace
}  // namespace deepgemm::jit
