// deepgemm pack: kernels ahead of time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepgemm/cli_testing.hpp"
#include "jit/pack_file.hpp"

namespace deepgemm::cli {
namespace {

using testing::HasSubstr;

constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "vocab_size": 256,
        "num_attention_heads": 2, "torch_dtype": "bfloat16"})";

std::string config() {
  const std::string path = scratch("config.json");
  write_text(path, kConfig);
  return path;
}

TEST(PackVerb, ShowsAndChecksAPack) {
  const std::string path = scratch("one.dgpack");
  jit::PackedKernel kernel;
  kernel.source.language = jit::Language::kCuda;
  kernel.source.name = "some_kernel";
  kernel.source.arch = "sm_90a";
  kernel.source.symbols = {"deepgemm_kernel_x"};
  kernel.compiler = {"nvrtc", "13.0", ""};
  kernel.binary.bytes.assign(100, 7);
  ASSERT_TRUE(jit::write_pack(path, {kernel}).ok());
  const Outcome list = run_program("pack --list '" + path + "'");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("some_kernel"));
  EXPECT_THAT(list.out, HasSubstr("sm_90a"));
  EXPECT_THAT(run_program("pack --verify '" + path + "'").out,
              HasSubstr("1 of 1 kernels are whole"));
  std::string damaged = read_text(path);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_text(path, damaged);
  const Outcome bad = run_program("pack --verify '" + path + "'");
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, HasSubstr("0 of 1"));
}

TEST(PackVerb, NamesWhatIsMissingOrWrong) {
  const std::string model = "--model '" + config() + "' --output '" + scratch("x.dgpack") + "' ";
  struct Case {
    std::string arguments;
    int code;
    const char* part;
  };
  const Case cases[] = {
      {"pack", 2, "--output"},
      {"pack --output x", 2, "--model"},
      {"pack " + model, 2, "--arch"},
      {"pack " + model + "--arch 31", 2, "--arch 31"},
      {"pack " + model + "--device abacus", 2, "abacus"},
      {"pack " + model + "--device h200 --dtype int3", 2, "int3"},
      {"pack " + model + "--device h200 --tp 3", 2, "num_attention_heads"},
      {"pack --model /nowhere/config.json --output x --device h200", 4, "/nowhere/config.json"},
      {"pack --list /nowhere/x.dgpack", 4, "/nowhere/x.dgpack"},
  };
  for (const Case& each : cases) {
    const Outcome outcome = run_program(each.arguments);
    EXPECT_EQ(outcome.code, each.code) << each.arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(each.part)) << each.arguments;
  }
}

// With NVRTC where there is one: then a machine without compiler plans from the pack alone.
TEST(PackVerb, CompilesAModelForSeveralChips) {
  const std::string path = scratch("model.dgpack");
  const std::string cache = "DEEPGEMM_CACHE_DIR='" + scratch("pack cache") + "' ";
  const Outcome made = run_program(
      "pack --model '" + config() + "' --device a100,h200 --max-m 2 " + "--output '" + path + "'",
      cache);
  if (made.err.find("compiler") != std::string::npos) GTEST_SKIP() << made.err;
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("on 2 chips"));
  const auto pack = jit::PackFile::open(path);
  ASSERT_TRUE(pack.ok());
  bool a100 = false, h200 = false;
  for (const auto& entry : (*pack)->entries()) {
    a100 = a100 || entry.meta.arch == "sm_80";
    h200 = h200 || entry.meta.arch == "sm_90a";
    EXPECT_GT(entry.meta.kernel_bytes, 1000);
  }
  EXPECT_TRUE(a100 && h200);
}

}  // namespace
}  // namespace deepgemm::cli
