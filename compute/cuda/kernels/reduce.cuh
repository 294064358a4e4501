// SPDX-License-Identifier: Apache-2.0
// Reductions in the order of docs/numerics.md: of a chunk of 4,096 elements lane i is elements i,
// i + 128, and so on, one after the other; then lanes i and i + 64 are one, i and i + 32, down to
// i + 1. A warp does a chunk. Of each 128 elements a thread has four: those that follow each other,
// if they are read as a vector (V = 4), or every 32nd (V = 1). Which thread has a lane does not
// matter to what it comes to.
#pragma once

#include "elements.cuh"

constexpr int kLanes = 128;
constexpr int kChunk = 4096;
constexpr u32 kWarp = 0xFFFFFFFFu;

#define FERRY_COMBINER(Name, combine)        \
  struct Name {                              \
    template <typename T>                    \
    static __device__ T Of(T a, T b) {       \
      return combine(a, b);                  \
    }                                        \
  };
FERRY_COMBINER(Sum, Add)
FERRY_COMBINER(Product, Multiply)
FERRY_COMBINER(Max, Maximum)
FERRY_COMBINER(Min, Minimum)
FERRY_COMBINER(Any, Or)
FERRY_COMBINER(All, And)

template <typename T>
FERRY_DEVICE T ShuffleDown(T value, int delta) {
  return FromCode<T>(__shfl_down_sync(kWarp, CodeOf(value), delta));
}
template <typename T>
FERRY_DEVICE T ShuffleXor(T value, int mask) {
  return FromCode<T>(__shfl_xor_sync(kWarp, CodeOf(value), mask));
}
template <typename T>
FERRY_DEVICE T FromFirst(T value) {
  return FromCode<T>(__shfl_sync(kWarp, CodeOf(value), 0));
}

template <typename Combiner, typename T, int V>
class Lanes {
 public:
  // One of the thread's four elements of a step: the first step of a chunk begins anew.
  __device__ __forceinline__ void Put(int slot, T value, bool first) {
    lanes_[slot] = first ? value : Combiner::template Of<T>(lanes_[slot], value);
  }

  // What a chunk of `count` elements comes to, for all threads. `count` is not 0.
  __device__ __forceinline__ T Close(int thread, int count) {
    if constexpr (V == 4) {
      FERRY_UNROLL
      for (int half = 64; half >= 4; half /= 2) {
        FERRY_UNROLL
        for (int slot = 0; slot < 4; ++slot) {
          const T other = ShuffleDown(lanes_[slot], half / 4);
          if (thread * 4 + slot + half < count) Join(slot, other);
        }
      }
      if (2 < count) Join(0, lanes_[2]);
      if (3 < count) Join(1, lanes_[3]);
      if (1 < count) Join(0, lanes_[1]);
    } else {
      if (thread + 64 < count) Join(0, lanes_[2]);
      if (thread + 96 < count) Join(1, lanes_[3]);
      if (thread + 32 < count) Join(0, lanes_[1]);
      FERRY_UNROLL
      for (int half = 16; half > 0; half /= 2) {
        const T other = ShuffleDown(lanes_[0], half);
        if (thread + half < count) Join(0, other);
      }
    }
    return FromFirst(lanes_[0]);
  }

 private:
  __device__ __forceinline__ void Join(int slot, T other) {
    lanes_[slot] = Combiner::template Of<T>(lanes_[slot], other);
  }

  T lanes_[4] = {};  // all are shuffled, also those of threads that have put nothing
};

// The first of the largest; NaN is the largest.
template <typename T>
class Largest {
 public:
  __device__ __forceinline__ void Put(T value, i64 index) {
    if (index_ < 0 || IsBefore(value, index)) {
      value_ = value;
      index_ = index;
    }
  }
  // Of all threads, for all of them.
  __device__ __forceinline__ void Close() {
    FERRY_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const T value = ShuffleXor(value_, mask);
      const i64 index = ShuffleXor(index_, mask);
      if (index >= 0) Put(value, index);
    }
  }
  __device__ __forceinline__ T value() const { return value_; }
  __device__ __forceinline__ i64 index() const { return index_ < 0 ? 0 : index_; }

 private:
  __device__ __forceinline__ bool IsBefore(T value, i64 index) const {
    const auto a = Load(value), b = Load(value_);
    const bool none = a != a, had_none = b != b;
    if (none != had_none) return none;
    if (none || a == b) return index < index_;
    return a > b;
  }

  T value_ = FromCode<T>(0);
  i64 index_ = -1;  // none yet
};
