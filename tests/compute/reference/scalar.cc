// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/reference/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/check.h"

namespace ferry::compute::testing {
namespace {

const Definition* DefinitionOf(DType type) {
  for (const Definition& definition : Definitions()) {
    if (definition.type == type) return &definition;
  }
  return nullptr;
}

const NearestOracle& OracleOf(DType type) {
  static const std::map<DType, NearestOracle> kOracles = [] {
    std::map<DType, NearestOracle> oracles;
    for (const Definition& definition : Definitions()) {
      oracles.emplace(definition.type, NearestOracle(definition));
    }
    return oracles;
  }();
  return kOracles.at(type);
}

uint64_t MaskOf(DType type) { return ~uint64_t{0} >> (64 - InfoOf(type).bits); }

int64_t SignExtended(DType type, uint64_t code) {
  const int unused = 64 - InfoOf(type).bits;
  return static_cast<int64_t>(code << unused) >> unused;
}

// The integer as 64 bits, extended by its sign if it has one.
uint64_t Extended(DType type, uint64_t code) {
  return InfoOf(type).is_signed ? static_cast<uint64_t>(SignExtended(type, code)) : code;
}

uint64_t Truncated(DType to, long double value) {
  if (std::isnan(value)) return 0;
  const int bits = InfoOf(to).bits;
  const bool is_signed = InfoOf(to).is_signed;
  const long double end = std::ldexp(1.0L, is_signed ? bits - 1 : bits);
  if (value >= end) return is_signed ? MaskOf(to) >> 1 : MaskOf(to);
  if (value <= (is_signed ? -end : 0.0L)) return is_signed ? (MaskOf(to) >> 1) + 1 : 0;
  const long double whole = std::trunc(value);
  return (is_signed ? static_cast<uint64_t>(static_cast<int64_t>(whole))
                    : static_cast<uint64_t>(whole)) &
         MaskOf(to);
}

// a + b for results of f16 and bf16: the exact sum, or if that is no long double something on the
// same side of every value of those types, and of every midpoint between two.
long double SumFor16Bits(long double a, long double b) {
  const long double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const long double of_b = sum - a;
  const long double rest = (a - (sum - of_b)) + (b - of_b);
  const bool decides = static_cast<long double>(static_cast<float>(sum)) == sum;
  if (rest == 0 || !decides) return sum;
  return std::nextafter(sum, rest > 0 ? HUGE_VALL : -HUGE_VALL);
}

template <typename Float>
Float Largest(Op op, Float a, Float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Float>::quiet_NaN();
  const bool maximum = op == Op::kMaximum;
  if (a == 0 && b == 0) return (std::signbit(a) == maximum) ? b : a;
  return (a > b) == maximum ? a : b;
}

// In the type's own arithmetic for f32 and f64; exact, or nearly, in long double for f16 and bf16.
template <typename Float>
Float FloatArithmetic(Op op, Float a, Float b, Float c) {
  constexpr bool kWide = sizeof(Float) > sizeof(double);
  switch (op) {
    case Op::kAdd:
      return kWide ? static_cast<Float>(SumFor16Bits(a, b)) : a + b;
    case Op::kSubtract:
      return kWide ? static_cast<Float>(SumFor16Bits(a, -b)) : a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return a / b;
    case Op::kFma:
      return kWide ? static_cast<Float>(SumFor16Bits(a * b, c)) : std::fma(a, b, c);
    case Op::kMaximum:
    case Op::kMinimum:
      return Largest(op, a, b);
    case Op::kRemainder:
      return std::fmod(a, b);
    case Op::kNegate:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:
      return std::isnan(a) || a == 0 ? a : a > 0 ? 1 : -1;
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kRoundNearestEven:
      return std::nearbyint(a);
    case Op::kSqrt:
      return std::sqrt(a);
    default:
      FERRY_CHECK(false);
  }
}

uint64_t IntegerArithmetic(Op op, DType type, uint64_t a, uint64_t b) {
  const bool is_signed = InfoOf(type).is_signed;
  const auto bits = static_cast<uint64_t>(InfoOf(type).bits);
  const int64_t x = SignExtended(type, a);
  const int64_t y = SignExtended(type, b);
  const bool less = is_signed ? x < y : a < b;
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      if (b == 0) return ~uint64_t{0};
      if (is_signed && y == -1) return -a;
      return is_signed ? static_cast<uint64_t>(x / y) : a / b;
    case Op::kRemainder:
      if (b == 0) return a;
      if (is_signed && y == -1) return 0;
      return is_signed ? static_cast<uint64_t>(x % y) : a % b;
    case Op::kMaximum:
      return less ? b : a;
    case Op::kMinimum:
      return less ? a : b;
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
      return is_signed && x < 0 ? -a : a;
    case Op::kSign:
      return a == 0 ? 0 : is_signed && x < 0 ? ~uint64_t{0} : 1;
    case Op::kShiftLeft:
      return b >= bits ? 0 : a << b;
    case Op::kShiftRightLogical:
      return b >= bits ? 0 : a >> b;
    case Op::kShiftRightArithmetic:
      return static_cast<uint64_t>(x >> (b >= bits ? 63 : b));
    default:
      FERRY_CHECK(false);
  }
}

template <typename Number>
bool Holds(Direction direction, Number a, Number b) {
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

}  // namespace

bool HasManyNans(DType type) { return type == DType::kF32 || type == DType::kF64; }

bool IsNan(DType type, uint64_t code) {
  return InfoOf(type).floating && std::isnan(ValueOf(type, code));
}

long double ValueOf(DType type, uint64_t code) {
  if (type == DType::kF64) return std::bit_cast<double>(code);
  if (type == DType::kF32) return std::bit_cast<float>(static_cast<uint32_t>(code));
  if (type == DType::kF8E8M0FNU) {
    return code == 255 ? std::numeric_limits<long double>::quiet_NaN()
                       : std::ldexp(1.0L, static_cast<int>(code) - 127);
  }
  if (const Definition* definition = DefinitionOf(type)) {
    const uint64_t sign = uint64_t{1} << (definition->bits - 1);
    const uint64_t magnitude = code & (sign - 1);
    long double value = std::numeric_limits<long double>::quiet_NaN();
    if (magnitude <= definition->max) {
      value = OracleOf(type).values()[magnitude];
    } else if (magnitude == definition->overflow && definition->overflow != definition->nan) {
      value = std::numeric_limits<long double>::infinity();
    }
    return (code & sign) != 0 ? -value : value;
  }
  if (!InfoOf(type).is_signed) return static_cast<long double>(code);
  return static_cast<long double>(SignExtended(type, code));
}

double BeyondOf(DType type) {
  return type == DType::kF64 ? std::numeric_limits<double>::max()  // there is nothing to say it in
         : type == DType::kF16 ? 0x1p16
                               : 0x1p128;
}

double UlpOf(DType type, double value) {
  const int digits = type == DType::kF64   ? 53
                     : type == DType::kF32 ? 24
                     : type == DType::kF16 ? 11
                                           : 8;
  const int least = type == DType::kF64 ? -1022 : type == DType::kF16 ? -14 : -126;
  const double magnitude = std::fmin(std::fabs(value), BeyondOf(type));
  const int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
  return std::ldexp(1.0, exponent - digits + 1);
}

uint64_t Rounded(DType type, long double value, ConvertMode mode) {
  if (type == DType::kF64) return std::bit_cast<uint64_t>(static_cast<double>(value));
  if (type == DType::kF32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == DType::kF8E8M0FNU) return EncodeE8M0(value, mode);
  return OracleOf(type).Encode(value, mode.overflow);
}

uint64_t ConvertedCode(DType from, uint64_t code, DType to, ConvertMode mode) {
  if (from == to) return code;
  const bool from_float = InfoOf(from).floating;
  if (to == DType::kBool) {
    return from == DType::kF8E8M0FNU || (from_float ? ValueOf(from, code) != 0 : code != 0);
  }
  if (!from_float && !InfoOf(to).floating) return Extended(from, code) & MaskOf(to);
  const long double value = ValueOf(from, code);
  return InfoOf(to).floating ? Rounded(to, value, mode) : Truncated(to, value);
}

uint64_t Arithmetic(Op op, DType type, const std::vector<uint64_t>& codes) {
  const uint64_t a = codes[0];
  const uint64_t b = codes[codes.size() > 1 ? 1 : 0];
  const uint64_t c = codes.back();
  if (!InfoOf(type).floating) return IntegerArithmetic(op, type, a, b) & MaskOf(type);
  if (type == DType::kF64) {
    return std::bit_cast<uint64_t>(FloatArithmetic(
        op, std::bit_cast<double>(a), std::bit_cast<double>(b), std::bit_cast<double>(c)));
  }
  if (type == DType::kF32) {
    const auto value = [](uint64_t code) {
      return std::bit_cast<float>(static_cast<uint32_t>(code));
    };
    return std::bit_cast<uint32_t>(FloatArithmetic(op, value(a), value(b), value(c)));
  }
  return Rounded(type, FloatArithmetic(op, ValueOf(type, a), ValueOf(type, b), ValueOf(type, c)));
}

bool Holds(Direction direction, bool total_order, DType type, uint64_t a, uint64_t b) {
  if (!InfoOf(type).floating) {
    return InfoOf(type).is_signed ? Holds(direction, SignExtended(type, a), SignExtended(type, b))
                                  : Holds(direction, a, b);
  }
  if (!total_order) return Holds(direction, ValueOf(type, a), ValueOf(type, b));
  // Sign and magnitude: negative ones the other way round, and all of them first.
  const uint64_t sign = (MaskOf(type) >> 1) + 1;
  const auto rank = [&](uint64_t code) {
    return (code & sign) != 0 ? -1 - static_cast<__int128>(code & ~sign)
                              : static_cast<__int128>(code);
  };
  return Holds(direction, rank(a), rank(b));
}

bool IsFunction(Op op) { return InfoOf(op).cost.transcendentals > 0 && op != Op::kSqrt; }

Element FunctionOf(Op op, DType type, const std::vector<uint64_t>& codes) {
  const long double x = ValueOf(type, codes[0]);
  const auto exact = [&]() -> long double {
    switch (op) {
      case Op::kPower:
        return std::pow(x, ValueOf(type, codes[1]));
      case Op::kRsqrt:
        return 1 / std::sqrt(x);
      case Op::kCbrt:
        return std::cbrt(x);
      case Op::kExponential:
        return std::exp(x);
      case Op::kExponentialBase2:
        return std::exp2(x);
      case Op::kExponentialMinusOne:
        return std::expm1(x);
      case Op::kLog:
        return std::log(x);
      case Op::kLogBase2:
        return std::log2(x);
      case Op::kLogPlusOne:
        return std::log1p(x);
      case Op::kSine:
        return std::sin(x);
      case Op::kCosine:
        return std::cos(x);
      case Op::kTanh:
        return std::tanh(x);
      case Op::kLogistic:
        return 1 / (1 + std::exp(-x));
      case Op::kErf:
        return std::erf(x);
      default:
        FERRY_CHECK(false);
    }
  }();
  Element element;
  element.code = Rounded(type, exact);
  if (std::isnan(exact)) return element;
  element.value = static_cast<double>(exact);
  const bool narrow = type == DType::kF16 || type == DType::kBF16;  // by way of f32
  element.error = (narrow ? 1 : 4) * UlpOf(type, element.value);
  return element;
}

}  // namespace ferry::compute::testing
