// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/compute/numerics/blocks.h"
#include "tests/compute/numerics/elements.h"
#include "tests/compute/numerics/oracle.h"

namespace ferry::compute::testing {
namespace {

constexpr BlockFormat kFormats[] = {kMxFp8E4M3, kMxFp8E5M2, kMxFp4, kNvFp4};
constexpr ScaleRounding kRoundings[] = {ScaleRounding::kCeil, ScaleRounding::kFloor,
                                        ScaleRounding::kNearestHalfUp};

uint32_t ScaleOf(const BlockFormat& format, ScaleRounding rounding, const Floats& block,
                 float global = 1) {
  return static_cast<uint32_t>(Quantize(format, rounding, block, 1, global).scales.at(0));
}

// The exponent of the scale for a block whose largest magnitude is `amax`, in each of kRoundings.
struct ScaleCase {
  float amax;
  int ceil, floor, half_up;
};

void ExpectScales(const BlockFormat& format, const std::vector<ScaleCase>& cases) {
  for (const ScaleCase& c : cases) {
    const int expected[] = {c.ceil, c.floor, c.half_up};
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ScaleOf(format, kRoundings[i], {0, -c.amax, c.amax / 2}),
                static_cast<uint32_t>(127 + expected[i]))
          << NameOf(format.element) << " " << c.amax << " rounding " << i;
    }
  }
}

TEST(BlockTest, ScalesOfPowersOfTwoByHand) {
  constexpr float kUlp = 0x1p-23f;
  ExpectScales(kMxFp8E4M3,
               {{256, 0, 0, 0},  // mantissa 1.0: all of e4m3's range is there
                {256 * (1.5f - kUlp), 0, 0, 0},
                {384, 0, 0, 1},
                {448, 0, 0, 1},  // the largest element
                {448 + 256 * kUlp, 1, 0, 1},
                {512 - 256 * kUlp, 1, 0, 1},
                {1, -8, -8, -8},
                {0x1p-110f, -118, -118, -118},
                {0x1.8p-119f, -127, -127, -126},  // 1.5 * 2^-127: half up
                {0x1.2p-119f, -127, -127, -126},  // above 2^-127: up although not nearer
                {0x1p-119f, -127, -127, -127},
                {0x1p-149f, -127, -127, -127},  // f32's smallest
                {std::numeric_limits<float>::max(), 120, 119, 120}});
  ExpectScales(
      kMxFp8E5M2,
      {{32768, 0, 0, 0}, {49152, 0, 0, 1}, {57344, 0, 0, 1}, {57344 + 32768 * kUlp, 1, 0, 1}});
  ExpectScales(kMxFp4, {{4, 0, 0, 0},
                        {6 - 4 * kUlp, 0, 0, 0},
                        {6, 0, 0, 1},  // the one mantissa at which ceil and half up differ
                        {6 + 4 * kUlp, 1, 0, 1},
                        {7, 1, 0, 1}});
}

TEST(BlockTest, AnMxFp4BlockByHand) {
  // Largest 12: scale 2. Quotients 6, -0.5, 0.25 (tie to 0), 0.75 (tie to 1), 5 (tie to 4), -0.
  const Floats values = {12, -1, 0.5f, 1.5f, 10, -0.0f};
  const Quantized q = Quantize(kMxFp4, ScaleRounding::kCeil, values, 1);
  EXPECT_EQ(q.scales, Bytes{std::byte{128}});
  EXPECT_EQ(q.elements, (Bytes{std::byte{0x97}, std::byte{0x20}, std::byte{0x86}}));
  EXPECT_EQ(Dequantize(kMxFp4, q, 1, 6), (Floats{12, -1, 0, 2, 8, -0.0f}));
  // Floor has the scale 1 for a largest of 7, and clips it.
  const Quantized clipped = Quantize(kMxFp4, ScaleRounding::kFloor, {7, -7}, 1);
  EXPECT_EQ(Dequantize(kMxFp4, clipped, 1, 2), (Floats{6, -6}));
}

TEST(BlockTest, AnNvFp4BlockByHand) {
  // Global scale 0.5: 12, -3, 1 become 24, -6, 2. Scale 24 / 6 = 4: e4m3's 0x48. Quotients 6, -1.5,
  // 0.5.
  const Floats values = {12, -3, 1};
  const Quantized q = Quantize(kNvFp4, ScaleRounding::kCeil, values, 1, 0.5f);
  EXPECT_EQ(q.scales, Bytes{std::byte{0x48}});
  EXPECT_EQ(q.elements, (Bytes{std::byte{0xB7}, std::byte{0x01}}));
  EXPECT_EQ(Dequantize(kNvFp4, q, 1, 3, 0.5f), values);
  // The largest of all with the tensor's own global scale: the largest scale, the largest element.
  EXPECT_EQ(ScaleOf(kNvFp4, ScaleRounding::kCeil, {2688 * 3, 1}, NvFp4GlobalScale(2688 * 3)),
            0x7Eu);
  // A scale that rounds up clips nothing; one that rounds down makes 6.x saturate at 6.
  EXPECT_EQ(Dequantize(kNvFp4, Quantize(kNvFp4, ScaleRounding::kCeil, {6.3f}, 1), 1, 1), Floats{6});
  // Beyond the largest scale all saturates.
  EXPECT_EQ(Dequantize(kNvFp4, Quantize(kNvFp4, ScaleRounding::kCeil, {1e9f, -1e9f}, 1), 1, 2),
            (Floats{2688, -2688}));
}

TEST(BlockTest, TheGlobalScaleIsTheLargestOver2688AndAlwaysUsable) {
  EXPECT_EQ(NvFp4GlobalScale(2688), 1);
  EXPECT_EQ(NvFp4GlobalScale(1344), 0.5f);
  EXPECT_EQ(NvFp4GlobalScale(0x1p-130f), 0x1p-126f);
  for (const float amax : {0.0f, -0.0f, INFINITY, NAN}) EXPECT_EQ(NvFp4GlobalScale(amax), 1);
}

TEST(BlockTest, ZerosHaveTheSmallestScaleAndStayZeros) {
  for (const BlockFormat& format : kFormats) {
    for (const ScaleRounding rounding : kRoundings) {
      const Floats values = {0.0f, -0.0f, 0.0f};
      const Quantized q = Quantize(format, rounding, values, 1);
      EXPECT_EQ(q.scales, Bytes{std::byte{0}});
      const uint32_t minus = format.element == DType::kF4E2M1FN ? 0x8 : 0x80;
      EXPECT_EQ(BitsAt(format.element, q.elements, 0), 0u);
      EXPECT_EQ(BitsAt(format.element, q.elements, 1), minus);
      const Floats back = Dequantize(format, q, 1, 3);
      EXPECT_EQ(BytesOfValues(back), BytesOfValues(values));
    }
  }
}

TEST(BlockTest, BelowTheSmallestScaleNothingIsLeft) {
  // 6 * 2^-10 is 6 times half of e4m3's smallest: a tie, to 0.
  const Quantized q = Quantize(kNvFp4, ScaleRounding::kCeil, {-6 * 0x1p-10f, 0x1p-10f}, 1);
  EXPECT_EQ(q.scales, Bytes{std::byte{0}});
  EXPECT_EQ(q.elements, Bytes{std::byte{0x08}});
  // MX has no scale that is 0: here it is 2^-127, and f32's smallest is too little beside it.
  const Quantized mx = Quantize(kMxFp8E4M3, ScaleRounding::kCeil, {0x1p-149f, 0x1p-130f}, 1);
  EXPECT_EQ(mx.scales, Bytes{std::byte{0}});
  EXPECT_EQ(Dequantize(kMxFp8E4M3, mx, 1, 2), (Floats{0, 0x1p-130f}));
}

TEST(BlockTest, NanIsInTheScaleAndSpoilsItsBlockAlone) {
  for (const BlockFormat& format : kFormats) {
    for (const ScaleRounding rounding : kRoundings) {
      Floats values(2 * format.block, -1.0f);
      values[1] = -NAN;
      values[2] = INFINITY;
      const uint64_t sign = format.element == DType::kF4E2M1FN ? 0x8 : 0x80;
      const Quantized q = Quantize(format, rounding, values, 1);
      EXPECT_EQ(static_cast<uint32_t>(q.scales[0]),
                format.scale == DType::kF8E8M0FNU ? 0xFFu : 0x7Fu);
      const Floats back = Dequantize(format, q, 1, values.size());
      for (uint64_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(std::isnan(back[i]), i < format.block);
        if (i < format.block) {
          EXPECT_EQ(BitsAt(format.element, q.elements, i), i == 1 || i == 2 ? 0 : sign) << i;
        }
      }
    }
  }
}

TEST(BlockTest, InfinityStaysOneInMxAndSaturatesInNvFp4) {
  for (const BlockFormat& format : kFormats) {
    for (const ScaleRounding rounding : kRoundings) {
      const Quantized q = Quantize(format, rounding, {-INFINITY, 1, 0x1p127f}, 1);
      const Floats back = Dequantize(format, q, 1, 3);
      if (format.scale == DType::kF8E8M0FNU) {
        EXPECT_EQ(q.scales, Bytes{std::byte{0xFE}});
        EXPECT_EQ(back, (Floats{-INFINITY, 0, 0x1p127f}));
      } else {
        EXPECT_EQ(q.scales, Bytes{std::byte{0x7E}});
        EXPECT_EQ(back, (Floats{-2688, 0, 2688}));
      }
    }
  }
}

const Definition& DefinitionOf(DType type) {
  return *std::find_if(Definitions().begin(), Definitions().end(),
                       [type](const Definition& definition) { return definition.type == type; });
}

// Every element is the nearest to value / scale, every scale the one its rounding says, and what is
// read back is element * scale; for any shape.
TEST(BlockTest, RandomTensorsFollowTheRecipe) {
  std::mt19937 random(70);
  std::normal_distribution<double> normal;
  for (const BlockFormat& standard : kFormats) {
    const NearestOracle oracle(DefinitionOf(standard.element));
    const NearestOracle e4m3(DefinitionOf(DType::kF8E4M3FN));
    const long double largest = oracle.values()[DefinitionOf(standard.element).max];
    for (int round = 0; round < 60; ++round) {
      BlockFormat format = standard;
      if (round % 4 == 3) format.block = 1 + random() % 50;
      const ScaleRounding rounding = kRoundings[random() % 3];
      const uint64_t rows = random() % 5, columns = random() % 150;
      const double size = std::exp2(static_cast<double>(random() % 60) - 30);
      Floats values(rows * columns);
      for (float& value : values) value = static_cast<float>(normal(random) * size);
      const float global = round % 2 == 0 ? 1.0f : static_cast<float>(size / 300);
      const Quantized q = Quantize(format, rounding, values, rows, global);
      const Floats back = Dequantize(format, q, rows, columns, global);
      for (uint64_t i = 0; i < values.size(); ++i) {
        const uint64_t row = i / columns, column = i % columns;
        const uint64_t begin = column / format.block * format.block;
        const uint64_t end = std::min(begin + format.block, columns);
        float amax = 0;
        for (uint64_t k = begin; k < end; ++k) {
          amax = std::max(amax, std::fabs(values[row * columns + k] / global));
        }
        const auto code = static_cast<uint32_t>(
            q.scales[row * ScaleColumns(columns, format.block) + column / format.block]);
        const float scale = DecodeFloat(format.scale, code);
        const float value = values[i] / global;
        if (format.scale == DType::kF8E8M0FNU) {
          // The floor of log2(amax) less that of the largest element's, and up from there.
          const int floor = std::ilogb(amax) - std::ilogb(largest);
          const float mantissa = amax / std::exp2(static_cast<float>(std::ilogb(amax)));
          const bool up = (rounding == ScaleRounding::kCeil &&
                           mantissa > largest / std::exp2(std::ilogb(largest))) ||
                          (rounding == ScaleRounding::kNearestHalfUp && mantissa >= 1.5f);
          ASSERT_EQ(code, static_cast<uint32_t>(127 + floor + (up ? 1 : 0))) << amax;
          if (rounding != ScaleRounding::kFloor) {
            ASSERT_LE(amax / scale, largest);  // nothing is clipped
          }
        } else {
          ASSERT_EQ(
              code,
              NearestOracle(DefinitionOf(format.scale)).Encode(amax / 6.0f, Overflow::kSaturate));
        }
        const float quotient = scale == 0 ? std::copysign(0.0f, value) : value / scale;
        const uint64_t element = BitsAt(format.element, q.elements, i);
        ASSERT_EQ(element, oracle.Encode(quotient, Overflow::kSaturate)) << values[i];
        ASSERT_EQ(back[i],
                  DecodeFloat(format.element, static_cast<uint32_t>(element)) * scale * global);
      }
      if (format.element == DType::kF4E2M1FN && values.size() % 2 == 1) {
        EXPECT_EQ(q.elements.back() >> 4, std::byte{0});
      }
      // What was read back is exact. (Half up may find twice the scale, and lose a bit.)
      if (global == 1 && format.scale == DType::kF8E8M0FNU &&
          rounding != ScaleRounding::kNearestHalfUp) {
        const Quantized again = Quantize(format, rounding, back, rows);
        EXPECT_EQ(Dequantize(format, again, rows, columns), back);
      }
    }
  }
}

TEST(BlockTest, SurplusScalesAreNotLookedAt) {
  std::mt19937 random(71);
  constexpr uint64_t kRows = 3, kColumns = 70;
  Floats values(kRows * kColumns);
  for (float& value : values) value = static_cast<float>(random() % 1000) - 500;
  for (const BlockFormat& format : kFormats) {
    const Quantized q = Quantize(format, ScaleRounding::kCeil, values, kRows);
    const uint64_t needed = ScaleColumns(kColumns, format.block);
    const uint64_t padded = needed + 3;
    Bytes scales(kRows * padded, std::byte{0xFF});
    for (uint64_t row = 0; row < kRows; ++row) {
      std::copy_n(q.scales.begin() + row * needed, needed, scales.begin() + row * padded);
    }
    Floats out(values.size());
    DequantizeBlocks(format, q.elements.data(), scales.data(), padded, kRows, kColumns, out.data());
    EXPECT_EQ(out, Dequantize(format, q, kRows, kColumns));
  }
}

TEST(BlockTest, TheGlobalScaleIsMultipliedWhateverItIs) {
  const Quantized q = Quantize(kNvFp4, ScaleRounding::kCeil, {6, -3, 0}, 1);
  EXPECT_EQ(Dequantize(kNvFp4, q, 1, 3, -2), (Floats{-12, 6, -0.0f}));
  EXPECT_EQ(BytesOfValues(Dequantize(kNvFp4, q, 1, 3, 0)), BytesOfValues<float>({0, -0.0f, 0}));
  const Floats infinite = Dequantize(kNvFp4, q, 1, 3, INFINITY);
  EXPECT_EQ(infinite[0], INFINITY);
  EXPECT_EQ(infinite[1], -INFINITY);
  EXPECT_TRUE(std::isnan(infinite[2]));
}

TEST(BlockTest, ElementTimesScaleIsExactWhereItsExponentIsInTheWindow) {
  struct Window {
    DType element;
    int bf16_first, last;  // bf16 with its subnormals; f32 from -127 on
  };
  for (const Window& window :
       {Window{DType::kF8E4M3FN, -124, 119}, Window{DType::kF8E5M2, -117, 112},
        Window{DType::kF4E2M1FN, -127, 125}}) {
    const Definition& definition = DefinitionOf(window.element);
    const NearestOracle oracle(definition);
    for (uint32_t code = 0; code <= definition.max; ++code) {
      const long double value = oracle.values()[code];
      for (int k = -127; k <= window.last; ++k) {
        const Quantized one{FromBits(window.element, {code}),
                            FromBits(DType::kF8E8M0FNU, {static_cast<uint64_t>(k + 127)})};
        const float got = Dequantize({window.element, DType::kF8E8M0FNU, 32}, one, 1, 1).front();
        ASSERT_EQ(got, std::ldexp(value, k)) << code << " 2^" << k;
        if (k >= window.bf16_first) {
          ASSERT_EQ(DecodeFloat(DType::kBF16, EncodeFloat(DType::kBF16, got)), got)
              << code << " 2^" << k;
        }
      }
    }
  }
}

TEST(BlockTest, ABlocksSizeIsGivenOrImplied) {
  EXPECT_EQ(BlockSize(192, 6, std::nullopt).value(), 32u);
  EXPECT_EQ(BlockSize(192, 6, 32).value(), 32u);
  EXPECT_EQ(BlockSize(192, 8, 32).value(), 32u);  // padded
  EXPECT_EQ(BlockSize(193, 7, 32).value(), 32u);
  EXPECT_EQ(BlockSize(0, 0, std::nullopt).value(), 1u);
  EXPECT_EQ(BlockSize(0, 4, 16).value(), 16u);
  struct Bad {
    uint64_t columns, scales;
    std::optional<uint64_t> block;
    const char* text;
  };
  for (const Bad& bad :
       {Bad{193, 6, std::nullopt, "block scales: 193 columns, 6 scales, no block given: the"},
        Bad{192, 0, std::nullopt, "192 columns, 0 scales"},
        Bad{0, 3, std::nullopt, "0 columns, 3 scales"},
        Bad{193, 6, 32, "193 columns, 6 scales, block 32: needs 7 scales"},
        Bad{192, 6, 0, "block 0: a block has at least one element"}}) {
    const auto got = BlockSize(bad.columns, bad.scales, bad.block);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(got.status().message()).find(bad.text), std::string::npos)
        << got.status();
  }
}

}  // namespace
}  // namespace ferry::compute::testing
