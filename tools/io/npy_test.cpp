#include "io/npy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

namespace deepgemm::io {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string file_of(char major, const std::string& header, size_t data_bytes) {
  std::string file = "\x93NUMPY";
  file += {major, '\0'};
  uint32_t length = static_cast<uint32_t>(header.size());
  file.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return file + header + std::string(data_bytes, '\1');
}

std::string message_of(const std::string& file) {
  const auto result = parse_npy(bytes_of(file), "x");
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.error().code, DEEPGEMM_ERROR_FORMAT);
  return result.error().message;
}

constexpr const char* kHeader = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";

TEST(Npy, ReadsEveryVersion) {
  for (const char version : {'\x01', '\x02', '\x03'}) {
    const std::string file = file_of(version, kHeader, 24);
    const auto result = parse_npy(bytes_of(file), "x");
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->dtype, DType::kF32);
    EXPECT_EQ(result->shape, (std::vector<int64_t>{2, 3}));
    EXPECT_FALSE(result->column_major);
    EXPECT_EQ(result->data.data(), bytes_of(file).data() + file.size() - 24);
  }
  EXPECT_THAT(message_of(file_of(4, kHeader, 24)), HasSubstr("version 4.0"));
}

TEST(Npy, ReadsFortranOrderScalarsVectorsAndEmptyArrays) {
  const auto fortran = file_of(1, "{\"descr\":'<f8','fortran_order':True,'shape':(1,)}\n", 8);
  const auto result = parse_npy(bytes_of(fortran), "x");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(result->column_major);
  EXPECT_EQ(message_of(file_of(1, "{'shape': (), 'fortran_order': False, 'descr': '|i1'}", 1)),
            "accepted");
  EXPECT_EQ(message_of(file_of(1, "{'shape': (0, 9), 'fortran_order': False, 'descr': '<f2'}", 0)),
            "accepted");
  EXPECT_EQ(message_of(file_of(1, "{'shape': (2,), 'fortran_order': False, 'descr': '<i1'}", 2)),
            "accepted");
}

TEST(Npy, RefusesTruncationAtEveryByteAndTrailingBytes) {
  const std::string file = file_of(1, kHeader, 24);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(message_of(file.substr(0, size)), "accepted") << size;
  }
  EXPECT_THAT(message_of(file + "x"), HasSubstr("holds 25 bytes"));
}

TEST(Npy, SurvivesEveryByteChangedToEveryValue) {
  const std::string file = file_of(1, kHeader, 24);
  for (size_t at = 0; at < file.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(value);
      message_of(damaged);
    }
  }
}

struct BadHeader {
  const char* header;
  const char* reason;
};

class NpyHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(NpyHeader, IsRefusedWithTheRule) {
  EXPECT_THAT(message_of(file_of(1, GetParam().header, 8)), HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    Bad, NpyHeader,
    testing::Values(
        BadHeader{"{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", "big-endian"},
        BadHeader{"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "Python objects"},
        BadHeader{"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "not supported"},
        BadHeader{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "structured"},
        BadHeader{"{'descr': '<f4', 'fortran_order': No, 'shape': (2,)}", "True or False"},
        BadHeader{"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "a size"},
        BadHeader{"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "takes 12"},
        BadHeader{"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
                  "overflows"},
        BadHeader{"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
                  "overflows"},
        BadHeader{"{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}", "'descr' twice"},
        BadHeader{"{'descr': '<f4', 'color': 1}", "unknown key 'color'"},
        BadHeader{"{'descr': '<f4', 'shape': (2,)}", "needs the keys"},
        BadHeader{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "the end"},
        BadHeader{"['descr']", "expected {"}, BadHeader{"{'descr", "plain string"},
        BadHeader{"", "expected {"}));

TEST(Npy, RefusesHeaderLengthBombs) {
  const std::string huge = std::string("\x93NUMPY\x02\0\xFF\xFF\xFF\xFF", 12) + kHeader;
  EXPECT_THAT(message_of(huge), HasSubstr("over the limit"));
  const std::string more = std::string("\x93NUMPY\x01\0\xFF\x7F", 10) + kHeader;
  EXPECT_THAT(message_of(more), HasSubstr("more than the"));
}

TEST(Npy, WritesWhatItReads) {
  const auto path = (std::filesystem::path(testing::TempDir()) / "round_trip.npy").string();
  const std::vector<double> values = {1.5, -2.0, 0.25, 1e300, 0, 7};
  for (const bool column_major : {false, true}) {
    const TensorView tensor = {DType::kF64, {3, 2}, column_major, std::as_bytes(std::span(values))};
    const auto written = write_npy(path, tensor);
    ASSERT_TRUE(written.ok()) << written.error().message;
    const auto file = NpyFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensor().shape, tensor.shape);
    EXPECT_EQ(file->tensor().column_major, column_major);
    ASSERT_EQ(file->tensor().data.size(), tensor.data.size());
    EXPECT_EQ(std::memcmp(file->tensor().data.data(), values.data(), tensor.data.size()), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file->tensor().data.data()) % 64, 0U);
  }
}

TEST(Npy, RefusesToWriteTypesThatTheFormatLacks) {
  const TensorView tensor = {DType::kBf16, {0}, false, {}};
  const auto result = write_npy("unused.npy", tensor);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("BF16"));
}

}  // namespace
}  // namespace deepgemm::io
