// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 by the element's index, so that no tiling can be seen.
#pragma once

#include "types.cuh"

struct PhiloxBlock {
  u32 words[4];
};

// Block `index` of the stream of `key` and `counter`.
FERRY_DEVICE PhiloxBlock Philox(u64 key, u64 counter, u64 index) {
  const u64 low = counter + index;
  u32 x0 = static_cast<u32>(low), x1 = static_cast<u32>(low >> 32);
  u32 x2 = low < counter ? 1 : 0, x3 = 0;
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
  FERRY_UNROLL
  for (int round = 0; round < 10; ++round) {
    const u64 even = static_cast<u64>(0xD2511F53u) * x0;
    const u64 odd = static_cast<u64>(0xCD9E8D57u) * x2;
    x0 = static_cast<u32>(odd >> 32) ^ x1 ^ k0;
    x1 = static_cast<u32>(odd);
    x2 = static_cast<u32>(even >> 32) ^ x3 ^ k1;
    x3 = static_cast<u32>(even);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{x0, x1, x2, x3}};
}

template <typename T>
FERRY_DEVICE T RandomBits(u64 key, u64 counter, u64 index) {
  if constexpr (sizeof(T) == 8) {
    const PhiloxBlock block = Philox(key, counter, index / 2);
    const u32 low = index % 2 == 0 ? block.words[0] : block.words[2];
    const u32 high = index % 2 == 0 ? block.words[1] : block.words[3];
    return static_cast<T>(low | static_cast<u64>(high) << 32);
  } else {
    const PhiloxBlock block = Philox(key, counter, index / 4);
    const u32 which = index % 4;
    return static_cast<T>(which < 2 ? (which == 0 ? block.words[0] : block.words[1])
                                    : (which == 2 ? block.words[2] : block.words[3]));
  }
}
