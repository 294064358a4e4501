// SPDX-License-Identifier: Apache-2.0
// What the results of programs must be: elements by their bits, each with how far from it an
// executor's may be. Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compute/program/program.h"
#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {

// An error of 0: exactly `code`, or for a NaN of f32 or f64, whose bits are not promised, any NaN.
// A finite one: as far from `value`. Infinite: anything, as it depends on what may differ.
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

// Of packed bytes; bool is 0 or 1 afterwards.
Tensor TensorOf(const TensorType& type, const Bytes& bytes);
Bytes PackedOf(const Tensor& tensor);

// May an executor have these bits?
bool Allows(DType type, const Element& element, uint64_t got);
// "" or the first element that may not be so.
std::string DifferenceOf(const Tensor& expected, const Bytes& got);
std::string DifferenceOf(DType type, const Element& expected, uint64_t got);

// How one place of a tensor is counted, row-major, and back.
std::vector<int64_t> PlaceOf(const std::vector<int64_t>& dims, uint64_t index);
uint64_t IndexOf(const std::vector<int64_t>& dims, const std::vector<int64_t>& place);

}  // namespace ferry::compute::testing
