// Verbs that compute: run, verify, bench and demo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "deepgemm/cli_testing.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace deepgemm::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kSample = DEEPGEMM_SOURCE "/data/sample/smollm2_layer.safetensors";

io::TensorView view_of(const std::vector<float>& values, std::vector<int64_t> shape) {
  return {io::DType::kF32, std::move(shape), false, std::as_bytes(std::span(values))};
}

std::string npy_of(const std::string& name, const std::vector<float>& values,
                   std::vector<int64_t> shape, bool column_major = false) {
  io::TensorView view = view_of(values, std::move(shape));
  view.column_major = column_major;
  const std::string path = scratch(name);
  EXPECT_TRUE(io::write_npy(path, view).ok());
  return path;
}

std::vector<float> floats_of(const io::TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

TEST(Run, MultipliesMatricesOfFiles) {
  const std::string a = npy_of("a.npy", {1, 2, 3, 4, 5, 6}, {2, 3});
  const std::string b = npy_of("b.npy", {1, 0, 2, 0, 1, 3}, {2, 3});          // [N, K] for nt
  const std::string bt = npy_of("bt.npy", {1, 0, 2, 0, 1, 3}, {3, 2}, true);  // the transpose
  const std::string c = scratch("c.npy");
  for (const std::string& arguments : {"--B " + b, "--op nn --B " + bt, "nn --B " + bt}) {
    const Outcome outcome =
        run_program("run --A " + a + " " + arguments + " --verify --output " + c);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("contract kept"));
    const auto file = io::NpyFile::open(c);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensor().shape, (std::vector<int64_t>{2, 2}));
    EXPECT_THAT(floats_of(file->tensor()), testing::ElementsAre(7, 11, 16, 23));
  }
}

TEST(Run, TakesTensorsOfSafetensorsAndPacksWeights) {
  const std::string arguments = "run --A " + kSample + ":activations.attn_input --B " + kSample +
                                ":model.layers.12.self_attn.k_proj.weight";
  const std::string c = scratch("c.safetensors");
  const Outcome outcome =
      run_program(arguments + " --b int4_awq --group 64 --outlier fp16 --verify --output " + c);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("m=64 n=192 k=576"));
  EXPECT_THAT(outcome.out, HasSubstr("channels in FP16"));
  const auto file = io::SafetensorsFile::open(c);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->contents().tensors.at("C").shape, (std::vector<int64_t>{64, 192}));
}

TEST(Run, NamesTheNearestTensors) {
  const Outcome outcome = run_program("run --A " + kSample + ":activations.atn_input --B " +
                                      kSample + ":model.layers.12.self_attn.q_proj.weight");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("activations.attn_input"));
}

TEST(Run, EndsWithFourForFilesThatDoNotServe) {
  const std::string good = npy_of("good.npy", {1, 2}, {1, 2});
  write_text(scratch("cut.npy"), read_text(good).substr(0, 100));
  write_text(scratch("cut.safetensors"), read_text(kSample).substr(0, 5000));
  const std::vector<int64_t> integers = {1, 2};
  const io::TensorView wrong = {io::DType::kI64, {1, 2}, false, std::as_bytes(std::span(integers))};
  ASSERT_TRUE(io::write_npy(scratch("integers.npy"), wrong).ok());
  const std::vector<float> cube = {1, 2, 3, 4, 5, 6, 7, 8};
  npy_of("cube.npy", cube, {2, 2, 2});
  const std::pair<std::string, const char*> cases[] = {
      {scratch("missing.npy"), "missing.npy"}, {scratch("cut.npy"), "bytes"},
      {scratch("cut.safetensors:x"), "data"},  {scratch("integers.npy"), "I64"},
      {scratch("cube.npy"), "two dimensions"}, {scratch("matrix.txt"), "is neither"},
      {"/dev/null.npy", "null.npy"},
  };
  for (const auto& [file, reason] : cases) {
    const Outcome outcome = run_program("run --A '" + file + "' --B " + good);
    EXPECT_EQ(outcome.code, 4) << file << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
  const Outcome folder = run_program("run nt m=1 n=1 k=1 --output " + scratch("none/c.npy"));
  EXPECT_EQ(folder.code, 4) << folder.err;
}

TEST(Run, EndsWithTwoWhenArgumentsDoNotFit) {
  const std::string a = npy_of("a23.npy", {1, 2, 3, 4, 5, 0.1F}, {2, 3});
  const std::string b = npy_of("b12.npy", {1, 2}, {1, 2});
  EXPECT_THAT(run_program("run --A " + a + " --B " + b).err, HasSubstr("must be equal"));
  EXPECT_THAT(run_program("run --A " + a + " --B " + a + " --a fp16").err,
              HasSubstr("not representable in fp16"));
  for (const std::string& arguments :
       {"--A " + a, "--A " + a + " --B " + b, "--A " + a + " --B " + a + " --a fp16",
        "--A " + a + " --B " + a + " --n 7", "--A " + a + " --B " + a + " --beta 1",
        std::string("nt m=1 n=1 k=1 --output c.txt"), std::string()}) {
    EXPECT_EQ(run_program("run " + arguments).code, 2) << arguments;
  }
}

TEST(Verify, PassesAndFailsWhenOneRowIsDamaged) {
  const std::string problem = "nt m=20 n=24 k=40 ";
  for (const char* contract :
       {"a=fp32", "a=bf16 rel=0.01", "a=fp16 b=int4_awq group=32 c=fp32 abs=0.01",
        "a=fp16 c=fp32 act=silu bias residual beta=0.5 batch=2"}) {
    const Outcome good = run_program("verify " + problem + contract);
    EXPECT_EQ(good.code, 0) << good.out << good.err;
    EXPECT_THAT(good.out, HasSubstr("PASSED"));
    const Outcome damaged =
        run_program("verify --damage-row 19 --inputs gaussian,exact " + problem + contract);
    EXPECT_EQ(damaged.code, 1) << damaged.out;
    EXPECT_THAT(damaged.out, HasSubstr("1 rows"));
    EXPECT_THAT(damaged.out, HasSubstr("FAILED"));
  }
}

TEST(Verify, CoversEveryInputSet) {
  const Outcome outcome = run_program("verify nn m=3 n=5 k=7 a=fp16");
  for (const char* set : {"gaussian", "uniform", "exact", "cancellation", "huge_range", "subnormal",
                          "specials", "outlier_channels"}) {
    EXPECT_THAT(outcome.out, HasSubstr(set));
  }
}

TEST(Verify, ComparesSomeRowsWhenAllWouldTakeTooLong) {
  const Outcome outcome = run_program("verify --inputs uniform --work 5000 nt m=64 n=32 k=32");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("4 of 64 rows"));
  const Outcome row = run_program("verify --work 5000 --damage-row 1 nt m=64 n=32 k=32");
  EXPECT_EQ(row.code, 2);
  EXPECT_THAT(row.err, HasSubstr("--damage-row 1"));
}

TEST(Verify, ReadsFilesOfLines) {
  const std::string path = scratch("lines.txt");
  write_text(path, "# two problems\nnt m=2 n=3 k=4\n\n  nn m=1 n=1 k=1 a=bf16 # the second\n");
  const Outcome outcome = run_program("verify --inputs uniform --file " + path);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 of 2 problems"));
  EXPECT_EQ(run_program("verify --file " + scratch("no_such_file")).code, 4);
  EXPECT_EQ(run_program("verify --file " + scratch("")).code, 4);
  write_text(path, "# nothing\n");
  EXPECT_EQ(run_program("verify --file " + path).code, 4);
}

TEST(Bench, GivesRowsInTheCommonSchema) {
  const Outcome outcome = run_program(
      "bench --json --seconds 0 nt m=4 n=64 k=128 a=fp32 nt m=4 n=64 k=128 a=fp16 b=int4_awq");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  for (const char* key : {"machine", "date", "versions", "ceilings"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  ASSERT_EQ(report["rows"].size(), 2U);
  const json& row = report["rows"][0];
  EXPECT_EQ(row["line"], "nt m=4 n=64 k=128 a=fp32");
  EXPECT_EQ(row["class"], "fp32");
  EXPECT_GT(row["us"].get<double>(), 0);
  EXPECT_GT(row["floor_us"].get<double>(), 0);
  EXPECT_GT(row["read_floor_us"].get<double>(), 0);
  EXPECT_LE(row["spread"]["p10"].get<double>(), row["us"].get<double>());
  EXPECT_LE(row["us"].get<double>(), row["spread"]["p90"].get<double>());
  EXPECT_GE(row["spread"]["runs"].get<int>(), 5);
  EXPECT_EQ(report["rows"][1]["class"], "w4");
}

TEST(Bench, PrintsNoProgressBarIntoAPipe) {
  const Outcome outcome = run_program("bench --seconds 0 nt m=1 n=64 k=64 a=fp16");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_THAT(outcome.out, HasSubstr("nominal"));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
}

TEST(Demo, KeepsEveryContractOnTheSample) {
  const Outcome outcome = run_program("demo --json --sample " + kSample);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["kept"], true);
  ASSERT_EQ(report["contracts"].size(), 4U);
  for (const json& contract : report["contracts"]) {
    ASSERT_EQ(contract["linears"].size(), 7U);
    for (const json& linear : contract["linears"]) {
      EXPECT_LE(linear["measured_relative"], linear["bound_relative"]);
      EXPECT_GT(linear["us"], 0);
    }
  }
  // Outlier channels bring v_proj much nearer to the model: the reason for having them.
  const auto error = [&](int contract) {
    return report["contracts"][contract]["linears"][2]["output_error"].get<double>();
  };
  EXPECT_LT(error(3), 0.5 * error(2));
  EXPECT_LT(error(0), 1e-6);
}

TEST(Demo, FitsATerminalOfAHundredColumns) {
  const Outcome outcome = run_program("demo --sample " + kSample);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  EXPECT_THAT(outcome.out, HasSubstr("Every contract was kept."));
}

TEST(Demo, NamesWhatASampleLacks) {
  const std::vector<float> values(4, 1.0F);
  const std::pair<std::string, io::TensorView> tensors[] = {
      {"model.layers.0.self_attn.q_proj.weight", view_of(values, {2, 2})}};
  const std::string path = scratch("poor.safetensors");
  ASSERT_TRUE(io::write_safetensors(path, tensors, {}).ok());
  const Outcome outcome = run_program("demo --sample " + path);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("activations.attn_input"));
  EXPECT_EQ(run_program("demo --sample " + scratch("missing.safetensors")).code, 4);
}

}  // namespace
}  // namespace deepgemm::cli
