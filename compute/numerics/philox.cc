// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/philox.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ferry::compute {
namespace {

static_assert(std::endian::native == std::endian::little, "the stream's words are little-endian");

constexpr int kRounds = 10;
constexpr std::array<uint32_t, 2> kMultipliers = {0xD2511F53, 0xCD9E8D57};
constexpr std::array<uint32_t, 2> kKeySteps = {0x9E3779B9, 0xBB67AE85};

PhiloxBlock Add(PhiloxBlock counter, uint64_t blocks) {
  uint64_t carry = 0;
  for (size_t i = 0; i < counter.words.size(); ++i) {
    const uint64_t part = i < 2 ? static_cast<uint32_t>(blocks >> (32 * i)) : 0;
    carry += counter.words[i] + part;
    counter.words[i] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  return counter;
}

}  // namespace

PhiloxBlock Philox4x32(PhiloxKey key, PhiloxBlock counter) {
  std::array<uint32_t, 4> x = counter.words;
  std::array<uint32_t, 2> k = key.words;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t even = uint64_t{kMultipliers[0]} * x[0];
    const uint64_t odd = uint64_t{kMultipliers[1]} * x[2];
    x = {static_cast<uint32_t>(odd >> 32) ^ x[1] ^ k[0], static_cast<uint32_t>(odd),
         static_cast<uint32_t>(even >> 32) ^ x[3] ^ k[1], static_cast<uint32_t>(even)};
    k = {k[0] + kKeySteps[0], k[1] + kKeySteps[1]};
  }
  return {x};
}

void RandomBytes(PhiloxKey key, PhiloxBlock counter, uint64_t first, std::byte* out,
                 uint64_t bytes) {
  constexpr uint64_t kBlock = sizeof(PhiloxBlock);
  while (bytes > 0) {
    const PhiloxBlock block = Philox4x32(key, Add(counter, first / kBlock));
    const uint64_t skipped = first % kBlock;
    const uint64_t part = std::min(kBlock - skipped, bytes);
    std::memcpy(out, reinterpret_cast<const std::byte*>(block.words.data()) + skipped, part);
    first += part;
    out += part;
    bytes -= part;
  }
}

}  // namespace ferry::compute
