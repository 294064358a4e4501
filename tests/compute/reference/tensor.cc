// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/reference/tensor.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {

Tensor TensorOf(const TensorType& type, const Bytes& bytes) {
  Tensor tensor{type, std::vector<Element>(*ElementsOf(type))};
  for (uint64_t i = 0; i < tensor.elements.size(); ++i) {
    const uint64_t code = BitsAt(type.dtype, bytes, i);
    tensor.elements[i].code = type.dtype == DType::kBool ? code != 0 : code;
  }
  return tensor;
}

Bytes PackedOf(const Tensor& tensor) {
  std::vector<uint64_t> codes;
  for (const Element& element : tensor.elements) codes.push_back(element.code);
  return FromBits(tensor.type.dtype, codes);
}

bool Allows(DType type, const Element& element, uint64_t got) {
  if (std::isinf(element.error)) return true;
  if (element.error == 0) {
    return got == element.code ||
           (HasManyNans(type) && IsNan(type, got) && IsNan(type, element.code));
  }
  if (IsNan(type, got)) return false;
  // An infinity is one step beyond the largest: near to what nearly overflows.
  const double value = static_cast<double>(ValueOf(type, got));
  const double most = BeyondOf(type);
  const double near = std::fmin(std::fmax(element.value, -most), most);
  return std::fabs(std::fmin(std::fmax(value, -most), most) - near) <= element.error;
}

std::string DifferenceOf(DType type, const Element& expected, uint64_t got) {
  if (Allows(type, expected, got)) return "";
  std::string text =
      absl::StrCat(absl::Hex(got), " instead of ", absl::Hex(expected.code), " of ", NameOf(type));
  if (expected.error != 0) {
    absl::StrAppend(&text, ", which is not ", expected.value, " +- ", expected.error);
  }
  return text;
}

std::string DifferenceOf(const Tensor& expected, const Bytes& got) {
  const DType type = expected.type.dtype;
  if (got.size() != BytesOf(type, expected.elements.size())) {
    return absl::StrCat(got.size(), " bytes for ", ToString(expected.type));
  }
  for (uint64_t i = 0; i < expected.elements.size(); ++i) {
    std::string text = DifferenceOf(type, expected.elements[i], BitsAt(type, got, i));
    if (!text.empty()) return absl::StrCat("element ", i, ": ", text);
  }
  return "";
}

std::vector<int64_t> PlaceOf(const std::vector<int64_t>& dims, uint64_t index) {
  std::vector<int64_t> place(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    place[i] = static_cast<int64_t>(index % static_cast<uint64_t>(dims[i]));
    index /= static_cast<uint64_t>(dims[i]);
  }
  return place;
}

uint64_t IndexOf(const std::vector<int64_t>& dims, const std::vector<int64_t>& place) {
  uint64_t index = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    index = index * static_cast<uint64_t>(dims[i]) + static_cast<uint64_t>(place[i]);
  }
  return index;
}

}  // namespace ferry::compute::testing
