// SPDX-License-Identifier: Apache-2.0
// The fast loops of block formats give the bits of numerics/block.h.
#include "compute/host/block_loops.h"

// As those are compiled.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {
namespace {

using Codes = std::vector<std::byte>;

struct Shape {
  uint64_t rows, columns, block;
};
constexpr Shape kShapes[] = {{3, 128, 32}, {5, 133, 32},    {4, 77, 7}, {2, 600, 16},
                             {3, 5, 1},    {1, 2000, 1500}, {7, 1, 32}, {2, 64, 48}};
const BlockFormat kFormats[] = {kMxFp8E4M3, kMxFp8E5M2, kMxFp4, kNvFp4};

// Of every exponent, and what is special.
std::vector<float> Values(uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  const int center = static_cast<int>(random() % 250) - 125;
  for (float& value : values) {
    const float unit = static_cast<float>(random() % 20001) / 10000 - 1;
    value = std::ldexp(unit, center - static_cast<int>(random() % 8));
    if (random() % 2000 == 0) value = std::numeric_limits<float>::quiet_NaN();
    if (random() % 2000 == 0) value = -std::numeric_limits<float>::infinity();
    if (random() % 50 == 0) value = -0.0f;
  }
  return values;
}

// Each of the CPU's levels of instructions that the loops were made for.
class BlockLoopsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

void CompareQuantised(const BlockFormat& format, ScaleRounding rounding, DType from,
                      std::vector<float> values, uint64_t rows, uint64_t columns, float global,
                      const std::string& what) {
  const uint64_t count = rows * columns;
  Codes in(BytesOf(from, count));
  Convert(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), from, in.data(), count);
  Convert(from, in.data(), DType::kF32, reinterpret_cast<std::byte*>(values.data()), count);
  const uint64_t scales = rows * ScaleColumns(columns, format.block);
  Codes elements(BytesOf(format.element, count)), scale_codes(scales);
  Codes fast_elements(elements.size(), std::byte{0xAA}), fast_scales(scales);
  QuantizeBlocks(format, rounding, values.data(), rows, columns, elements.data(),
                 scale_codes.data(), global);
  QuantizeBlocksFast(format, rounding, from, in.data(), rows, columns, fast_elements.data(),
                     fast_scales.data(), global);
  ASSERT_TRUE(fast_scales == scale_codes) << what;
  ASSERT_TRUE(fast_elements == elements) << what;
}

TEST_P(BlockLoopsTest, QuantiseToTheSameBits) {
  for (const BlockFormat& of_type : kFormats) {
    for (const Shape& shape : kShapes) {
      for (uint64_t seed = 0; seed < 60; ++seed) {
        BlockFormat format = of_type;
        format.block = shape.block;
        const uint64_t count = shape.rows * shape.columns;
        std::vector<float> values = Values(count, seed);
        if (seed % 9 == 0) values.assign(count, -0.0f);
        const float global = seed % 3 == 0 ? 1 : std::ldexp(1.3f, static_cast<int>(seed) - 30);
        const auto rounding = static_cast<ScaleRounding>(seed % 3);
        for (const DType from : {DType::kF32, DType::kBF16}) {
          ASSERT_NO_FATAL_FAILURE(
              CompareQuantised(format, rounding, from, values, shape.rows, shape.columns, global,
                               absl::StrCat("seed ", seed, " block ", format.block)));
        }
      }
    }
  }
}

// What is out of the ordinary, at every place of a block, beside a block of ordinary values and
// one of zeros.
TEST_P(BlockLoopsTest, QuantiseOddValuesAtEveryPlace) {
  constexpr uint64_t kRow = 96;
  const float infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                       -std::numeric_limits<float>::quiet_NaN(),
                       infinity,
                       -infinity,
                       std::numeric_limits<float>::denorm_min(),
                       -std::ldexp(1.5f, -130),
                       std::numeric_limits<float>::min(),
                       std::numeric_limits<float>::max(),
                       -0.0f,
                       std::ldexp(1.0f, -9),     // of f8e4m3fn the least, and half of it, where
                       std::ldexp(1.25f, -10)};  // the scale is 1
  for (const BlockFormat& format : kFormats) {
    for (const float value : odd) {
      for (uint64_t place = 0; place < 32; ++place) {
        std::vector<float> values(kRow);
        for (uint64_t i = 0; i < 64; ++i) values[i] = std::ldexp(1.0f + i / 64.0f, place % 9);
        values[place] = values[64 + place] = value;
        for (const DType from : {DType::kF32, DType::kBF16}) {
          for (int rounding = 0; rounding < 3; ++rounding) {
            ASSERT_NO_FATAL_FAILURE(CompareQuantised(
                format, static_cast<ScaleRounding>(rounding), from, values, 1, kRow, 1,
                absl::StrCat("value ", value, " at ", place, " rounding ", rounding)));
          }
        }
      }
    }
  }
}

// Every exponent of the largest magnitude, with the mantissas about which a scale is the next one.
TEST_P(BlockLoopsTest, ScalesAreTheSameAroundEveryStep) {
  for (const BlockFormat& format : kFormats) {
    for (uint32_t exponent = 0; exponent < 255; ++exponent) {
      std::vector<float> values;
      for (const uint32_t about : {0x000000u, 0x400000u, 0x600000u, 0x7FFFFFu}) {
        for (const uint32_t beside : {0x7FFFFFu, 0u, 1u}) {
          const uint32_t bits = exponent << 23 | ((about + beside) & 0x7FFFFF);
          for (uint64_t i = 0; i < format.block; ++i) {
            values.push_back(std::bit_cast<float>(bits) / static_cast<float>(i % 7 + 1));
          }
        }
      }
      for (int rounding = 0; rounding < 3; ++rounding) {
        ASSERT_NO_FATAL_FAILURE(CompareQuantised(format, static_cast<ScaleRounding>(rounding),
                                                 DType::kF32, values, 1, values.size(), 1,
                                                 absl::StrCat("exponent ", exponent)));
      }
    }
  }
}

TEST_P(BlockLoopsTest, DequantiseToTheSameBits) {
  for (const BlockFormat& of_type : kFormats) {
    for (const Shape& shape : kShapes) {
      for (uint64_t seed = 0; seed < 30; ++seed) {
        BlockFormat format = of_type;
        format.block = shape.block;
        std::mt19937_64 random(seed);
        const uint64_t count = shape.rows * shape.columns;
        const uint64_t columns = ScaleColumns(shape.columns, format.block) + seed % 2;
        Codes elements(BytesOf(format.element, count)), scales(shape.rows * columns);
        for (std::byte& code : elements) {
          code = static_cast<std::byte>(random());
          // Tensors without NaN and infinity, as most are, go another way.
          if (seed % 4 != 0 && format.element != DType::kF4E2M1FN) code &= std::byte{0xF7};
          if (seed % 4 != 0 && format.element == DType::kF8E5M2) code &= std::byte{0xBF};
        }
        for (std::byte& code : scales) code = static_cast<std::byte>(random());
        const float global = seed % 3 == 0 ? 1 : -0.7f;
        std::vector<float> values(count);
        DequantizeBlocks(format, elements.data(), scales.data(), columns, shape.rows, shape.columns,
                         values.data(), global);
        for (const DType to : {DType::kF32, DType::kBF16}) {
          Codes expected(BytesOf(to, count)), got(BytesOf(to, count));
          Convert(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), to,
                  expected.data(), count);
          DequantizeBlocksFast(format, elements.data(), scales.data(), columns, shape.rows,
                               shape.columns, to, got.data(), global);
          for (uint64_t i = 0; i < count; ++i) {
            // The sign and the payload of a NaN in f32 are open.
            if (to == DType::kF32 && std::isnan(values[i])) continue;
            const uint64_t bytes = BytesOf(to, 1);
            ASSERT_EQ(std::memcmp(&expected[i * bytes], &got[i * bytes], bytes), 0)
                << "seed " << seed << " element " << i;
          }
        }
      }
    }
  }
}

// Each code with each scale.
TEST_P(BlockLoopsTest, DequantiseAllCodesOfAllScales) {
  for (const BlockFormat& format : kFormats) {
    const int bits = format.element == DType::kF4E2M1FN ? 4 : 8;
    const uint64_t columns = uint64_t{1} << bits;
    Codes elements(BytesOf(format.element, columns));
    for (const bool finite : {false, true}) {
      for (uint64_t i = 0; i < columns; ++i) {
        // Without NaN and infinity there are fewer than codes.
        const uint64_t most = !finite || bits == 4                 ? 0x7F
                              : format.element == DType::kF8E4M3FN ? 0x7E
                                                                   : 0x7B;
        const uint64_t code = bits == 4 ? i : (i & 0x80) | std::min(i & 0x7F, most);
        if (bits == 8) {
          elements[i] = static_cast<std::byte>(code);
        } else {
          elements[i / 2] |= static_cast<std::byte>(code << (i % 2 * 4));
        }
      }
      for (uint32_t scale = 0; scale < 256; ++scale) {
        const Codes scales(ScaleColumns(columns, format.block), static_cast<std::byte>(scale));
        std::vector<float> values(columns);
        DequantizeBlocks(format, elements.data(), scales.data(), scales.size(), 1, columns,
                         values.data());
        std::vector<uint16_t> expected(columns), got(columns);
        Convert(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), DType::kBF16,
                reinterpret_cast<std::byte*>(expected.data()), columns);
        DequantizeBlocksFast(format, elements.data(), scales.data(), scales.size(), 1, columns,
                             DType::kBF16, reinterpret_cast<std::byte*>(got.data()), 1);
        ASSERT_EQ(got, expected) << "scale " << scale;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, BlockLoopsTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace ferry::compute
