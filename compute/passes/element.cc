// SPDX-License-Identifier: Apache-2.0
// One element at a time, by its bits. What StableHLO leaves open, or executors may do in different
// ways, gives nothing: division by zero, shifts by too much, integers without an absolute value,
// NaN.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "compute/numerics/convert.h"
#include "compute/passes/literal.h"

namespace ferry::compute {
namespace {

using Code = uint64_t;

double FloatOf(DType type, Code code) {
  if (type == DType::kF64) return std::bit_cast<double>(code);
  return DecodeFloat(type, static_cast<uint32_t>(code));
}

Code MaskOf(DType type) { return ~Code{0} >> (64 - InfoOf(type).bits); }

int64_t SignedOf(DType type, Code code) {
  const int unused = 64 - InfoOf(type).bits;
  return static_cast<int64_t>(code << unused) >> unused;
}

template <typename Number>
bool IsTrue(Direction direction, Number a, Number b) {
  switch (direction) {
    case Direction::kEq:
      return a == b;
    case Direction::kNe:
      return a != b;
    case Direction::kLt:
      return a < b;
    case Direction::kLe:
      return a <= b;
    case Direction::kGt:
      return a > b;
    case Direction::kGe:
      return a >= b;
  }
  return false;
}

Code CompareElements(const Node& node, DType type, Code a, Code b) {
  const auto direction = static_cast<Direction>(node.attributes.Int(Attribute::kDirection));
  if (!InfoOf(type).floating) {
    return InfoOf(type).is_signed ? IsTrue(direction, SignedOf(type, a), SignedOf(type, b))
                                  : IsTrue(direction, a, b);
  }
  if (!node.attributes.Has(Attribute::kTotalOrder)) {
    return IsTrue(direction, FloatOf(type, a), FloatOf(type, b));
  }
  // The order of sign and magnitude, in which -0 is below +0.
  const auto rank = [&](Code code) {
    const int64_t value = SignedOf(type, code);
    return value >= 0 ? value : static_cast<int64_t>(MaskOf(type) >> 1) ^ value;
  };
  return IsTrue(direction, rank(a), rank(b));
}

// In f64, or f32 for f32 and what is narrower: f16 and bf16 are then rounded a second time, which
// changes nothing for any of these ops but fma.
template <typename Float>
std::optional<Float> Compute(Op op, Float a, Float b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return a / b;
    case Op::kMaximum:
    case Op::kMinimum: {
      const bool maximum = op == Op::kMaximum;
      if (a == b) return std::signbit(a) == maximum ? b : a;  // of two zeros
      if (std::isnan(a) || std::isnan(b)) return std::nullopt;
      return (a > b) == maximum ? a : b;
    }
    case Op::kRemainder:
      return std::fmod(a, b);
    case Op::kNegate:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:
      return a == 0 ? a : std::copysign(Float{1}, a);
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kRoundNearestEven:
      return std::nearbyint(a);
    case Op::kSqrt:
      return std::sqrt(a);
    default:
      return std::nullopt;
  }
}

std::optional<Code> ComputeFloat(Op op, DType type, absl::Span<const Code> codes) {
  const auto number = [&](size_t i) { return FloatOf(type, codes[std::min(i, codes.size() - 1)]); };
  if (std::isnan(number(0)) || std::isnan(number(1))) return std::nullopt;
  if (type == DType::kF64) {
    const std::optional<double> value = op == Op::kFma ? std::fma(number(0), number(1), number(2))
                                                       : Compute(op, number(0), number(1));
    if (!value || std::isnan(*value)) return std::nullopt;
    return std::bit_cast<Code>(*value);
  }
  if (op == Op::kFma && type != DType::kF32) return std::nullopt;
  const auto a = static_cast<float>(number(0));
  const auto b = static_cast<float>(number(1));
  const std::optional<float> value =
      op == Op::kFma ? std::fma(a, b, static_cast<float>(number(2))) : Compute(op, a, b);
  if (!value || std::isnan(*value)) return std::nullopt;
  return EncodeFloat(type, *value);
}

std::optional<Code> ComputeInteger(Op op, DType type, Code a, Code b) {
  const bool is_signed = InfoOf(type).is_signed;
  const int64_t signed_a = SignedOf(type, a);
  const int64_t signed_b = SignedOf(type, b);
  const bool least = is_signed && a == (MaskOf(type) >> 1) + 1;
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
    case Op::kRemainder: {
      if (b == 0 || (least && signed_b == -1)) return std::nullopt;
      const bool divide = op == Op::kDivide;
      if (!is_signed) return divide ? a / b : a % b;
      return static_cast<Code>(divide ? signed_a / signed_b : signed_a % signed_b);
    }
    case Op::kMaximum:
    case Op::kMinimum:
      return ((is_signed ? signed_a > signed_b : a > b) == (op == Op::kMaximum)) ? a : b;
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    case Op::kNot:
      return type == DType::kBool ? a ^ 1 : ~a;
    case Op::kNegate:
      return -a;
    case Op::kAbs:
      if (least) return std::nullopt;
      return is_signed && signed_a < 0 ? -a : a;
    case Op::kSign:
      return a == 0 ? 0 : is_signed && signed_a < 0 ? ~Code{0} : 1;
    default:
      break;
  }
  if (b >= static_cast<Code>(InfoOf(type).bits)) return std::nullopt;
  switch (op) {
    case Op::kShiftLeft:
      return a << b;
    case Op::kShiftRightLogical:
      return a >> b;
    case Op::kShiftRightArithmetic:
      return static_cast<Code>(signed_a >> b);
    default:
      return std::nullopt;
  }
}

std::optional<Code> ComputeElement(Op op, DType type, absl::Span<const Code> codes) {
  if (InfoOf(type).floating) return ComputeFloat(op, type, codes);
  const std::optional<Code> code = ComputeInteger(op, type, codes[0], codes.back());
  if (!code) return std::nullopt;
  return *code & MaskOf(type);
}

std::optional<Code> ConvertElement(const Node& node, DType from, DType to, Code code) {
  const ConvertMode mode = {static_cast<Overflow>(node.attributes.Int(Attribute::kMode)),
                            static_cast<ScaleRounding>(node.attributes.Int(Attribute::kRounding))};
  Code converted = 0;
  Convert(from, reinterpret_cast<const std::byte*>(&code), to,
          reinterpret_cast<std::byte*>(&converted), 1, mode);
  if (InfoOf(to).floating && std::isnan(FloatOf(to, converted))) return std::nullopt;
  return converted;
}

}  // namespace

std::optional<uint64_t> EvaluateElement(const Node& node, DType result,
                                        absl::Span<const DType> types,
                                        absl::Span<const uint64_t> codes) {
  switch (node.op) {
    case Op::kConvert:
      return ConvertElement(node, types[0], result, codes[0]);
    case Op::kBitcastConvert:
      return codes[0];
    case Op::kCompare:
      return CompareElements(node, types[0], codes[0], codes[1]);
    case Op::kIsFinite:
      return std::isfinite(FloatOf(types[0], codes[0]));
    case Op::kSelect:
      return codes[0] != 0 ? codes[1] : codes[2];
    case Op::kClamp: {
      const std::optional<Code> low = ComputeElement(Op::kMaximum, result, {codes[0], codes[1]});
      if (!low) return std::nullopt;
      return ComputeElement(Op::kMinimum, result, {*low, codes[2]});
    }
    default:
      return ComputeElement(node.op, result, codes);
  }
}

}  // namespace ferry::compute
