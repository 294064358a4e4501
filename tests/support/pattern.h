// SPDX-License-Identifier: Apache-2.0
// Bytes that show where they come from: by a seed and their place. Header only and without gtest,
// because client processes use it too. Any thread.
#pragma once

#include <cstdint>
#include <cstring>

namespace ferry::testing {

// The bytes of word `index` of the stream of `seed`.
inline uint64_t PatternWord(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + index;
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 29);
}

// `at`: where in the stream the bytes begin; a multiple of 8.
inline void FillPattern(void* data, uint64_t bytes, uint64_t seed, uint64_t at = 0) {
  auto* out = static_cast<unsigned char*>(data);
  for (uint64_t i = 0; i * 8 < bytes; ++i) {
    const uint64_t word = PatternWord(seed, at / 8 + i);
    const uint64_t left = bytes - i * 8;
    memcpy(out + i * 8, &word, left < 8 ? left : 8);
  }
}

// Where the bytes first differ from the stream of `seed`, rounded down to a word; `bytes` if
// nowhere.
inline uint64_t FirstDifference(const void* data, uint64_t bytes, uint64_t seed, uint64_t at = 0) {
  const auto* in = static_cast<const unsigned char*>(data);
  for (uint64_t i = 0; i * 8 < bytes; ++i) {
    const uint64_t word = PatternWord(seed, at / 8 + i);
    const uint64_t left = bytes - i * 8;
    if (memcmp(in + i * 8, &word, left < 8 ? left : 8) != 0) return i * 8;
  }
  return bytes;
}

inline bool HasPattern(const void* data, uint64_t bytes, uint64_t seed) {
  return FirstDifference(data, bytes, seed) == bytes;
}

}  // namespace ferry::testing
