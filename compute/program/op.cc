// SPDX-License-Identifier: Apache-2.0
#include "compute/program/op.h"

#include "compute/program/rules.h"

namespace ferry::compute {
namespace {

constexpr Count Exactly(size_t count) { return {count, count}; }
constexpr Count Between(size_t least, size_t most) { return {least, most}; }
constexpr OpCost Flops(uint8_t each) { return {CostBasis::kResult, each, 0}; }
constexpr OpCost FlopsOfOperand(uint8_t each) { return {CostBasis::kOperand, each, 0}; }
constexpr OpCost Transcendental() { return {CostBasis::kResult, 0, 1}; }

const OpInfo& Row(size_t index) {
  using namespace dtypes;
  using A = Attribute;
  constexpr OpCost kFree;
  constexpr OpCost kContraction = {CostBasis::kContraction, 2, 0};
  constexpr int kAsOperands = OpInfo::kAsOperands;
#define FERRY_OP_ROW(op, name, buffers, operands, results, must, may, dtypes, effect, cost, rule) \
  {name, buffers, operands, results, must, may, dtypes, effect, cost, rules::rule},
  static constexpr OpInfo kTable[] = {FERRY_OPS(FERRY_OP_ROW)};
#undef FERRY_OP_ROW
  return kTable[index];
}

}  // namespace

const OpInfo& InfoOf(Op op) { return Row(static_cast<size_t>(op)); }

std::optional<Op> OpOf(absl::string_view name) {
  for (size_t i = 0; i < kOps; ++i) {
    if (Row(i).name == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

}  // namespace ferry::compute
