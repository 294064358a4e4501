// SPDX-License-Identifier: Apache-2.0
// The fast loops of block formats give the bits of numerics/block.h.
#include "compute/host/block_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

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

TEST(BlockLoopsTest, QuantiseToTheSameBits) {
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
          Codes in(BytesOf(from, count));
          Convert(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), from, in.data(),
                  count);
          Convert(from, in.data(), DType::kF32, reinterpret_cast<std::byte*>(values.data()), count);
          const uint64_t scales = shape.rows * ScaleColumns(shape.columns, format.block);
          Codes elements(BytesOf(format.element, count)), scale_codes(scales);
          Codes fast_elements(elements.size(), std::byte{0xAA}), fast_scales(scales);
          QuantizeBlocks(format, rounding, values.data(), shape.rows, shape.columns,
                         elements.data(), scale_codes.data(), global);
          QuantizeBlocksFast(format, rounding, from, in.data(), shape.rows, shape.columns,
                             fast_elements.data(), fast_scales.data(), global);
          ASSERT_TRUE(fast_scales == scale_codes) << "seed " << seed << " block " << format.block;
          ASSERT_TRUE(fast_elements == elements) << "seed " << seed << " block " << format.block;
        }
      }
    }
  }
}

TEST(BlockLoopsTest, DequantiseToTheSameBits) {
  for (const BlockFormat& of_type : kFormats) {
    for (const Shape& shape : kShapes) {
      for (uint64_t seed = 0; seed < 30; ++seed) {
        BlockFormat format = of_type;
        format.block = shape.block;
        std::mt19937_64 random(seed);
        const uint64_t count = shape.rows * shape.columns;
        const uint64_t columns = ScaleColumns(shape.columns, format.block) + seed % 2;
        Codes elements(BytesOf(format.element, count)), scales(shape.rows * columns);
        for (std::byte& code : elements) code = static_cast<std::byte>(random());
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

}  // namespace
}  // namespace ferry::compute
