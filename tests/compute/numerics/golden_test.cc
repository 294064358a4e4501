// SPDX-License-Identifier: Apache-2.0
// The tables of golden/: what ml_dtypes and CUDA's host functions make of the critical inputs. Each
// case names one column and the rows that are left out of it, with what they become instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {
namespace {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;

  // The hexadecimal numbers of a column.
  std::vector<uint32_t> Column(const std::string& name) const {
    const auto found = std::find(columns.begin(), columns.end(), name);
    EXPECT_NE(found, columns.end()) << name;
    std::vector<uint32_t> values;
    if (found == columns.end()) return values;
    for (const auto& row : rows) {
      values.push_back(static_cast<uint32_t>(
          std::stoul(row.at(static_cast<size_t>(found - columns.begin())), nullptr, 16)));
    }
    return values;
  }
};

std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

Table ReadTable(const std::string& name) {
  std::ifstream file(std::string(GOLDEN_DIRECTORY) + "/" + name);
  Table table;
  std::string line;
  if (std::getline(file, line)) table.columns = Split(line);
  while (std::getline(file, line)) table.rows.push_back(Split(line));
  return table;
}

struct DecodeCase {
  DType type;
  const char* file;
  size_t rows;
  size_t nans;
};

TEST(GoldenTest, EveryCodeDecodesAsInTheTables) {
  for (const DecodeCase& c : {DecodeCase{DType::kF4E2M1FN, "decode_e2m1fn.csv", 16, 0},
                              DecodeCase{DType::kF8E4M3FN, "decode_e4m3fn.csv", 256, 2},
                              DecodeCase{DType::kF8E5M2, "decode_e5m2.csv", 256, 6},
                              DecodeCase{DType::kF8E8M0FNU, "decode_e8m0fnu.csv", 256, 1}}) {
    SCOPED_TRACE(c.file);
    const Table table = ReadTable(c.file);
    ASSERT_EQ(table.rows.size(), c.rows);
    const std::vector<uint32_t> codes = table.Column("code_hex");
    const std::vector<uint32_t> values = table.Column("f32_bits_hex");
    const Bytes packed = FromBits(c.type, {codes.begin(), codes.end()});
    const Bytes decoded = Converted(c.type, packed, DType::kF32, c.rows);
    size_t nans = 0;
    for (size_t i = 0; i < c.rows; ++i) {
      ASSERT_EQ(codes[i], i);
      const auto got = static_cast<uint32_t>(BitsAt(DType::kF32, decoded, i));
      if (std::isnan(std::bit_cast<float>(values[i]))) {
        EXPECT_TRUE(std::isnan(std::bit_cast<float>(got))) << std::hex << codes[i];
        ++nans;
      } else {
        EXPECT_EQ(got, values[i]) << std::hex << codes[i];
      }
      EXPECT_EQ(std::bit_cast<uint32_t>(DecodeFloat(c.type, codes[i])), got);
    }
    EXPECT_EQ(nans, c.nans);
  }
}

enum class Kind { kZero, kPositive, kNegative, kInfinity, kPositiveNan, kNegativeNan };

Kind KindOf(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const bool negative = bits != magnitude;
  if (magnitude > 0x7F800000) return negative ? Kind::kNegativeNan : Kind::kPositiveNan;
  if (magnitude == 0x7F800000) return Kind::kInfinity;
  if (magnitude == 0) return Kind::kZero;
  return negative ? Kind::kNegative : Kind::kPositive;
}

// Rows of a kind that the column does not say, how many there are, and what inputs of either sign
// become instead.
struct Excluded {
  Kind kind;
  size_t rows;
  uint32_t positive;
  uint32_t negative;
};

struct EncodeCase {
  DType type;
  const char* file;
  size_t rows;
  ConvertMode mode;
  const char* column;
  std::vector<Excluded> excluded;
};

constexpr char kE4M3[] = "encode_f32_to_e4m3fn.csv";
constexpr char kE5M2[] = "encode_f32_to_e5m2.csv";
constexpr char kE2M1[] = "encode_f32_to_e2m1fn.csv";
constexpr char kE8M0[] = "encode_f32_to_e8m0fnu.csv";
constexpr ConvertMode kNanOrInf{Overflow::kNanOrInf};
constexpr ConvertMode kSaturate{Overflow::kSaturate};
constexpr Excluded kPositiveNans{Kind::kPositiveNan, 4, 0x7F, 0x7F};
constexpr Excluded kNegativeNans{Kind::kNegativeNan, 4, 0x7F, 0x7F};

// Whatever is negative, -infinity too, becomes the least scale. CUDA encodes magnitudes.
constexpr Excluded kInfinityAsScale{Kind::kInfinity, 2, 0xFE, 0x00};

std::vector<EncodeCase> EncodeCases() {
  const auto e8m0 = [](Overflow overflow, ScaleRounding rounding, const char* column,
                       std::vector<Excluded> excluded) {
    return EncodeCase{DType::kF8E8M0FNU, kE8M0, 5158, {overflow, rounding}, column, excluded};
  };
  return {
      {DType::kF8E4M3FN, kE4M3, 2614, kNanOrInf, "cuda_nosat", {}},
      {DType::kF8E4M3FN, kE4M3, 2614, kNanOrInf, "ml_dtypes_default", {kNegativeNans}},
      {DType::kF8E4M3FN, kE4M3, 2614, kSaturate, "cuda_satfinite", {}},
      {DType::kF8E4M3FN,
       kE4M3,
       2614,
       kSaturate,
       "ml_dtypes_saturate",
       {{Kind::kInfinity, 2, 0x7E, 0xFE}, kNegativeNans}},
      {DType::kF8E5M2, kE5M2, 2534, kNanOrInf, "cuda_nosat", {}},
      {DType::kF8E5M2, kE5M2, 2534, kNanOrInf, "ml_dtypes_default", {kPositiveNans, kNegativeNans}},
      {DType::kF8E5M2, kE5M2, 2534, kSaturate, "cuda_satfinite", {}},
      {DType::kF8E5M2,
       kE5M2,
       2534,
       kSaturate,
       "ml_dtypes_saturate",
       {{Kind::kInfinity, 2, 0x7B, 0xFB}, kPositiveNans, kNegativeNans}},
      {DType::kF4E2M1FN, kE2M1, 254, kNanOrInf, "cuda_rne_satfinite", {}},
      {DType::kF4E2M1FN, kE2M1, 254, kSaturate, "cuda_rne_satfinite", {}},
      {DType::kF4E2M1FN,
       kE2M1,
       254,
       kSaturate,
       "ml_dtypes",
       {{Kind::kPositiveNan, 4, 7, 7}, {Kind::kNegativeNan, 4, 7, 7}}},
      e8m0(Overflow::kNanOrInf, ScaleRounding::kNearestHalfUp, "ml_dtypes_default", {}),
      e8m0(Overflow::kSaturate, ScaleRounding::kNearestHalfUp, "ml_dtypes_saturate",
           {kInfinityAsScale}),
      e8m0(Overflow::kSaturate, ScaleRounding::kFloor, "cuda_satfinite_rz(floor)",
           {{Kind::kNegative, 2573, 0, 0}, kInfinityAsScale}),
      e8m0(Overflow::kSaturate, ScaleRounding::kCeil, "cuda_satfinite_rp(ceil)",
           {{Kind::kNegative, 2573, 0, 0}, kInfinityAsScale}),
      e8m0(Overflow::kNanOrInf, ScaleRounding::kFloor, "cuda_nosat_rz",
           {{Kind::kZero, 2, 0xFF, 0xFF}, {Kind::kNegative, 2573, 0xFF, 0xFF}}),
      e8m0(Overflow::kNanOrInf, ScaleRounding::kCeil, "cuda_nosat_rp",
           {{Kind::kZero, 2, 0xFF, 0xFF}, {Kind::kNegative, 2573, 0xFF, 0xFF}}),
  };
}

TEST(GoldenTest, EveryInputEncodesAsInTheColumnOfItsMode) {
  for (const EncodeCase& c : EncodeCases()) {
    SCOPED_TRACE(std::string(c.file) + " " + c.column);
    const Table table = ReadTable(c.file);
    ASSERT_EQ(table.rows.size(), c.rows);
    const std::vector<uint32_t> inputs = table.Column("f32_bits_hex");
    const std::vector<uint32_t> column = table.Column(c.column);
    ASSERT_EQ(column.size(), c.rows);
    const Bytes encoded = Converted(DType::kF32, BytesOfValues(inputs), c.type, c.rows, c.mode);
    std::vector<size_t> left_out(c.excluded.size());
    for (size_t i = 0; i < c.rows; ++i) {
      uint32_t expected = column[i];
      for (size_t k = 0; k < c.excluded.size(); ++k) {
        if (c.excluded[k].kind != KindOf(inputs[i])) continue;
        ++left_out[k];
        expected = inputs[i] >> 31 != 0 ? c.excluded[k].negative : c.excluded[k].positive;
      }
      EXPECT_EQ(BitsAt(c.type, encoded, i), expected) << std::hex << inputs[i];
      EXPECT_EQ(EncodeFloat(c.type, std::bit_cast<float>(inputs[i]), c.mode), expected)
          << std::hex << inputs[i];
    }
    for (size_t k = 0; k < c.excluded.size(); ++k) EXPECT_EQ(left_out[k], c.excluded[k].rows);
  }
}

TEST(GoldenTest, HalfUpIsTheFormulaOfXla) {
  const Table table = ReadTable(kE8M0);
  ASSERT_EQ(table.rows.size(), 5158u);
  for (const uint32_t bits : table.Column("f32_bits_hex")) {
    const auto v = static_cast<int32_t>(bits);
    const uint32_t expected = v <= 0 || v >= 0x7F400000 ? 0xFF
                              : v <= 0x00400000         ? 0
                                                        : (bits + 0x400000) >> 23;
    EXPECT_EQ(ConvertBits(DType::kF32, bits, DType::kF8E8M0FNU,
                          {Overflow::kNanOrInf, ScaleRounding::kNearestHalfUp}),
              expected)
        << std::hex << bits;
  }
}

}  // namespace
}  // namespace ferry::compute::testing
