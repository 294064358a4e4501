// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ferry/ferry.h"

namespace ferry::tools {
namespace {

using ::testing::HasSubstr;

std::string LengthBytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirBytes) {
  auto header = ParseSafetensorsHeader(
      R"({"__metadata__":{"format":"pt"},
          "b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},
          "a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},
          "scalar":{"dtype":"U8","shape":[],"data_offsets":[28,29]},
          "none":{"dtype":"I64","shape":[0,7],"data_offsets":[4,4]}}   )",
      29);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 4u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].type->data_type, FERRY_BF16);
  EXPECT_EQ(header->tensors[1].name, "none");
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_EQ(header->tensors[2].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(header->tensors[3].name, "scalar");
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(SafetensorsTest, TakesTensorsBeyondFourGiB) {
  const uint64_t bytes = uint64_t{3} << 31;
  auto header = ParseSafetensorsHeader(
      R"({"big":{"dtype":"U8","shape":[6442450944],"data_offsets":[0,6442450944]}})", bytes);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors[0].end, bytes);
}

TEST(SafetensorsTest, CountsHalfByteElements) {
  EXPECT_TRUE(
      ParseSafetensorsHeader(R"({"q":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})", 3).ok());
  EXPECT_THAT(std::string(ParseSafetensorsHeader(
                              R"({"q":{"dtype":"F4","shape":[5],"data_offsets":[0,3]}})", 3)
                              .status()
                              .message()),
              HasSubstr("not a whole number of bytes"));
}

TEST(SafetensorsTest, EveryTypeNameMapsToADataTypeOnce) {
  for (const char* name : {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16",
                           "BF16", "F32", "F64", "C64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4"}) {
    ASSERT_NE(FindSafetensorsType(name), nullptr) << name;
    EXPECT_NE(FindSafetensorsType(name)->data_type, FERRY_UNSPECIFIED) << name;
  }
  EXPECT_EQ(FindSafetensorsType("bf16"), nullptr);
}

struct Malformed {
  const char* json;
  uint64_t data_bytes;
  const char* says;
};

class MalformedHeaderTest : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedHeaderTest, IsRefusedWithItsOwnText) {
  auto header = ParseSafetensorsHeader(GetParam().json, GetParam().data_bytes);
  ASSERT_FALSE(header.ok()) << GetParam().json;
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(HasReason(header.status(), Reason::kFieldInvalid));
  EXPECT_THAT(std::string(header.status().message()), HasSubstr(GetParam().says));
}

const std::string kTooDeep = R"({"a":)" + std::string(100, '[') + std::string(100, ']') + "}";

INSTANTIATE_TEST_SUITE_P(
    All, MalformedHeaderTest,
    ::testing::Values(
        Malformed{"", 0, "does not begin with '{'"}, Malformed{" {}", 0, "does not begin with '{'"},
        Malformed{"[1]", 0, "does not begin with '{'"},
        Malformed{"{\"a\":", 0, "not valid JSON at byte"}, Malformed{"{} {}", 0, "not valid JSON"},
        Malformed{"{\"\xff\":1}", 0, "not valid JSON"},
        Malformed{kTooDeep.c_str(), 0, "nested deeper"},
        Malformed{R"({"a":{"dtype":"F128","shape":[1],"data_offsets":[0,17]}})", 16,
                  "but the file has 16 bytes of data"},
        Malformed{
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
            2, "'a' is there twice"},
        Malformed{R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
                  "'dtype' is there twice"},
        Malformed{R"({"a":7})", 0, "tensor 'a' is not an object"},
        Malformed{R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "no dtype"},
        Malformed{R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, "no dtype"},
        Malformed{R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "no shape"},
        Malformed{R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
                  "a dimension of tensor 'a'"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1,
                  "a dimension of tensor 'a'"},
        Malformed{R"({"a":{"dtype":"U8","shape":[18446744073709551616,0],"data_offsets":[0,0]}})",
                  0, "a dimension"},
        Malformed{R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
                  "overflows"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 1,
                  "but the file has 1 bytes of data"},
        Malformed{R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})",
                  0, "overflows"},
        Malformed{R"({"a":{"dtype":"U8","shape":[9223372036854775808,2,0],"data_offsets":[0,0]}})",
                  0, "overflows"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1]}})", 1, "no data_offsets"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1,
                  "no data_offsets of two"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":["0",1]}})", 1,
                  "an offset of tensor 'a'"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 2,
                  "before it begins"},
        Malformed{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1,
                  "but the file has 1 bytes of data"},
        Malformed{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                  "dtype and shape need 8"},
        Malformed{
            R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            3, "'a' and 'b' overlap in bytes 1 to 2"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
                  "bytes 0 to 1 belong to no tensor"},
        Malformed{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
                  "bytes 1 to 2 belong to no tensor"},
        Malformed{R"({"__metadata__":[]})", 0, "'__metadata__' is not an object"},
        Malformed{R"({"__metadata__":{"a":1}})", 0, "field 'a' is not a string"}));

// As the format's own library does.
TEST(SafetensorsTest, ReadsWhatTheReferenceReads) {
  const std::string u8 = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  const std::string headers[] = {
      R"({"__metadata__":null,"a":{)" + u8 + "}}",
      R"({"":{)" + u8 + "}}",
      R"({"a":{)" + u8 + R"(,"x":{"y":[[[[1]]]],"y":2},"z":null}})",
      R"({"a":{"dtype":"F8_E4M3FNUZ","shape":[7],"data_offsets":[0,1]}})",
      "{\"a\":{" + u8 + "}} \n\t ",
  };
  for (const std::string& json : headers) {
    const auto header = ParseSafetensorsHeader(json, 1);
    ASSERT_TRUE(header.ok()) << json << header.status();
    EXPECT_EQ(header->tensors.size(), 1u) << json;
  }
  // A product is refused only if it, or what of it comes before a 0, does not fit.
  for (const char* const shape :
       {"18446744073709551615,0", "0,18446744073709551615,18446744073709551615",
        "4294967295,4294967297,0", "1,18446744073709551615,0,2"}) {
    const std::string json =
        absl::StrCat(R"({"a":{"dtype":"F64","shape":[)", shape, R"(],"data_offsets":[0,0]}})");
    const auto header = ParseSafetensorsHeader(json, 0);
    EXPECT_TRUE(header.ok()) << json << header.status();
  }
  const auto unknown =
      ParseSafetensorsHeader(R"({"a":{"dtype":"F128","shape":[1],"data_offsets":[0,16]}})", 16);
  ASSERT_TRUE(unknown.ok());
  EXPECT_EQ(unknown->tensors[0].type, nullptr);
  EXPECT_EQ(unknown->tensors[0].end, 16u);
}

TEST(SafetensorsTest, RefusesNulsAsTheReferenceDoes) {
  for (const std::string& json : {std::string("{}\0\0", 4), std::string("{\0}", 3)}) {
    EXPECT_THAT(std::string(ParseSafetensorsHeader(json, 0).status().message()),
                HasSubstr("not valid JSON at byte"));
  }
}

TEST(SafetensorsLengthTest, IsBoundedByTheFileAndTheFormat) {
  EXPECT_EQ(*ParseSafetensorsLength(LengthBytes(2), 10), 2u);
  const auto text = [](absl::string_view bytes, uint64_t file) {
    return std::string(ParseSafetensorsLength(bytes, file).status().message());
  };
  EXPECT_THAT(text("1234567", 7), HasSubstr("fewer than the 8"));
  EXPECT_THAT(text(LengthBytes(3), 10), HasSubstr("goes beyond the file's 10 bytes"));
  EXPECT_THAT(text(LengthBytes(100'000'001), uint64_t{1} << 40), HasSubstr("over the limit"));
  EXPECT_THAT(text(LengthBytes(UINT64_MAX), 100), HasSubstr("over the limit"));
  EXPECT_THAT(text(LengthBytes(1), 10), HasSubstr("too short"));
}

}  // namespace
}  // namespace ferry::tools
