// SPDX-License-Identifier: Apache-2.0
// checksum, delta_encode and delta_apply, as docs/numerics.md says. Each is a few launches: what
// blocks of threads count and sum up is put into memory, a launch of one block adds it up, and a
// last launch moves what has changed. No thread waits for another block.
#pragma once

#include "reduce.cuh"

constexpr int kByteThreads = 256;
constexpr int kByteWarps = kByteThreads / 32;
constexpr int kByteVectors = 4;  // that a thread reads before it computes
constexpr int kVectorBytes = 16;
constexpr int kWarpBytes = 32 * kVectorBytes;  // one vector of each thread
constexpr int kBlocksOfWord = 32;              // of the bitmap

constexpr u64 kPlaceFactor = 0x9E3779B97F4A7C15ull;
constexpr u64 kMixFactor = 0xFF51AFD7ED558CCDull;
constexpr u64 kLowFactor = 0xBF58476D1CE4E5B9ull;
constexpr u64 kHighFactor = 0x94D049BB133111EBull;

struct SumOfWords {
  u64 low = 0;
  u64 high = 0;
};

FERRY_DEVICE u64 FoldedWord(u64 x) { return x ^ x >> 32; }

FERRY_DEVICE void AddWord(u64 word, u64 place, SumOfWords& sum) {
  u64 x = word + place;
  x = FoldedWord(x) * kMixFactor;
  x = FoldedWord(x) * kMixFactor;
  x = FoldedWord(x);
  sum.low += FoldedWord(x * kLowFactor);
  sum.high += FoldedWord((x >> 32 | x << 32) * kHighFactor);
}

// What is added to the word that begins at a byte, which is a multiple of 8.
FERRY_DEVICE u64 PlaceOfWord(i64 byte) { return (static_cast<u64>(byte) / 8 + 1) * kPlaceFactor; }

// The vector at byte `at` of `bytes`; `whole`: all of it is there.
template <bool whole>
FERRY_DEVICE void AddVector(const Word16& vector, u64 place, i64 at, i64 bytes, SumOfWords& sum) {
  const u64 first = vector.words[0] | static_cast<u64>(vector.words[1]) << 32;
  const u64 second = vector.words[2] | static_cast<u64>(vector.words[3]) << 32;
  if (whole || at < bytes) AddWord(first, place, sum);
  if (whole || at + 8 < bytes) AddWord(second, place + kPlaceFactor, sum);
}

// What is behind the end is 0.
template <bool whole, int align>
FERRY_DEVICE Word16 ReadBytes(const Byte* from, i64 at, i64 bytes) {
  if (whole || at + kVectorBytes <= bytes) return Fetch<Word16, align>(from + at);
  Word16 vector = {{0, 0, 0, 0}};
  FERRY_UNROLL
  for (int k = 0; k < kVectorBytes; ++k) {
    if (at + k < bytes) vector.words[k / 4] |= static_cast<u32>(from[at + k]) << (k % 4 * 8);
  }
  return vector;
}
template <int align>
FERRY_DEVICE void WriteBytes(Byte* to, i64 at, i64 bytes, const Word16& vector) {
  if (at + kVectorBytes <= bytes) {
    Put<align>(to + at, vector);
    return;
  }
  FERRY_UNROLL
  for (int k = 0; k < kVectorBytes; ++k) {
    if (at + k < bytes) to[at + k] = static_cast<Byte>(vector.words[k / 4] >> (k % 4 * 8));
  }
}

template <typename T>
FERRY_DEVICE T SumOfWarp(T value) {
  FERRY_UNROLL
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(kWarp, value, bits);
  return value;
}
// Of this thread and those before it.
template <typename T>
FERRY_DEVICE T SumUpTo(int lane, T value) {
  FERRY_UNROLL
  for (int delta = 1; delta < 32; delta *= 2) {
    const T other = __shfl_sync(kWarp, value, lane >= delta ? lane - delta : lane);
    if (lane >= delta) value += other;
  }
  return value;
}

// The checksum of what the block of threads has read, into memory. `shared` has two words a warp.
FERRY_DEVICE void EndChecksum(SumOfWords sum, u64 (*shared)[kByteWarps], Byte* sums) {
  const u64 low = SumOfWarp(sum.low), high = SumOfWarp(sum.high);
  if (threadIdx.x % 32 == 0) {
    shared[0][threadIdx.x / 32] = low;
    shared[1][threadIdx.x / 32] = high;
  }
  __syncthreads();
  if (threadIdx.x < 2) {
    u64 all = 0;
    for (int warp = 0; warp < kByteWarps; ++warp) all += shared[threadIdx.x][warp];
    WriteOne<16>(sums, static_cast<i64>(blockIdx.x) * 2 + threadIdx.x, all);
  }
}
// How many blocks of bytes the block of threads has counted; `count` is a warp's.
FERRY_DEVICE void EndCount(u32 count, u32* shared, Byte* counts) {
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x == 0) {
    u64 all = 0;
    for (int warp = 0; warp < kByteWarps; ++warp) all += shared[warp];
    WriteOne<16>(counts, static_cast<i64>(blockIdx.x), all);
  }
}

// `units` blocks of threads go through all bytes.
template <int align>
FERRY_DEVICE void SumBytes(const Byte* from, i64 bytes, i64 units, Byte* sums) {
  __shared__ u64 shared[2][kByteWarps];
  constexpr i64 kTurn = kByteThreads * kVectorBytes;
  constexpr i64 kTile = kTurn * kByteVectors;
  SumOfWords sum;
  for (i64 tile = blockIdx.x * kTile; tile < bytes; tile += units * kTile) {
    const i64 begin = tile + threadIdx.x * kVectorBytes;
    const u64 place = PlaceOfWord(begin);
    Word16 vectors[kByteVectors];
    if (tile + kTile <= bytes) {
      FERRY_UNROLL
      for (int u = 0; u < kByteVectors; ++u) {
        vectors[u] = ReadBytes<true, align>(from, begin + u * kTurn, bytes);
      }
      FERRY_UNROLL
      for (int u = 0; u < kByteVectors; ++u) {
        AddVector<true>(vectors[u], place + u * (kTurn / 8) * kPlaceFactor, 0, bytes, sum);
      }
    } else {
      for (int u = 0; u < kByteVectors; ++u) {
        const i64 at = begin + u * kTurn;
        AddVector<false>(ReadBytes<false, align>(from, at, bytes), PlaceOfWord(at), at, bytes, sum);
      }
    }
  }
  EndChecksum(sum, shared, sums);
}

// The bits of a word of the bitmap, of the bytes from `begin` on, that the thread finds.
template <int block, int align, bool sums, bool whole>
FERRY_DEVICE u32 CompareWord(const Byte* before, const Byte* after, i64 begin, i64 bytes, int lane,
                             SumOfWords& sum) {
  constexpr int kStep = kWarpBytes * kByteVectors;
  u32 bits = 0;
  u64 place = PlaceOfWord(begin + lane * kVectorBytes);
  for (int step = 0; step < block * kBlocksOfWord; step += kStep) {
    Word16 a[kByteVectors], b[kByteVectors];
    FERRY_UNROLL
    for (int u = 0; u < kByteVectors; ++u) {
      const i64 at = begin + step + u * kWarpBytes + lane * kVectorBytes;
      a[u] = ReadBytes<whole, align>(before, at, bytes);
      b[u] = ReadBytes<whole, align>(after, at, bytes);
    }
    FERRY_UNROLL
    for (int u = 0; u < kByteVectors; ++u) {
      const u32 within = static_cast<u32>(step + u * kWarpBytes + lane * kVectorBytes);
      const u32 other = (a[u].words[0] ^ b[u].words[0]) | (a[u].words[1] ^ b[u].words[1]) |
                        (a[u].words[2] ^ b[u].words[2]) | (a[u].words[3] ^ b[u].words[3]);
      bits |= static_cast<u32>(other != 0) << (within / block);
      if constexpr (sums) {
        AddVector<whole>(b[u], place + u * (kWarpBytes / 8) * kPlaceFactor, begin + within, bytes,
                         sum);
      }
    }
    place += (kStep / 8) * kPlaceFactor;
  }
  return bits;
}

// A warp makes `words` words of the bitmap. What is counted goes to `counts`, and with `sums` the
// checksum to `checksums`.
template <int block, int align, int word_align, bool sums>
FERRY_DEVICE void CompareBlocks(const Byte* before, const Byte* after, i64 bytes, i64 words,
                                Byte* bitmap, Byte* counts, Byte* checksums) {
  __shared__ u64 shared[2][kByteWarps];
  __shared__ u32 shared_counts[kByteWarps];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const i64 first = (static_cast<i64>(blockIdx.x) * kByteWarps + threadIdx.x / 32) * words;
  constexpr i64 kWordBytes = static_cast<i64>(block) * kBlocksOfWord;
  u32 count = 0;
  SumOfWords sum;
  for (i64 word = first; word < first + words && word * kWordBytes < bytes; ++word) {
    const i64 begin = word * kWordBytes;
    u32 bits = 0;
    if (begin + kWordBytes <= bytes) {
      bits = CompareWord<block, align, sums, true>(before, after, begin, bytes, lane, sum);
    } else {
      bits = CompareWord<block, align, sums, false>(before, after, begin, bytes, lane, sum);
    }
    FERRY_UNROLL
    for (int other = 16; other > 0; other /= 2) bits |= __shfl_xor_sync(kWarp, bits, other);
    if (lane == 0) WriteOne<word_align>(bitmap, word, bits);
    count += static_cast<u32>(__popc(bits));
  }
  EndCount(count, shared_counts, counts);
  if constexpr (sums) EndChecksum(sum, shared, checksums);
}

// The words of the bitmap that a warp has to do with, one a thread, without bits that stand for no
// block.
template <int block, int word_align>
FERRY_DEVICE u32 WordOfThread(const Byte* bitmap, i64 bytes, i64 first, i64 words, int lane) {
  const i64 blocks = (bytes + block - 1) / block;
  const i64 left = blocks - (first + lane) * kBlocksOfWord;
  if (lane >= words || left <= 0) return 0;
  const u32 word = ReadOne<u32, word_align>(bitmap, first + lane);
  return left >= kBlocksOfWord ? word : word & ((1u << left) - 1);
}

template <int block, int word_align>
FERRY_DEVICE void CountBlocks(const Byte* bitmap, i64 bytes, i64 words, Byte* counts) {
  __shared__ u32 shared[kByteWarps];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const i64 first = (static_cast<i64>(blockIdx.x) * kByteWarps + threadIdx.x / 32) * words;
  const u32 word = WordOfThread<block, word_align>(bitmap, bytes, first, words, lane);
  EndCount(SumOfWarp(static_cast<u32>(__popc(word))), shared, counts);
}

// So many are under way at a time.
constexpr int kCountsAtOnce = 8;
FERRY_DEVICE u64 CountAt(const Byte* counts, i64 index, i64 end) {
  return index < end ? ReadOne<u64, 16>(counts, index) : 0;
}

// By one block of threads: adds up what `units` of them have counted and summed up. Each count
// becomes the sum of those before it, and behind them is the sum of all. Where a pointer is null
// there is nothing to do.
template <int count_align, int checksum_align>
FERRY_DEVICE void AddUp(Byte* counts, const Byte* sums, i64 units, i64 bytes, Byte* count,
                        Byte* checksum) {
  __shared__ u64 shared_counts[kByteWarps];
  __shared__ u64 shared[2][kByteWarps];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const i64 each = (units + kByteThreads - 1) / kByteThreads;
  const i64 begin = threadIdx.x * each;
  const i64 end = begin + each < units ? begin + each : units;
  u64 mine = 0;
  SumOfWords sum;
  for (i64 i = begin; i < end; i += kCountsAtOnce) {
    FERRY_UNROLL
    for (int k = 0; k < kCountsAtOnce; ++k) {
      if (counts != nullptr) mine += CountAt(counts, i + k, end);
      if (sums != nullptr) {
        sum.low += CountAt(sums, (i + k) * 2, end * 2);
        sum.high += CountAt(sums, (i + k) * 2 + 1, end * 2);
      }
    }
  }
  const u64 upto = SumUpTo(lane, mine);
  const u64 low = SumOfWarp(sum.low), high = SumOfWarp(sum.high);
  if (lane == 31) shared_counts[warp] = upto;
  if (lane == 0) {
    shared[0][warp] = low;
    shared[1][warp] = high;
  }
  __syncthreads();
  u64 before = upto - mine, all = 0;
  sum = {static_cast<u64>(bytes), 0};
  for (int other = 0; other < kByteWarps; ++other) {
    if (other < warp) before += shared_counts[other];
    all += shared_counts[other];
    sum.low += shared[0][other];
    sum.high += shared[1][other];
  }
  for (i64 i = begin; i < end && counts != nullptr; i += kCountsAtOnce) {
    u64 of[kCountsAtOnce];
    FERRY_UNROLL
    for (int k = 0; k < kCountsAtOnce; ++k) of[k] = CountAt(counts, i + k, end);
    FERRY_UNROLL
    for (int k = 0; k < kCountsAtOnce; ++k) {
      if (i + k < end) WriteOne<16>(counts, i + k, before);
      before += of[k];
    }
  }
  if (threadIdx.x > 0) return;
  if (counts != nullptr) WriteOne<16>(counts, units, all);
  if (count != nullptr) WriteOne<count_align>(count, 0, static_cast<u32>(all));
  if (checksum == nullptr) return;
  WriteOne<checksum_align>(checksum, 0, sum.low);
  WriteOne<checksum_align>(checksum, 1, sum.high);
}

// A block of bytes, by the threads of a group: out of the data at `at` to a row of the values
// (`gathers`), or the other way.
template <int block, int align, bool gathers>
FERRY_DEVICE void MoveBlock(const Byte* from, Byte* to, i64 at, i64 row, i64 bytes, int thread) {
  constexpr int kThreads = block >= kWarpBytes ? 32 : block / kVectorBytes;
  constexpr int kVectors = block / kVectorBytes / kThreads;
  Word16 vectors[kVectors];
  FERRY_UNROLL
  for (int u = 0; u < kVectors; ++u) {
    const i64 within = (u * kThreads + thread) * kVectorBytes;
    vectors[u] = gathers ? ReadBytes<false, align>(from, at + within, bytes)
                         : Fetch<Word16, align>(from + row + within);
  }
  FERRY_UNROLL
  for (int u = 0; u < kVectors; ++u) {
    const i64 within = (u * kThreads + thread) * kVectorBytes;
    if (gathers) {
      Put<align>(to + row + within, vectors[u]);
    } else {
      WriteBytes<align>(to, at + within, bytes, vectors[u]);
    }
  }
}

// A warp moves the blocks of `words` words of the bitmap, at most 32. `counts` is what AddUp has
// made of `units` counts.
template <int block, int align, int word_align, bool gathers>
FERRY_DEVICE void MoveBlocks(const Byte* bitmap, const Byte* counts, i64 units, i64 words,
                             i64 bytes, i64 capacity, const Byte* from, Byte* to) {
  __shared__ u32 shared[kByteWarps];
  constexpr int kThreads = block >= kWarpBytes ? 32 : block / kVectorBytes;
  constexpr int kGroups = 32 / kThreads;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const i64 first = (static_cast<i64>(blockIdx.x) * kByteWarps + warp) * words;
  const u32 word = WordOfThread<block, word_align>(bitmap, bytes, first, words, lane);
  const u32 upto = SumUpTo(lane, static_cast<u32>(__popc(word)));
  if (lane == 31) shared[warp] = upto;
  __syncthreads();
  i64 before = static_cast<i64>(ReadOne<u64, 16>(counts, static_cast<i64>(blockIdx.x)));
  for (int other = 0; other < warp; ++other) before += shared[other];
  const i64 ranks = before + upto - __popc(word);  // of the word's first block
  for (int i = 0; i < words; i += kGroups) {
    const int mine = i + lane / kThreads;
    u32 bits = __shfl_sync(kWarp, word, mine % 32);
    i64 rank = static_cast<i64>(__shfl_sync(kWarp, static_cast<u64>(ranks), mine % 32));
    if (mine >= words) bits = 0;
    for (; bits != 0 && rank < capacity; bits &= bits - 1, ++rank) {
      const i64 number = (first + mine) * kBlocksOfWord + __ffs(static_cast<int>(bits)) - 1;
      MoveBlock<block, align, gathers>(from, to, number * block, rank * block, bytes,
                                       lane % kThreads);
    }
  }
  if (!gathers) return;
  const i64 all = static_cast<i64>(ReadOne<u64, 16>(counts, units));
  const i64 thread = static_cast<i64>(blockIdx.x) * kByteThreads + threadIdx.x;
  const Word16 zeros = {{0, 0, 0, 0}};
  for (i64 at = all * block + thread * kVectorBytes; at < capacity * block;
       at += units * kByteThreads * kVectorBytes) {
    Put<align>(to + at, zeros);
  }
}

// The values' blocks over the data, unless the count is not that of the bitmap, or too large.
template <int block, int align, int word_align, int count_align>
FERRY_DEVICE void ApplyBlocks(const Byte* bitmap, const Byte* counts, const Byte* count, i64 units,
                              i64 words, i64 bytes, i64 capacity, const Byte* values, Byte* data) {
  const u64 all = ReadOne<u64, 16>(counts, units);
  if (all != ReadOne<u32, count_align>(count, 0) || all > static_cast<u64>(capacity)) return;
  MoveBlocks<block, align, word_align, false>(bitmap, counts, units, words, bytes, capacity, values,
                                              data);
}
