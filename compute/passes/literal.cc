// SPDX-License-Identifier: Apache-2.0
#include "compute/passes/literal.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "compute/program/limits.h"
#include "compute/program/rules.h"

namespace ferry::compute {
namespace {

bool IsMove(Op op) {
  switch (op) {
    case Op::kBroadcastInDim:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kConcatenate:
    case Op::kReverse:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool IsElementwise(const Node& node, const TensorType& type, const TensorType& first) {
  const auto rule = InfoOf(node.op).rule;
  for (const auto elementwise : {&rules::Elementwise, &rules::IsFinite, &rules::Compare,
                                 &rules::Select, &rules::Clamp, &rules::ConvertType}) {
    if (rule == elementwise) return true;
  }
  return node.op == Op::kBitcastConvert && type.dims == first.dims;
}

bool IsSmall(const TensorType& type) {
  return BytesOf(type).value_or(kMaxInlineBytes + 1) <= static_cast<uint64_t>(kMaxInlineBytes);
}

Literal LiteralOf(const TensorType& type, const Attributes& constant) {
  Literal literal{type, {}};
  const bool splat = constant.Has(Attribute::kSplat);
  const absl::string_view bytes = constant.Bytes(splat ? Attribute::kSplat : Attribute::kValues);
  const size_t bits = InfoOf(type.dtype).bits;
  literal.codes.resize(splat ? 1 : *ElementsOf(type));
  for (size_t i = 0; i < literal.codes.size(); ++i) {
    if (bits == 4) {
      literal.codes[i] = static_cast<uint8_t>(bytes[i / 2]) >> (i % 2 * 4) & 0xf;
    } else {
      std::memcpy(&literal.codes[i], bytes.data() + i * bits / 8, bits / 8);
    }
  }
  return literal;
}

Node ConstantOf(const Literal& literal) {
  std::vector<uint64_t> codes = literal.codes;
  const bool equal = !codes.empty() && std::equal(codes.begin() + 1, codes.end(), codes.begin());
  if (equal) codes.resize(1);
  const size_t bits = InfoOf(literal.type.dtype).bits;
  std::string bytes(BytesOf(literal.type.dtype, codes.size()), '\0');
  for (size_t i = 0; i < codes.size(); ++i) {
    if (bits == 4) {
      bytes[i / 2] = static_cast<char>(bytes[i / 2] | codes[i] << (i % 2 * 4));
    } else {
      std::memcpy(&bytes[i * bits / 8], &codes[i], bits / 8);
    }
  }
  Node node;
  node.op = Op::kConstant;
  node.attributes = {{equal ? Attribute::kSplat : Attribute::kValues, std::move(bytes)}};
  return node;
}

std::optional<Literal> Evaluate(const Node& node, const TensorType& type,
                                absl::Span<const Literal* const> operands) {
  if (operands.empty()) return std::nullopt;
  const bool same = std::all_of(operands.begin(), operands.end(),
                                [](const Literal* operand) { return operand->same(); });
  if (IsMove(node.op)) {
    const bool one =
        same && std::all_of(operands.begin(), operands.end(), [&](const Literal* operand) {
          return operand->codes[0] == operands[0]->codes[0];
        });
    if (one) return Literal{type, operands[0]->codes};
    return IsSmall(type) ? Move(node, type, operands) : std::nullopt;
  }
  if (!IsElementwise(node, type, operands[0]->type) || (!same && !IsSmall(type))) {
    return std::nullopt;
  }
  std::vector<DType> types;
  for (const Literal* operand : operands) types.push_back(operand->type.dtype);
  Literal result{type, std::vector<uint64_t>(same ? 1 : *ElementsOf(type))};
  std::vector<uint64_t> codes(operands.size());
  for (size_t i = 0; i < result.codes.size(); ++i) {
    for (size_t j = 0; j < operands.size(); ++j) codes[j] = operands[j]->at(i);
    const std::optional<uint64_t> code = EvaluateElement(node, type.dtype, types, codes);
    if (!code) return std::nullopt;
    result.codes[i] = *code;
  }
  return result;
}

}  // namespace ferry::compute
