// SPDX-License-Identifier: Apache-2.0
// Programs that multiply two matrices, and what the product is to be. Pure functions; any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/dtype.h"
#include "compute/numerics/convert.h"
#include "tests/compute/numerics/elements.h"

namespace ferry::compute::testing {

// @y = @x by @w: in each batch [m, k] by [k, n]. Tensors have a dimension for batches only if there
// are several.
struct ProductShape {
  int64_t batches = 1, m = 1, k = 1, n = 1;
  std::string from = "bf16";  // type of both factors
  std::string to = "bf16";
  std::string left = "mk";  // the order of the left factor's dimensions: "mk" or "km"
  std::string right = "kn";

  DType from_type() const { return *DTypeOf(from); }
  DType to_type() const { return *DTypeOf(to); }
  uint64_t left_elements() const { return static_cast<uint64_t>(batches * m * k); }
  uint64_t right_elements() const { return static_cast<uint64_t>(batches * k * n); }
  uint64_t results() const { return static_cast<uint64_t>(batches * m * n); }
};

inline std::string ProductText(const ProductShape& shape) {
  const bool batched = shape.batches > 1;
  const auto dims = [&](const std::string& order) {
    std::vector<int64_t> made;
    if (batched) made.push_back(shape.batches);
    for (const char c : order) made.push_back(c == 'm' ? shape.m : c == 'k' ? shape.k : shape.n);
    return absl::StrJoin(made, ",");
  };
  const size_t first = batched ? 1 : 0;
  return absl::StrCat(
      "program 1\nbuffer @x read ", BytesOf(shape.from_type(), shape.left_elements()),
      "\nbuffer @w read ", BytesOf(shape.from_type(), shape.right_elements()), "\nbuffer @y write ",
      BytesOf(shape.to_type(), shape.results()), "\n%x = input @x : ", shape.from, "[",
      dims(shape.left), "]\n%w = input @w : ", shape.from, "[", dims(shape.right),
      "]\n%p = dot_general %x, %w", batched ? " lhs_batch=[0] rhs_batch=[0]" : "",
      " lhs_contract=[", first + shape.left.find('k'), "] rhs_contract=[",
      first + shape.right.find('k'), "] : ", shape.to, "[", dims("mn"), "]\nstore @y, %p\n");
}

// Values as elements of `type`, and back.
inline Bytes ElementsOf(DType type, const std::vector<double>& values) {
  Bytes made(BytesOf(type, values.size()));
  Convert(DType::kF64, BytesOfValues(values).data(), type, made.data(), values.size());
  return made;
}
inline std::vector<double> NumbersOf(DType type, const Bytes& elements, uint64_t count) {
  Bytes wide(count * sizeof(double));
  Convert(type, elements.data(), DType::kF64, wide.data(), count);
  return ValuesOfBytes<double>(wide);
}

// What element `index` of the result is, and the sum of its terms' magnitudes: R and D of
// docs/numerics.md. `x` and `w` are the factors' elements.
struct ProductElement {
  double value = 0;
  double magnitude = 0;
};
inline ProductElement ElementOf(const ProductShape& shape, const std::vector<double>& x,
                                const std::vector<double>& w, uint64_t index) {
  const auto at = static_cast<int64_t>(index);
  const int64_t j = at % shape.n;
  const int64_t i = at / shape.n % shape.m;
  const int64_t batch = at / shape.n / shape.m;
  ProductElement sum;
  long double exact = 0;
  for (int64_t k = 0; k < shape.k; ++k) {
    const int64_t left = shape.left == "mk" ? i * shape.k + k : k * shape.m + i;
    const int64_t right = shape.right == "kn" ? k * shape.n + j : j * shape.k + k;
    const double term = x[static_cast<size_t>(batch * shape.m * shape.k + left)] *
                        w[static_cast<size_t>(batch * shape.k * shape.n + right)];
    exact += term;
    sum.magnitude += std::abs(term);
  }
  sum.value = static_cast<double>(exact);
  return sum;
}

// The tolerance t of docs/numerics.md for sums of this type.
inline double ToleranceOf(DType sums) { return sums == DType::kF64 ? 0x1p-46 : 0x1p-17; }

// How much of its bound the error of a result is: at most 1 is right.
inline double ShareOfBound(const ProductElement& element, DType type, double got, double t) {
  const double u = type == DType::kF64   ? 0x1p-53
                   : type == DType::kF32 ? 0x1p-24
                   : type == DType::kF16 ? 0x1p-11
                                         : 0x1p-8;
  const double smallest = type == DType::kF64   ? 0x1p-1074
                          : type == DType::kF32 ? 0x1p-149
                          : type == DType::kF16 ? 0x1p-24
                                                : 0x1p-133;
  const double error = std::abs(got - element.value) - std::abs(element.value) * u - smallest;
  return error <= 0 ? 0 : error / (t * element.magnitude);
}

}  // namespace ferry::compute::testing
