// SPDX-License-Identifier: Apache-2.0
// Elements of memory: one, or several that follow each other, in words as wide as what is known of
// the address allows. A byte of bool is read as whether it is not 0.
#pragma once

#include "types.cuh"

using Byte = u8;

// Always has a value: of a thread that computes with what it has not read, as those behind the last
// element would, a compiler may conclude that it does not exist, and drop the bounds of its stores.
template <typename T, int V>
struct Vector {
  T at[V] = {};

  __device__ __forceinline__ T& operator[](int k) { return at[k]; }
  __device__ __forceinline__ const T& operator[](int k) const { return at[k]; }
};

struct alignas(16) Word16 {
  u32 words[4];
};
template <int bytes>
struct WordOf {
  using Type = Byte;
};
template <>
struct WordOf<2> {
  using Type = u16;
};
template <>
struct WordOf<4> {
  using Type = u32;
};
template <>
struct WordOf<8> {
  using Type = u64;
};
template <>
struct WordOf<16> {
  using Type = Word16;
};
FERRY_DEVICE constexpr int Least(int a, int b) { return a < b ? a : b; }

// `bytes` bytes that are at least so aligned, as what they are.
template <typename To, int align>
FERRY_DEVICE To Fetch(const Byte* from) {
  using Word = typename WordOf<Least(align, Least(sizeof(To), 16))>::Type;
  union Both {
    To value;
    Word words[sizeof(To) / sizeof(Word)];
    __device__ Both() {}
  } both;
  FERRY_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof(To) / sizeof(Word)); ++i) {
    both.words[i] = reinterpret_cast<const Word*>(from)[i];
  }
  return both.value;
}
template <int align, typename From>
FERRY_DEVICE void Put(Byte* to, const From& from) {
  using Word = typename WordOf<Least(align, Least(sizeof(From), 16))>::Type;
  union Both {
    From value;
    Word words[sizeof(From) / sizeof(Word)];
    __device__ Both() {}
  } both;
  both.value = from;
  FERRY_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof(From) / sizeof(Word)); ++i) {
    reinterpret_cast<Word*>(to)[i] = both.words[i];
  }
}

// The element at `index`. `align` is what is known of the address of the first one.
template <typename T, int align, typename Index>
FERRY_DEVICE T ReadOne(const Byte* base, Index index) {
  if constexpr (kIsPacked<T>) {
    return {static_cast<u8>(base[index >> 1] >> ((index & 1) * 4) & 0xF)};
  } else if constexpr (kIsSame<T, bool>) {
    return base[index] != 0;
  } else {
    return Fetch<T, Least(align, sizeof(T))>(base + static_cast<i64>(index) * sizeof(T));
  }
}

// A half of a byte keeps what is in the other, whoever writes that at the same time: GPUs have no
// smaller atomics than of words. So up to three bytes behind a tensor are written too, with what is
// in them, within the word that the tensor ends in: memory that is bound ends with a whole word.
FERRY_DEVICE void PutHalf(Byte* byte, int half, u32 code) {
  const u64 address = reinterpret_cast<u64>(byte);
  u32* const word = reinterpret_cast<u32*>(address & ~3ull);
  const int shift = static_cast<int>(address & 3) * 8 + half * 4;
  atomicAnd(word, ~(0xFu << shift));
  atomicOr(word, code << shift);
}

template <int align, typename T, typename Index>
FERRY_DEVICE void WriteOne(Byte* base, Index index, T value) {
  if constexpr (kIsPacked<T>) {
    PutHalf(base + (index >> 1), static_cast<int>(index & 1), value.code);
  } else if constexpr (kIsSame<T, bool>) {
    base[index] = value;
  } else {
    Put<Least(align, sizeof(T))>(base + static_cast<i64>(index) * sizeof(T), value);
  }
}

// The bytes of V elements that begin with a byte.
template <typename T, int V>
struct Packed {
  Byte bytes[V / 2];
};

// The elements from `index` on, of which there are `count`; others stay as they are. V is 1, or
// `index` is a multiple of it, and `align` is known of the whole vector's address.
template <int align, typename T, int V, typename Index>
FERRY_DEVICE void ReadVector(const Byte* base, Index index, int count, Vector<T, V>& out) {
  if constexpr (V == 1) {
    if (count > 0) out[0] = ReadOne<T, align>(base, index);
  } else if (count < V) {
    FERRY_UNROLL
    for (int k = 0; k < V; ++k) {
      if (k < count) out[k] = ReadOne<T, align>(base, index + k);
    }
  } else if constexpr (kIsPacked<T>) {
    const auto packed = Fetch<Packed<T, V>, Least(align, V / 2)>(base + (index >> 1));
    FERRY_UNROLL
    for (int k = 0; k < V; ++k) {
      out[k] = {static_cast<u8>(packed.bytes[k / 2] >> (k % 2 * 4) & 0xF)};
    }
  } else if constexpr (kIsSame<T, bool>) {
    const auto bytes = Fetch<Vector<Byte, V>, align>(base + index);
    FERRY_UNROLL
    for (int k = 0; k < V; ++k) out[k] = bytes[k] != 0;
  } else {
    out = Fetch<Vector<T, V>, align>(base + static_cast<i64>(index) * sizeof(T));
  }
}

// A half byte too many is 0 where all elements end in this vector (`last`).
template <int align, typename T, int V, typename Index>
FERRY_DEVICE void WriteVector(Byte* base, Index index, int count, const Vector<T, V>& in,
                              bool last) {
  if constexpr (kIsPacked<T> && V > 1) {
    if (count == V) {
      Packed<T, V> packed;
      FERRY_UNROLL
      for (int k = 0; k < V; k += 2) {
        packed.bytes[k / 2] = static_cast<u8>(in[k].code | in[k + 1].code << 4);
      }
      Put<Least(align, V / 2)>(base + (index >> 1), packed);
    } else {
      FERRY_UNROLL
      for (int k = 0; k < V; k += 2) {
        const u32 high = k + 1 < count ? in[k + 1].code : 0;
        if (k < count) base[(index + k) >> 1] = static_cast<u8>(in[k].code | high << 4);
      }
    }
  } else if constexpr (V == 1) {
    if (count == 0) return;
    WriteOne<align>(base, index, in[0]);
    if constexpr (kIsPacked<T>) {
      if (last && index % 2 == 0) PutHalf(base + (index >> 1), 1, 0);
    }
  } else if (count < V) {
    FERRY_UNROLL
    for (int k = 0; k < V; ++k) {
      if (k < count) WriteOne<align>(base, index + k, in[k]);
    }
  } else if constexpr (kIsSame<T, bool>) {
    Vector<Byte, V> bytes;
    FERRY_UNROLL
    for (int k = 0; k < V; ++k) bytes[k] = in[k];
    Put<align>(base + index, bytes);
  } else {
    Put<align>(base + static_cast<i64>(index) * sizeof(T), in);
  }
}

// How many of V elements from `index` on there are.
template <int V, typename Index>
FERRY_DEVICE int CountOf(Index index, Index end) {
  const Index left = end - index;
  return left >= V ? V : left > 0 ? static_cast<int>(left) : 0;
}

// Where element `index` is of a tensor with these dimensions and strides, from the last dimension
// to the first, of which the dimension does not matter.
template <typename Index, typename Stride>
FERRY_DEVICE Index Place(Index index, Stride stride) {
  return index * static_cast<Index>(stride);
}
template <typename Index, typename Dim, typename Stride, typename... Rest>
FERRY_DEVICE Index Place(Index index, Dim dim, Stride stride, Rest... rest) {
  const Index within = index % static_cast<Index>(dim);
  return within * static_cast<Index>(stride) +
         Place<Index>(index / static_cast<Index>(dim), rest...);
}

// Each element of a vector; in generated code.
#define FERRY_EACH FERRY_UNROLL for (int k = 0; k < V; ++k)

// An index that a program computed, as one of 0 to `most`.
template <typename Index, typename T>
FERRY_DEVICE Index ClampedIndex(T index, Index most) {
  if (index < 0) return 0;
  return static_cast<u64>(index) > static_cast<u64>(most) ? most : static_cast<Index>(index);
}
