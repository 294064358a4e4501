// SPDX-License-Identifier: Apache-2.0
// Sources, and ops that make each element of those at its place.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tests/compute/reference/ops.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

using A = Attribute;

// Philox4x32-10, from the paper.
std::array<uint32_t, 4> Philox(uint64_t key, unsigned __int128 counter) {
  std::array<uint32_t, 4> word;
  for (int i = 0; i < 4; ++i) word[i] = static_cast<uint32_t>(counter >> (32 * i));
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * word[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * word[2];
    word = {static_cast<uint32_t>(b >> 32) ^ word[1] ^ k0, static_cast<uint32_t>(b),
            static_cast<uint32_t>(a >> 32) ^ word[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return word;
}

Element ElementOf(const OpInput& op, uint64_t index) {
  const Node& node = op.node;
  std::vector<uint64_t> codes;
  bool many_nans = false;
  for (const Tensor* operand : op.in) {
    const Element& element = operand->elements[operand->type.dims.empty() ? 0 : index];
    if (node.op == Op::kConvert && operand->type.dtype == op.results[0].dtype) return element;
    if (element.error != 0 && node.op != Op::kSelect) return {0, kAnything};
    const DType type = operand->type.dtype;
    many_nans = many_nans || (HasManyNans(type) && IsNan(type, element.code));
    codes.push_back(element.code);
  }
  const DType from = op.in[0]->type.dtype;
  const DType type = op.results[0].dtype;
  switch (node.op) {
    case Op::kSelect: {
      const Element& predicate = op.in[0]->elements[op.in[0]->type.dims.empty() ? 0 : index];
      if (predicate.error != 0) return {0, kAnything};
      return op.in[predicate.code != 0 ? 1 : 2]->elements[index];
    }
    case Op::kClamp:
      return {Arithmetic(Op::kMinimum, type,
                         {Arithmetic(Op::kMaximum, type, {codes[0], codes[1]}), codes[2]})};
    case Op::kCompare: {
      const bool total = op.Int(A::kTotalOrder) != 0;
      if (total && many_nans) return {0, kAnything};
      return {
          Holds(static_cast<Direction>(op.Int(A::kDirection)), total, from, codes[0], codes[1])};
    }
    case Op::kIsFinite:
      return {std::isfinite(ValueOf(from, codes[0]))};
    case Op::kConvert:
      return {ConvertedCode(from, codes[0], type,
                            {static_cast<Overflow>(op.Int(A::kMode)),
                             static_cast<ScaleRounding>(op.Int(A::kRounding))})};
    default:
      if (IsFunction(node.op)) return FunctionOf(node.op, type, codes);
      return {Arithmetic(node.op, type, codes)};
  }
}

}  // namespace

Tensor EvaluateSource(const OpInput& op) {
  const TensorType& type = op.results[0];
  Tensor out{type, std::vector<Element>(*ElementsOf(type))};
  if (op.node.op == Op::kConstant) {
    const bool splat = op.node.attributes.Has(A::kSplat);
    const absl::string_view text = op.node.attributes.Bytes(splat ? A::kSplat : A::kValues);
    Bytes bytes(text.size());
    std::transform(text.begin(), text.end(), bytes.begin(),
                   [](char byte) { return static_cast<std::byte>(byte); });
    for (uint64_t i = 0; i < out.elements.size(); ++i) {
      out.elements[i].code = BitsAt(type.dtype, bytes, splat ? 0 : i);
    }
  } else if (op.node.op == Op::kEmpty) {
    for (Element& element : out.elements) element.error = kAnything;
  } else if (op.node.op == Op::kIota) {
    for (uint64_t i = 0; i < out.elements.size(); ++i) {
      const int64_t at = PlaceOf(type.dims, i)[static_cast<size_t>(op.Int(A::kDimension))];
      out.elements[i].code = ConvertedCode(DType::kI64, static_cast<uint64_t>(at), type.dtype);
    }
  } else {  // kRngBits
    const Element& key = op.in[0]->elements[0];
    const Element& counter = op.in[1]->elements[0];
    const uint64_t words = type.dtype == DType::kU64 ? 2 : 1;
    for (uint64_t i = 0; i < out.elements.size(); ++i) {
      const uint64_t word = i * words;
      const auto block = Philox(key.code, static_cast<unsigned __int128>(counter.code) + word / 4);
      uint64_t code = block[word % 4];
      if (words == 2) code |= static_cast<uint64_t>(block[word % 4 + 1]) << 32;
      out.elements[i] = {code, key.error + counter.error == 0 ? 0 : kAnything};
    }
  }
  return out;
}

Tensor EvaluateElementwise(const OpInput& op) {
  Tensor out{op.results[0], {}};
  for (uint64_t i = 0; i < *ElementsOf(out.type); ++i) out.elements.push_back(ElementOf(op, i));
  return out;
}

Tensor EvaluateBitcast(const OpInput& op) {
  const Tensor& in = *op.in[0];
  Tensor out = TensorOf(op.results[0], PackedOf(in));
  if (in.type.dtype == op.results[0].dtype) return in;
  const auto bits = static_cast<uint64_t>(InfoOf(in.type.dtype).bits);
  const auto out_bits = static_cast<uint64_t>(InfoOf(op.results[0].dtype).bits);
  for (uint64_t i = 0; i < in.elements.size(); ++i) {
    const Element& element = in.elements[i];
    const bool certain =
        element.error == 0 && !(HasManyNans(in.type.dtype) && IsNan(in.type.dtype, element.code));
    if (certain) continue;
    for (uint64_t at = i * bits / out_bits; at * out_bits < (i + 1) * bits; ++at) {
      out.elements[at].error = kAnything;
    }
  }
  return out;
}

}  // namespace ferry::compute::testing
