// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/checksum.h"

#include <cstring>

namespace ferry::compute {
namespace {

inline uint64_t Folded(uint64_t x) { return x ^ x >> 32; }

inline void AddWord(uint64_t word, uint64_t place, Checksum& sum) {
  uint64_t x = word + place;
  x = Folded(x) * kChecksumMix;
  x = Folded(x) * kChecksumMix;
  x = Folded(x);
  sum.low += Folded(x * kChecksumLow);
  sum.high += Folded((x >> 32 | x << 32) * kChecksumHigh);
}

}  // namespace

Checksum ChecksumPart(const std::byte* data, uint64_t bytes, uint64_t first_word) {
  Checksum sum;
  uint64_t place = (first_word + 1) * kChecksumPlace;
  const uint64_t words = bytes / kChecksumWord;
  for (uint64_t i = 0; i < words; ++i, place += kChecksumPlace) {
    uint64_t word;
    std::memcpy(&word, data + i * kChecksumWord, sizeof(word));
    AddWord(word, place, sum);
  }
  if (const uint64_t rest = bytes % kChecksumWord; rest > 0) {
    uint64_t word = 0;
    std::memcpy(&word, data + words * kChecksumWord, rest);
    AddWord(word, place, sum);
  }
  return sum;
}

}  // namespace ferry::compute
