// SPDX-License-Identifier: Apache-2.0
#include "transfer/types.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(TypesTest, EveryDataTypeHasANameAndASize) {
  EXPECT_EQ(DataTypeName(DataType::kBF16), "BF16");
  EXPECT_EQ(DataTypeName(DataType::kF4E2M1FN), "F4E2M1FN");
  EXPECT_EQ(DataTypeName(DataType::kUnspecified), "unspecified");
  EXPECT_EQ(DataTypeBits(DataType::kUnspecified), 0);
  EXPECT_EQ(DataTypeBits(DataType::kBF16), 16);
  EXPECT_EQ(DataTypeBits(DataType::kC128), 128);
  EXPECT_EQ(DataTypeBits(DataType::kF8E8M0FNU), 8);
  EXPECT_EQ(DataTypeBits(DataType::kF4E2M1FN), 4);
  for (int i = 1; i < kDataTypes; ++i) EXPECT_GT(DataTypeBits(static_cast<DataType>(i)), 0) << i;
}

TEST(TypesTest, ShapesPrintAsLists) {
  Shape shape;
  EXPECT_EQ(shape.ToString(), "unspecified");
  shape.given = true;
  EXPECT_EQ(shape.ToString(), "[]");
  shape.dims.push_back(128);
  shape.dims.push_back(4096);
  EXPECT_EQ(shape.ToString(), "[128,4096]");
  Shape unsaid = shape;
  unsaid.given = false;
  EXPECT_FALSE(shape == unsaid);
}

TEST(TypesTest, RoutesHaveTheNamesOfTheConfiguration) {
  EXPECT_EQ(RouteName(Route::kLocal), "local");
  EXPECT_EQ(RouteName(Route::kMapped), "mapped");
  EXPECT_EQ(RouteName(Route::kUcx), "ucx");
  EXPECT_EQ(RouteName(Route::kNccl), "nccl");
  EXPECT_EQ(RouteName(Route::kUnspecified), "any");
}

TEST(TypesTest, KeysPrintAsTextOrAsNumbersOrInHex) {
  EXPECT_EQ(PrintableKey("layers.0.wq"), "'layers.0.wq'");
  EXPECT_EQ(PrintableKey(""), "''");
  EXPECT_EQ(PrintableKey(absl::string_view("\0\0\0\0\0\0\x01\x02", 8)), "258");
  EXPECT_EQ(PrintableKey("\xff\xff\xff\xff\xff\xff\xff\xff"), "18446744073709551615");
  EXPECT_EQ(PrintableKey(absl::string_view("\x00\xab", 2)), "0x00ab");
}

TEST(TypesTest, DescribeNamesKeyAndDevicesButNeverTheDomain) {
  const std::string text =
      Describe({"secret", GlobalDeviceId(0), GlobalDeviceId(2), "layers.0.wq"});
  EXPECT_EQ(text, "key 'layers.0.wq' from device 0 to device 2");
}

TEST(TypesTest, ADomainsFingerprintIsStableAndTellsDomainsApart) {
  EXPECT_EQ(DomainFingerprint("job").size(), 16u);
  EXPECT_EQ(DomainFingerprint("job"), DomainFingerprint("job"));
  EXPECT_NE(DomainFingerprint("job"), DomainFingerprint("joc"));
  EXPECT_EQ(DomainFingerprint("job").find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace ferry
