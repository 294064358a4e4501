// SPDX-License-Identifier: Apache-2.0
// What the results of programs must be: elements by their bits, and for each how far an executor's
// may be from it. Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compute/program/program.h"
#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {

// Error 0: exactly `code`; or, if that is a NaN of f32 or f64, any NaN, because its bits are not
// promised. A finite error: at most that far from `value`. An infinite error: anything, because it
// depends on something that may differ.
struct Element {
  uint64_t code = 0;
  double error = 0;
  double value = 0;
};
inline constexpr double kAnything = std::numeric_limits<double>::infinity();

struct Tensor {
  TensorType type;
  std::vector<Element> elements;  // row-major
};

// Reads a tensor from packed bytes; a bool becomes 0 or 1.
Tensor TensorOf(const TensorType& type, const Bytes& bytes);
Bytes PackedOf(const Tensor& tensor);

// Whether an executor's element may have these bits.
bool Allows(DType type, const Element& element, uint64_t got);
// "", or the first element that may not be as it is.
std::string DifferenceOf(const Tensor& expected, const Bytes& got);
std::string DifferenceOf(DType type, const Element& expected, uint64_t got);

// The place of an element, from its row-major index; and the index, from the place.
std::vector<int64_t> PlaceOf(const std::vector<int64_t>& dims, uint64_t index);
uint64_t IndexOf(const std::vector<int64_t>& dims, const std::vector<int64_t>& place);

}  // namespace ferry::compute::testing
