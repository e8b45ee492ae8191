#include "io/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/output_file.hpp"

namespace deepgemm::io {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + rest;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\1'));
}

// The message that parsing the file gives; "accepted" when there is none.
std::string message_of(const std::string& file) {
  const auto result = parse_safetensors(bytes_of(file), "x");
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_FORMAT);
  return result.error().message;
}

std::string temporary_path(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / name).string();
}

constexpr const char* kTwoTensors = R"({"__metadata__":{"origin":"test"},)"
                                    R"("b":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},)"
                                    R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}} )";

TEST(Safetensors, GivesViewsIntoTheFile) {
  const std::string file = file_of(kTwoTensors, 16);
  const auto result = parse_safetensors(bytes_of(file), "x");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metadata.at("origin"), "test");
  const TensorView& b = result->tensors.at("b");
  EXPECT_EQ(b.dtype, DType::kF16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.elements(), 6);
  EXPECT_EQ(b.data.data(), bytes_of(file).data() + file.size() - 12);
  EXPECT_EQ(result->tensors.at("a").elements(), 1);
}

TEST(Safetensors, AcceptsNoTensorsAndEmptyTensors) {
  EXPECT_EQ(message_of(file_of("{}", 0)), "accepted");
  EXPECT_EQ(message_of(file_of(R"({"z":{"dtype":"F64","shape":[0,7],"data_offsets":[8,8]},)"
                               R"("a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})",
                               8)),
            "accepted");
}

TEST(Safetensors, RefusesTruncationAtEveryByte) {
  const std::string file = file_of(kTwoTensors, 16);
  ASSERT_EQ(message_of(file), "accepted");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(message_of(file.substr(0, size)), "accepted") << size;
  }
}

TEST(Safetensors, SurvivesEveryByteChangedToEveryValue) {
  const std::string file = file_of(kTwoTensors, 16);
  for (size_t at = 0; at < file.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(value);
      message_of(damaged);
    }
  }
}

TEST(Safetensors, RefusesHeaderLengthBombs) {
  EXPECT_THAT(message_of(with_length(UINT64_MAX, "{}")), HasSubstr("over the limit"));
  EXPECT_THAT(message_of(with_length(100'000'001, "{}")), HasSubstr("over the limit"));
  EXPECT_THAT(message_of(with_length(99'000'000, "{}")), HasSubstr("more than the 2 bytes"));
  EXPECT_THAT(message_of(with_length(0, "")), HasSubstr("begin with {"));
}

TEST(Safetensors, RefusesDeepNestingWithoutRecursion) {
  const std::string deep(5'000'000, '[');
  EXPECT_THAT(message_of(file_of(R"({"a":{"shape":)" + deep, 0)),
              HasSubstr("an array is not allowed in \"shape\""));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_THAT(message_of(file_of(objects, 0)), HasSubstr("unknown key \"a\""));
}

struct BadTensor {
  const char* body;  // of tensor "w", which has 16 bytes of data
  const char* reason;
};

class SafetensorsTensor : public testing::TestWithParam<BadTensor> {};

TEST_P(SafetensorsTensor, IsRefusedWithItsNameAndTheRule) {
  const std::string header = std::string(R"({"w":)") + GetParam().body + "}";
  const std::string message = message_of(file_of(header, 16));
  EXPECT_THAT(message, HasSubstr("tensor \"w\""));
  EXPECT_THAT(message, HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    Bad, SafetensorsTensor,
    testing::Values(
        BadTensor{R"({"dtype":"F32","shape":[4],"data_offsets":[-1,15]})", "holds -1"},
        BadTensor{R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})", "holds -4"},
        BadTensor{R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})", "do not lie in"},
        BadTensor{R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})", "do not lie in"},
        BadTensor{R"({"dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551615]})",
                  "do not lie in"},
        BadTensor{R"({"dtype":"F32","shape":[8],"data_offsets":[0,16]})", "takes 32"},
        BadTensor{R"({"dtype":"F16","shape":[4],"data_offsets":[0,16]})", "takes 8"},
        BadTensor{R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,16]})",
                  "overflows"},
        BadTensor{R"({"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})",
                  "overflows"},
        BadTensor{R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,16]})",
                  "over 2^63"},
        BadTensor{R"({"dtype":"U8","shape":[1e3],"data_offsets":[0,16]})", "a fraction"},
        BadTensor{R"({"dtype":"U8","shape":16,"data_offsets":[0,16]})", "not allowed in"},
        BadTensor{R"({"dtype":"F32","shape":[2],"data_offsets":[1,9]})", "misaligned"},
        BadTensor{R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})", "leaves a gap"},
        BadTensor{R"({"dtype":"F7","shape":[2],"data_offsets":[8,16]})", "unknown dtype \"F7\""},
        BadTensor{R"({"dtype":"U8","shape":[16],"data_offsets":[0,16,16]})", "[begin, end]"},
        BadTensor{R"({"dtype":"U8","shape":[16],"data_offsets":[16]})", "[begin, end]"},
        BadTensor{R"({"dtype":"U8","shape":[16]})", "are all needed"},
        BadTensor{R"({"dtype":"U8","dtype":"U8","shape":[16]})", "key \"dtype\" twice"},
        BadTensor{R"({"dtype":"U8","color":1})", "unknown key \"color\""},
        BadTensor{R"([])", "an array where an object must be"},
        BadTensor{R"(null)", "null where an object must be"}));

TEST(Safetensors, RefusesOverlapsDuplicatesAndTrailingBytes) {
  const std::string a = R"("a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  const std::string b = R"("b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]})";
  EXPECT_THAT(message_of(file_of("{" + a + "," + b + "}", 12)), HasSubstr("overlaps"));
  EXPECT_THAT(message_of(file_of("{" + a + "," + a + "}", 8)), HasSubstr("occurs twice"));
  EXPECT_THAT(message_of(file_of("{" + a + "}", 9)), HasSubstr("1 bytes after the last tensor"));
  EXPECT_THAT(message_of(file_of("{" + a + "}}", 8)), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of(file_of(R"({"__metadata__":{"n":1}})", 0)), HasSubstr("__metadata__"));
}

TEST(Safetensors, WritesWhatItReads) {
  const std::string path = temporary_path("round_trip.safetensors");
  const std::vector<float> values = {1.5F, -2.0F, 0.0F};
  const std::vector<std::byte> bytes(5, std::byte{7});
  std::vector<std::pair<std::string, TensorView>> tensors(2);
  tensors[0] = {"weights \"q\"", {DType::kF32, {1, 3}, false, std::as_bytes(std::span(values))}};
  tensors[1] = {"codes", {DType::kU8, {5}, false, bytes}};
  const auto written = write_safetensors(path, tensors, {{"key", "value"}});
  ASSERT_TRUE(written.ok()) << written.error().message;

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->contents().metadata.at("key"), "value");
  const TensorView& first = file->contents().tensors.at("weights \"q\"");
  EXPECT_EQ(first.shape, (std::vector<int64_t>{1, 3}));
  ASSERT_EQ(first.data.size(), 12U);
  EXPECT_EQ(std::memcmp(first.data.data(), values.data(), 12), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data.data()) % 64, 0U);
  EXPECT_EQ(file->contents().tensors.at("codes").elements(), 5);

  tensors[1].first = tensors[0].first;
  EXPECT_EQ(write_safetensors(path, tensors, {}).error().code, DEEPGEMM_ERROR_INVALID_ARGUMENT);
}

TEST(SafetensorsFile, NamesThePathAndTheReason) {
  const auto missing = SafetensorsFile::open(temporary_path("no_such_file"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, DEEPGEMM_ERROR_IO);
  EXPECT_THAT(missing.error().message, HasSubstr("no_such_file"));

  const auto directory = SafetensorsFile::open(testing::TempDir());
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.error().message, HasSubstr("a directory"));

  const auto device = SafetensorsFile::open("/dev/null");
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.error().message, HasSubstr("no regular file"));

  const std::string empty = temporary_path("empty");
  std::ofstream(empty).close();
  const auto nothing = SafetensorsFile::open(empty);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, DEEPGEMM_ERROR_FORMAT);
}

TEST(WriteFile, NeverReplacesWhatIsNoFile) {
  EXPECT_EQ(write_file("/dev/null", {}).error().code, DEEPGEMM_ERROR_IO);
  EXPECT_EQ(write_file(testing::TempDir(), {}).error().code, DEEPGEMM_ERROR_IO);
  const auto result = write_file(temporary_path("no_such_folder/file"), {});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("no_such_folder"));
}

}  // namespace
}  // namespace deepgemm::io
