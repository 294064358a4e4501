// SPDX-License-Identifier: Apache-2.0
// What is known of an op without a program: a row of op_table.h. Constants only; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/dtype.h"
#include "compute/program/attribute.h"
#include "compute/program/limits.h"
#include "compute/program/op_table.h"

namespace ferry::compute {

enum class Op : uint8_t {
#define FERRY_OP_ENUM(name, ...) name,
  FERRY_OPS(FERRY_OP_ENUM)
#undef FERRY_OP_ENUM
};

#define FERRY_OP_COUNT(...) +1
inline constexpr size_t kOps = FERRY_OPS(FERRY_OP_COUNT);
#undef FERRY_OP_COUNT

enum class Effect : uint8_t {
  kPure,           // may be removed, merged with an equal op, or moved
  kDataflow,       // may be removed, but not merged
  kSideEffecting,  // must stay
};

// What an op's cost is counted by: elements of the result, or of the first operand.
enum class CostBasis : uint8_t {
  kResult,
  kOperand,
  kContraction,  // two flops for each product: elements of the result times the contracted elements
};
struct OpCost {
  CostBasis basis = CostBasis::kResult;
  uint8_t flops = 0;
  uint8_t transcendentals = 0;
};

using DTypeSet = uint32_t;  // one bit for each DType
constexpr DTypeSet SetOf(DType type) { return DTypeSet{1} << static_cast<unsigned>(type); }
constexpr bool Contains(DTypeSet set, DType type) { return (set & SetOf(type)) != 0; }

namespace dtypes {
inline constexpr DTypeSet kFloats =
    SetOf(DType::kF64) | SetOf(DType::kF32) | SetOf(DType::kF16) | SetOf(DType::kBF16);
// Types in which values are stored, but not computed.
inline constexpr DTypeSet kSmallFloats =
    SetOf(DType::kF8E4M3FN) | SetOf(DType::kF8E5M2) | SetOf(DType::kF4E2M1FN);
inline constexpr DTypeSet kScales = SetOf(DType::kF8E8M0FNU) | SetOf(DType::kF8E4M3FN);
inline constexpr DTypeSet kIntegers = SetOf(DType::kI64) | SetOf(DType::kI32) | SetOf(DType::kI16) |
                                      SetOf(DType::kI8) | SetOf(DType::kU64) | SetOf(DType::kU32) |
                                      SetOf(DType::kU16) | SetOf(DType::kU8);
inline constexpr DTypeSet kBool = SetOf(DType::kBool);
inline constexpr DTypeSet kU32 = SetOf(DType::kU32);
inline constexpr DTypeSet kU64 = SetOf(DType::kU64);
inline constexpr DTypeSet kNumbers = kFloats | kIntegers;
inline constexpr DTypeSet kArithmetic = kNumbers | kBool;
inline constexpr DTypeSet kComparable = kNumbers | kBool;
inline constexpr DTypeSet kBits = kIntegers | kBool;
inline constexpr DTypeSet kFactors = kNumbers | kSmallFloats;
inline constexpr DTypeSet kAll = (DTypeSet{1} << kDTypes) - 1;
inline constexpr DTypeSet kNoBool = kAll & ~kBool;
}  // namespace dtypes

struct Count {
  size_t least = 0;
  size_t most = 0;
};

using AttributeSet = uint64_t;  // one bit for each Attribute
constexpr AttributeSet Bit(Attribute attribute) {
  return AttributeSet{1} << static_cast<unsigned>(attribute);
}

struct RuleInput;
struct Inference;

struct OpInfo {
  static constexpr int kAsOperands = -1;

  absl::string_view name;
  size_t buffers = 0;
  Count operands;
  int results = 0;
  AttributeSet must = 0;
  AttributeSet may = 0;
  DTypeSet dtypes = 0;
  Effect effect = Effect::kPure;
  OpCost cost;
  Inference (*rule)(const RuleInput&) = nullptr;

  size_t ResultsFor(size_t operands) const {
    return results == kAsOperands ? operands : static_cast<size_t>(results);
  }
};

const OpInfo& InfoOf(Op op);
std::optional<Op> OpOf(absl::string_view name);

}  // namespace ferry::compute
