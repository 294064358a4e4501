// SPDX-License-Identifier: Apache-2.0
// The checksum of bytes: 128 bits, as docs/numerics.md defines them. It is a sum over words that
// knows each word's place, so parts may be added up in any order. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

struct Checksum {
  uint64_t low = 0;
  uint64_t high = 0;

  Checksum& operator+=(const Checksum& other) {
    low += other.low;
    high += other.high;
    return *this;
  }
  bool operator==(const Checksum& other) const = default;
};

inline constexpr uint64_t kChecksumWord = 8;  // bytes
// Odd, with bits as random ones have them: of the golden ratio, and of MurmurHash3 and SplitMix64.
inline constexpr uint64_t kChecksumPlace = 0x9E3779B97F4A7C15;
inline constexpr uint64_t kChecksumMix = 0xFF51AFD7ED558CCD;
inline constexpr uint64_t kChecksumLow = 0xBF58476D1CE4E5B9;
inline constexpr uint64_t kChecksumHigh = 0x94D049BB133111EB;

// What `bytes` bytes add to the checksum of all, of which word `first_word` begins here. Only the
// end of all may end within a word.
Checksum ChecksumPart(const std::byte* data, uint64_t bytes, uint64_t first_word);

// The checksum of data of that many bytes whose parts add up to `parts`.
inline Checksum WholeChecksum(Checksum parts, uint64_t bytes) {
  parts.low += bytes;
  return parts;
}
inline Checksum ChecksumOf(const std::byte* data, uint64_t bytes) {
  return WholeChecksum(ChecksumPart(data, bytes, 0), bytes);
}

}  // namespace ferry::compute
