// SPDX-License-Identifier: Apache-2.0
// Converts whole tensors to block formats and back. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/numerics/block.h"
#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {

using Floats = std::vector<float>;

struct Quantized {
  Bytes elements;
  Bytes scales;

  bool operator==(const Quantized&) const = default;
};

inline Quantized Quantize(const BlockFormat& format, ScaleRounding rounding, const Floats& values,
                          uint64_t rows, float global = 1) {
  const uint64_t columns = rows == 0 ? 0 : values.size() / rows;
  Quantized out{Bytes(BytesOf(format.element, values.size()), std::byte{0xA5}),
                Bytes(rows * ScaleColumns(columns, format.block), std::byte{0xA5})};
  QuantizeBlocks(format, rounding, values.data(), rows, columns, out.elements.data(),
                 out.scales.data(), global);
  return out;
}

inline Floats Dequantize(const BlockFormat& format, const Quantized& quantized, uint64_t rows,
                         uint64_t columns, float global = 1) {
  Floats out(rows * columns);
  DequantizeBlocks(format, quantized.elements.data(), quantized.scales.data(),
                   ScaleColumns(columns, format.block), rows, columns, out.data(), global);
  return out;
}

}  // namespace ferry::compute::testing
