// SPDX-License-Identifier: Apache-2.0
// Ops that take tensors as bytes.
#include <algorithm>

#include "compute/program/delta.h"
#include "tests/compute/reference/ops.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

constexpr Element kUnknown = {0, kAnything, 0};

// Whether the bits of all elements are promised.
bool IsCertain(const Tensor& tensor) {
  const DType type = tensor.type.dtype;
  return std::all_of(tensor.elements.begin(), tensor.elements.end(), [&](const Element& element) {
    return element.error == 0 && !(HasManyNans(type) && IsNan(type, element.code));
  });
}

Tensor Unknown(const TensorType& type) {
  return {type, std::vector<Element>(*ElementsOf(type), kUnknown)};
}

uint64_t Folded(uint64_t x) { return x ^ x >> 32; }

Tensor SumOf(const Bytes& bytes) {
  uint64_t low = bytes.size(), high = 0;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    for (size_t j = i; j < std::min(i + 8, bytes.size()); ++j) {
      word |= std::to_integer<uint64_t>(bytes[j]) << (8 * (j - i));
    }
    uint64_t x = word + (i / 8 + 1) * 0x9E3779B97F4A7C15;
    for (int round = 0; round < 2; ++round) x = Folded(x) * 0xFF51AFD7ED558CCD;
    x = Folded(x);
    low += Folded(x * 0xBF58476D1CE4E5B9);
    high += Folded((x >> 32 | x << 32) * 0x94D049BB133111EB);
  }
  return {{DType::kU64, {2}}, {{low}, {high}}};
}

}  // namespace

Tensor EvaluateChecksum(const OpInput& op) {
  if (!IsCertain(*op.in[0])) return Unknown(op.results[0]);
  return SumOf(PackedOf(*op.in[0]));
}

std::vector<Tensor> EvaluateDeltaEncode(const OpInput& op) {
  std::vector<Tensor> out;
  for (const TensorType& type : op.results) out.push_back(Unknown(type));
  if (!IsCertain(*op.in[0]) || !IsCertain(*op.in[1])) return out;
  const Bytes before = PackedOf(*op.in[0]);
  const Bytes after = PackedOf(*op.in[1]);
  const auto capacity = static_cast<size_t>(op.results[1].dims[0]);
  const auto block = static_cast<size_t>(op.results[1].dims[1]);
  Bytes values(capacity * block);
  for (Element& word : out[0].elements) word = {0};
  size_t count = 0;
  for (size_t i = 0; i * block < after.size(); ++i) {
    const size_t begin = i * block;
    const size_t end = std::min(begin + block, after.size());
    if (std::equal(before.begin() + begin, before.begin() + end, after.begin() + begin)) continue;
    out[0].elements[i / 32].code |= uint64_t{1} << (i % 32);
    if (count < capacity) {
      std::copy(after.begin() + begin, after.begin() + end, values.begin() + count * block);
    }
    ++count;
  }
  out[1] = TensorOf(op.results[1], values);
  out[2].elements = {{count}};
  out[3] = SumOf(after);
  return out;
}

void ApplyDelta(const Node& node, const std::vector<const Tensor*>& in, Memory& buffer) {
  const auto offset = static_cast<uint64_t>(node.attributes.Int(Attribute::kOffset));
  const auto bytes = static_cast<uint64_t>(node.attributes.Int(Attribute::kBytes));
  if (!std::all_of(in.begin(), in.end(), [](const Tensor* one) { return IsCertain(*one); })) {
    for (uint64_t i = 0; i < bytes; ++i) buffer.Write(DType::kU8, offset, i, kUnknown);
    return;
  }
  const auto block = static_cast<uint64_t>(in[1]->type.dims[1]);
  std::vector<uint64_t> changed;
  for (uint64_t i = 0; i * block < bytes; ++i) {
    if ((in[0]->elements[i / 32].code >> (i % 32) & 1) != 0) changed.push_back(i);
  }
  const auto capacity = static_cast<uint64_t>(in[1]->type.dims[0]);
  if (changed.size() != in[2]->elements[0].code || changed.size() > capacity) return;
  for (uint64_t rank = 0; rank < changed.size(); ++rank) {
    for (uint64_t i = 0; i < block && changed[rank] * block + i < bytes; ++i) {
      buffer.Write(DType::kU8, offset, changed[rank] * block + i,
                   in[1]->elements[rank * block + i]);
    }
  }
}

}  // namespace ferry::compute::testing
