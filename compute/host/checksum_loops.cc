// SPDX-License-Identifier: Apache-2.0
// This file includes itself once a target of Highway's dispatch.
#include "compute/host/checksum_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/host/checksum_loops.cc"
// Three levels of x86 are enough, as in block_loops.cc.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <numeric>

HWY_BEFORE_NAMESPACE();
namespace ferry::compute {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Words64 = hn::ScalableTag<uint64_t>;
using Word64s = hn::Vec<Words64>;
constexpr Words64 u64;

HWY_INLINE Word64s Folded(Word64s x) { return hn::Xor(x, hn::ShiftRight<32>(x)); }

// Unsigned, so that it may wrap: the sum that compilers have for vectors of 512 bits is signed.
uint64_t SumOf(Word64s words) {
  HWY_ALIGN uint64_t lanes[hn::MaxLanes(u64)];
  hn::Store(words, u64, lanes);
  return std::accumulate(lanes, lanes + hn::Lanes(u64), uint64_t{0});
}

// Of whole vectors; returns how many words that are.
uint64_t SumWords(const std::byte* data, uint64_t words, uint64_t first_word, Checksum& sum) {
  const uint64_t lanes = hn::Lanes(u64);
  const Word64s mix = hn::Set(u64, kChecksumMix);
  const Word64s low_factor = hn::Set(u64, kChecksumLow);
  const Word64s high_factor = hn::Set(u64, kChecksumHigh);
  const Word64s step = hn::Set(u64, lanes * kChecksumPlace);
  Word64s place = hn::Mul(hn::Add(hn::Iota(u64, 0), hn::Set(u64, first_word + 1)),
                          hn::Set(u64, kChecksumPlace));
  Word64s low = hn::Zero(u64);
  Word64s high = hn::Zero(u64);
  uint64_t i = 0;
  for (; i + lanes <= words; i += lanes) {
    const auto* const at = reinterpret_cast<const uint64_t*>(data + i * kChecksumWord);
    Word64s x = hn::Add(hn::LoadU(u64, at), place);
    x = hn::Mul(Folded(x), mix);
    x = hn::Mul(Folded(x), mix);
    x = Folded(x);
    low = hn::Add(low, Folded(hn::Mul(x, low_factor)));
    high = hn::Add(high, Folded(hn::Mul(hn::RotateRight<32>(x), high_factor)));
    place = hn::Add(place, step);
  }
  sum.low += SumOf(low);
  sum.high += SumOf(high);
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::compute {

HWY_EXPORT(SumWords);

Checksum ChecksumPartFast(const std::byte* data, uint64_t bytes, uint64_t first_word) {
  Checksum sum;
  const uint64_t done =
      HWY_DYNAMIC_DISPATCH(SumWords)(data, bytes / kChecksumWord, first_word, sum);
  const uint64_t begin = done * kChecksumWord;
  sum += ChecksumPart(data + begin, bytes - begin, first_word + done);
  return sum;
}

}  // namespace ferry::compute
#endif
