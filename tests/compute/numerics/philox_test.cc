// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/philox.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace ferry::compute {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that Random123 publishes for philox4x32 with 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({}, {}).words, (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(Philox4x32({{kOnes, kOnes}}, {{kOnes, kOnes, kOnes, kOnes}}).words,
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(
      Philox4x32({{0xA4093822, 0x299F31D0}}, {{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}})
          .words,
      (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(PhiloxTest, TheStreamIsTheBlocksOfCountingUpWithCarry) {
  const PhiloxKey key{{7, 8}};
  const PhiloxBlock counter{{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 5}};
  std::array<Words, 2> stream;
  RandomBytes(key, counter, 0, reinterpret_cast<std::byte*>(stream.data()), sizeof stream);
  EXPECT_EQ(stream[0], Philox4x32(key, counter).words);
  EXPECT_EQ(stream[1], Philox4x32(key, {{0, 0, 0, 6}}).words);
  // A place beyond 2^32 blocks, and past the last counter of all.
  Words far;
  RandomBytes(key, {{1, 2, 3, 4}}, (uint64_t{3} << 32 | 9) * 16,
              reinterpret_cast<std::byte*>(far.data()), sizeof far);
  EXPECT_EQ(far, Philox4x32(key, {{10, 5, 3, 4}}).words);
  RandomBytes(key, {{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}}, 16,
              reinterpret_cast<std::byte*>(far.data()), sizeof far);
  EXPECT_EQ(far, Philox4x32(key, {}).words);
}

TEST(PhiloxTest, TilesOfAnySizeGiveTheSameBits) {
  const PhiloxKey key{{1, 2}};
  const PhiloxBlock counter{{3, 4, 5, 6}};
  std::vector<std::byte> whole(1001);
  RandomBytes(key, counter, 0, whole.data(), whole.size());
  std::mt19937 random(40);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> tiled;
    while (tiled.size() < whole.size()) {
      const size_t first = tiled.size();
      std::vector<std::byte> tile(std::min<size_t>(random() % 40, whole.size() - first));
      RandomBytes(key, counter, first, tile.data(), tile.size());
      tiled.insert(tiled.end(), tile.begin(), tile.end());
    }
    ASSERT_EQ(tiled, whole);
  }
}

}  // namespace
}  // namespace ferry::compute
