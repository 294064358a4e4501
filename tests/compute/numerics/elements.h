// SPDX-License-Identifier: Apache-2.0
// Tensors as packed bytes, as tests make and read them. They have exactly the size they need, so
// that sanitizers notice every access beyond it. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compute/numerics/convert.h"

namespace ferry::compute::testing {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes BytesOfValues(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> ValuesOfBytes(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The bits of element `index`.
inline uint64_t BitsAt(DType type, const Bytes& bytes, uint64_t index) {
  if (type == DType::kF4E2M1FN) {
    return static_cast<uint64_t>(bytes[index / 2]) >> (index % 2 * 4) & 0xF;
  }
  const size_t size = BytesOf(type, 1);
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * size, size);
  return bits;
}

inline Bytes FromBits(DType type, const std::vector<uint64_t>& elements) {
  Bytes bytes(BytesOf(type, elements.size()));
  const size_t size = BytesOf(type, 1);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (type == DType::kF4E2M1FN) {
      bytes[i / 2] |= static_cast<std::byte>(elements[i] << (i % 2 * 4));
    } else {
      std::memcpy(bytes.data() + i * size, &elements[i], size);
    }
  }
  return bytes;
}

inline Bytes Converted(DType from, const Bytes& in, DType to, uint64_t count,
                       ConvertMode mode = {}) {
  Bytes out(BytesOf(to, count), std::byte{0xA5});
  Convert(from, in.data(), to, out.data(), count, mode);
  return out;
}

// The bits of one element after conversion.
inline uint64_t ConvertBits(DType from, uint64_t bits, DType to, ConvertMode mode = {}) {
  return BitsAt(to, Converted(from, FromBits(from, {bits}), to, 1, mode), 0);
}

template <typename T>
uint64_t ConvertValue(DType from, T value, DType to, ConvertMode mode = {}) {
  return BitsAt(to, Converted(from, BytesOfValues<T>({value}), to, 1, mode), 0);
}

}  // namespace ferry::compute::testing
