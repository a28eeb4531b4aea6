#include "trainer/checkpoint/safetensors_header.h"

#include <gtest/gtest.h>

#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer {
namespace {

// Parses the header `json` followed by `data_size` bytes, as a file.
SafetensorsHeader Parse(const std::string& json, uint64_t data_size) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((json.size() >> (8 * i)) & 0xff);
  return ParseSafetensorsHeader(bytes + json, 8 + json.size() + data_size, "test");
}

void ExpectRefused(const std::string& json, uint64_t data_size, const std::string& why) {
  EXPECT_ERROR(Parse(json, data_size), ExitCode::kBadData, why);
}

TEST(SafetensorsHeaderTest, ReadsWhatItBuilds) {
  std::vector<StoredTensor> tensors = {{"a", "F32", {2, 3}, 0, 0},
                                       {"none", "F32", {0, 3}, 0, 0},
                                       {"b", "BF16", {5}, 0, 0},
                                       {"scalar", "I64", {}, 0, 0}};
  const std::string bytes = BuildSafetensorsHeader(&tensors, {{"format", "pt"}});
  EXPECT_EQ(bytes.size() % 8, 0u);
  const SafetensorsHeader header = ParseSafetensorsHeader(bytes, bytes.size() + 42, "test");
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.data_begin, bytes.size());
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.tensors[3].begin, 34u);
  EXPECT_EQ(header.tensors[3].end, 42u);
}

TEST(SafetensorsHeaderTest, RefusesShortFiles) {
  EXPECT_ERROR(ParseSafetensorsHeader("", 0, "t"), ExitCode::kBadData, "shorter than 8");
  EXPECT_ERROR(ParseSafetensorsHeader("1234567", 7, "t"), ExitCode::kBadData, "shorter than 8");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
                "shorter than its header says");
}

TEST(SafetensorsHeaderTest, RefusesHeaderLengthsThatDoNotFit) {
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  EXPECT_ERROR(ParseSafetensorsHeader(huge, huge.size(), "t"), ExitCode::kBadData, "100 MB");
  const std::string beyond("\x03\0\0\0\0\0\0\0{}", 10);
  EXPECT_ERROR(ParseSafetensorsHeader(beyond, beyond.size(), "t"), ExitCode::kBadData,
               "more bytes than the file has");
}

TEST(SafetensorsHeaderTest, RefusesWhatIsNoJsonObject) {
  ExpectRefused("", 0, "does not start with '{'");
  ExpectRefused(" {}", 0, "does not start with '{'");
  ExpectRefused("[]", 0, "does not start with '{'");
  ExpectRefused("{\"a\":", 0, "not valid JSON");
  ExpectRefused(R"({"a":3})", 0, "needs exactly");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":{"y":{"z":{}}}}})", 4,
                "nested");
}

TEST(SafetensorsHeaderTest, RefusesDuplicateKeys) {
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                1, "\"a\" is there twice");
  ExpectRefused(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
                "\"dtype\" is there twice");
}

TEST(SafetensorsHeaderTest, RefusesWrongShapesAndTypes) {
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "do not match");
  ExpectRefused(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", 8, "unknown dtype");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "whole number");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, "whole number");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "do not match");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "needs exactly");
  ExpectRefused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}})",
                0, "overflows");
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
                "overflows");
}

TEST(SafetensorsHeaderTest, RefusesHolesOverlapsAndTrailingBytes) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  ExpectRefused("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9, "hole");
  ExpectRefused("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7,
                "overlaps");
  ExpectRefused("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
                "overlaps");
  ExpectRefused(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, "hole");
  ExpectRefused("{" + a + "}", 5, "bytes follow the last tensor");
  EXPECT_EQ(Parse("{" + a + "}   ", 4).tensors.size(), 1u);  // padding is part of the format
}

TEST(SafetensorsHeaderTest, RefusesMetadataThatIsNotText) {
  ExpectRefused(R"({"__metadata__":{"n":1}})", 0, "other than text");
  ExpectRefused(R"({"__metadata__":[]})", 0, "no object");
  EXPECT_EQ(Parse("{}", 0).tensors.size(), 0u);
}

// For every single broken byte the result is an Error or a header, nothing else.
TEST(SafetensorsHeaderTest, EveryBrokenByteIsHandled) {
  std::vector<StoredTensor> tensors = {{"a", "F32", {2, 3}, 0, 0}, {"b", "U8", {5}, 0, 0}};
  const std::string good = BuildSafetensorsHeader(&tensors, {{"format", "pt"}});
  int refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int value : std::vector<int>{0, 0x7f, 0xff, '"', '{', '9'}) {
      std::string broken = good;
      broken[at] = static_cast<char>(value);
      try {
        ParseSafetensorsHeader(broken, broken.size() + 29, "test");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kBadData);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, static_cast<int>(good.size()) * 3);
}

}  // namespace
}  // namespace gpuctl::trainer
