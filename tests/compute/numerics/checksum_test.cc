// SPDX-License-Identifier: Apache-2.0
// The golden values are those of the Python of docs/numerics.md, which tests/tools/numerics_test.py
// runs.
#include "compute/numerics/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ferry::compute {
namespace {

std::vector<std::byte> Squares(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * i % 251);
  return bytes;
}

TEST(ChecksumTest, IsWhatTheDocumentationSays) {
  const auto expect = [](const std::vector<std::byte>& bytes, uint64_t low, uint64_t high) {
    EXPECT_EQ(ChecksumOf(bytes.data(), bytes.size()), (Checksum{low, high})) << bytes.size();
  };
  expect({}, 0, 0);
  expect({std::byte{'f'}, std::byte{'e'}, std::byte{'r'}, std::byte{'r'}, std::byte{'y'}},
         0x43770BF37C7A14F5, 0xB888D9065EB40165);
  expect(Squares(1000), 0x595772BAC80FBAF5, 0x7127E3ECCA2E2504);
  expect(std::vector<std::byte>(64), 0x8863A40A8F62652A, 0x3B3C67DCABC3FFB2);
}

TEST(ChecksumTest, PartsAddUpInAnyOrder) {
  const std::vector<std::byte> bytes = Squares(1003);
  Checksum sum = ChecksumPart(bytes.data() + 800, 203, 100);
  sum += ChecksumPart(bytes.data(), 8, 0);
  sum += ChecksumPart(bytes.data() + 8, 792, 1);
  EXPECT_EQ(WholeChecksum(sum, 1003), ChecksumOf(bytes.data(), 1003));
}

TEST(ChecksumTest, KnowsPlacesAndTheLength) {
  std::vector<std::byte> bytes = Squares(64);
  const Checksum before = ChecksumOf(bytes.data(), 64);
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 32);
  EXPECT_FALSE(ChecksumOf(bytes.data(), 64) == before);
  const std::vector<std::byte> zeros(16);
  EXPECT_FALSE(ChecksumOf(zeros.data(), 9) == ChecksumOf(zeros.data(), 10));
  EXPECT_FALSE(ChecksumOf(zeros.data(), 8) == ChecksumOf(zeros.data(), 16));
}

}  // namespace
}  // namespace ferry::compute
