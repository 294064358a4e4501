// SPDX-License-Identifier: Apache-2.0
// Reductions in the order of docs/numerics.md: of a chunk of 4,096 elements lane i is elements i,
// i + 128, and so on, one after the other; then lanes i and i + 64 are one, i and i + 32, down to
// i + 1. A warp does a chunk. Of each 128 elements a thread has four: those that follow each other,
// if they are read as a vector (V = 4), or every 32nd (V = 1). Which thread has a lane does not
// matter to what it comes to. Or a block of threads does a chunk of several results (ColumnLanes).
#pragma once

#include "elements.cuh"

constexpr int kLanes = 128;
constexpr int kChunk = 4096;
constexpr u32 kWarp = 0xFFFFFFFFu;

// Infinity with this sign, or the integer that is nearest to it.
template <typename T>
FERRY_DEVICE T Farthest(bool negative) {
  constexpr u64 kSign = 1ull << (8 * sizeof(T) - 1);
  if constexpr (kIsFloating<T>) {
    return Store<T>(BitCast<f32>(negative ? 0xFF800000u : 0x7F800000u));
  } else if constexpr (kIsSigned<T>) {
    return FromCode<T>(negative ? kSign : kSign - 1);
  } else {
    return FromCode<T>(negative ? 0 : ~0ull);
  }
}

// `None` changes nothing that it is combined with; of a sum of floating numbers that is -0.
#define FERRY_COMBINER(Name, combine, none) \
  struct Name {                             \
    template <typename T>                   \
    static __device__ T Of(T a, T b) {      \
      return combine(a, b);                 \
    }                                       \
    template <typename T>                   \
    static __device__ T None() {            \
      return none;                          \
    }                                       \
  };
FERRY_COMBINER(Sum, Add, (kIsFloating<T> ? Negate(FromCode<T>(0)) : FromCode<T>(0)))
FERRY_COMBINER(Product, Multiply, Convert<T>(1))
FERRY_COMBINER(Max, Maximum, Farthest<T>(true))
FERRY_COMBINER(Min, Minimum, Farthest<T>(false))
FERRY_COMBINER(Any, Or, FromCode<T>(0))
FERRY_COMBINER(All, And, FromCode<T>(~0ull))

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
  // All are shuffled, also those of threads that put nothing.
  __device__ __forceinline__ Lanes() {
    FERRY_UNROLL
    for (int slot = 0; slot < 4; ++slot) lanes_[slot] = Combiner::template None<T>();
  }

  // One of the thread's four elements of a step.
  __device__ __forceinline__ void Put(int slot, T value) { Join(slot, value); }

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

  T lanes_[4];
};

// A reduction of a row that a block of threads has in its registers, 64 threads for each chunk: a
// thread has two lanes, which follow each other. Rows are whole multiples of kLanes.
template <typename Combiner, typename T, int chunks>
class RowLanes {
 public:
  __device__ __forceinline__ RowLanes() {
    lanes_[0] = lanes_[1] = Combiner::template None<T>();
  }

  __device__ __forceinline__ void Put(int slot, T value) {
    lanes_[slot] = Combiner::template Of<T>(lanes_[slot], value);
  }

  // What the row comes to, for all threads of the block.
  __device__ __forceinline__ T Close(int thread) {
    __shared__ T upper[chunks][2][32];  // lanes 64 to 127
    __shared__ T whole[chunks];
    const int chunk = thread / 64, pair = thread % 64;
    if (pair >= 32) {
      upper[chunk][0][pair - 32] = lanes_[0];
      upper[chunk][1][pair - 32] = lanes_[1];
    }
    __syncthreads();
    if (pair < 32) {
      Put(0, upper[chunk][0][pair]);
      Put(1, upper[chunk][1][pair]);
      FERRY_UNROLL
      for (int half = 16; half > 0; half /= 2) {
        const T first = ShuffleDown(lanes_[0], half), second = ShuffleDown(lanes_[1], half);
        Put(0, first);
        Put(1, second);
      }
      Put(0, lanes_[1]);
      if (pair == 0) whole[chunk] = lanes_[0];
    }
    __syncthreads();
    T all = whole[0];
    FERRY_UNROLL
    for (int i = 1; i < chunks; ++i) all = Combiner::template Of<T>(all, whole[i]);
    return all;
  }

 private:
  T lanes_[2];
};

// Reductions of W results that neighbouring threads have (compute/cuda/column_tile.h): of a block
// of kColumnThreads, thread t has lanes t / W, t / W + kColumnThreads / W and so on of result t % W.
constexpr int kColumnThreads = 256;
constexpr int kColumnWarps = kColumnThreads / 32;
FERRY_DEVICE constexpr int ColumnLanesOf(int width) { return kLanes * width / kColumnThreads; }

// What threads of several warps have, for the first warp.
template <typename T>
struct OfWarps {
  T at[kColumnWarps];

  // Called by all threads of the block. Only in the first warp `at` is set.
  __device__ __forceinline__ explicit OfWarps(T value) {
    __shared__ T others[kColumnWarps - 1][32];
    const int warp = static_cast<int>(threadIdx.x / 32), thread = static_cast<int>(threadIdx.x % 32);
    __syncthreads();  // what was there before has been read
    if (warp > 0) others[warp - 1][thread] = value;
    __syncthreads();
    if (warp > 0) return;
    at[0] = value;
    FERRY_UNROLL
    for (int i = 1; i < kColumnWarps; ++i) at[i] = others[i - 1][thread];
  }
};

template <typename Combiner, typename T, int W>
class ColumnLanes {
 public:
  __device__ __forceinline__ ColumnLanes() {
    FERRY_UNROLL
    for (int slot = 0; slot < kOwn; ++slot) lanes_[slot] = Combiner::template None<T>();
  }

  __device__ __forceinline__ void Put(int slot, T value) {
    lanes_[slot] = Combiner::template Of<T>(lanes_[slot], value);
  }

  // What a chunk comes to, for the first thread of each result.
  __device__ __forceinline__ T Close(int, int) {
    FERRY_UNROLL
    for (int half = kOwn / 2; half > 0; half /= 2) {
      FERRY_UNROLL
      for (int slot = 0; slot < half; ++slot) Put(slot, lanes_[slot + half]);
    }
    OfWarps<T> warps(lanes_[0]);
    if (threadIdx.x >= 32) return lanes_[0];
    FERRY_UNROLL
    for (int half = kColumnWarps / 2; half > 0; half /= 2) {
      FERRY_UNROLL
      for (int i = 0; i < half; ++i) {
        warps.at[i] = Combiner::template Of<T>(warps.at[i], warps.at[i + half]);
      }
    }
    T made = warps.at[0];
    FERRY_UNROLL
    for (int apart = 16; apart >= W; apart /= 2) {
      made = Combiner::template Of<T>(made, ShuffleDown(made, apart));
    }
    return made;
  }

 private:
  static constexpr int kOwn = ColumnLanesOf(W);
  T lanes_[kOwn];
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

 protected:
  i64 index_ = -1;  // none yet

 private:
  __device__ __forceinline__ bool IsBefore(T value, i64 index) const {
    const auto a = Load(value), b = Load(value_);
    const bool none = a != a, had_none = b != b;
    if (none != had_none) return none;
    if (none || a == b) return index < index_;
    return a > b;
  }

  T value_ = FromCode<T>(0);
};

template <typename T, int W>
class ColumnLargest : public Largest<T> {
 public:
  // Of all threads of a result, for the first one.
  __device__ __forceinline__ void Close() {
    const OfWarps<T> values(this->value());
    const OfWarps<i64> indices(this->index_);
    if (threadIdx.x >= 32) return;
    FERRY_UNROLL
    for (int i = 1; i < kColumnWarps; ++i) {
      if (indices.at[i] >= 0) this->Put(values.at[i], indices.at[i]);
    }
    FERRY_UNROLL
    for (int apart = 16; apart >= W; apart /= 2) {
      const T value = ShuffleDown(this->value(), apart);
      const i64 index = ShuffleDown(this->index_, apart);
      if (index >= 0) this->Put(value, index);
    }
  }
};
