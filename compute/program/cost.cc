// SPDX-License-Identifier: Apache-2.0
#include "compute/program/cost.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ferry::compute {
namespace {

constexpr uint64_t kSaturated = std::numeric_limits<uint64_t>::max();

// By how many numbers of `node` its row's flops and transcendentals count.
uint64_t Basis(const Program& program, const Node& node) {
  const CostBasis basis = InfoOf(node.op).cost.basis;
  const bool has_result = node.results > 0;
  const TensorType* result = has_result ? &program.types[node.first_result] : nullptr;
  const TensorType* first = node.operands.empty() ? nullptr : &program.types[node.operands[0]];
  switch (basis) {
    case CostBasis::kResult:
      return result != nullptr ? ElementsOf(*result).value_or(kSaturated) : 0;
    case CostBasis::kOperand:
      return first != nullptr ? ElementsOf(*first).value_or(kSaturated) : 0;
    case CostBasis::kContraction: {
      const auto contract = node.attributes.Ints(Attribute::kLhsContract);
      const int64_t length = contract.empty() ? first->dims.back() : first->dims[contract[0]];
      return SaturatingMultiply(ElementsOf(*result).value_or(kSaturated),
                                static_cast<uint64_t>(length));
    }
  }
  return 0;
}

// Whether of its first operand only those elements are read that are taken of the result.
bool TakesWhatIsTaken(Op op) {
  switch (op) {
    case Op::kSlice:
    case Op::kDynamicSlice:
    case Op::kGatherRows:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kReverse:
      return true;
    default:
      return false;
  }
}

// By op, how often it runs.
std::vector<uint64_t> TimesOf(const Program& program) {
  std::vector<uint64_t> times;
  std::vector<std::pair<size_t, uint64_t>> open;  // the end of a body, and how often it runs
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    while (!open.empty() && open.back().first <= i) open.pop_back();
    const Node& node = program.nodes[i];
    times.push_back(open.empty() ? 1 : open.back().second);
    if (node.op == Op::kRepeat) {
      const auto trips = static_cast<uint64_t>(node.attributes.Int(Attribute::kTrips));
      open.push_back({i + 1 + node.body, SaturatingMultiply(times.back(), trips)});
    }
  }
  return times;
}

// By op, how many bytes of its result a run takes, if it is an input. An element that is taken
// twice counts twice, but all never more than the whole is each time that it is made.
std::vector<uint64_t> BytesTaken(const Program& program, const std::vector<uint64_t>& times) {
  std::vector<uint64_t> bytes(program.nodes.size());
  // By value, in elements. Nothing: nobody uses it, and it counts as a whole.
  std::vector<std::optional<uint64_t>> taken(program.types.size());
  for (size_t i = program.nodes.size(); i-- > 0;) {  // users are below what they use
    const Node& node = program.nodes[i];
    uint64_t of_first = kSaturated;
    if (node.op == Op::kInput || TakesWhatIsTaken(node.op)) {
      for (uint32_t result = 0; result < node.results; ++result) {
        const ValueId value = node.first_result + result;
        const TensorType& type = program.types[value];
        const uint64_t all = SaturatingMultiply(ElementsOf(type).value_or(kSaturated), times[i]);
        of_first = std::min(taken[value].value_or(all), all);
        const TensorType some = {type.dtype, {static_cast<int64_t>(of_first)}};
        bytes[i] = of_first < all
                       ? BytesOf(some).value_or(kSaturated)
                       : SaturatingMultiply(BytesOf(type).value_or(kSaturated), times[i]);
      }
    }
    for (size_t k = 0; k < node.operands.size(); ++k) {
      std::optional<uint64_t>& of = taken[node.operands[k]];
      of = SaturatingAdd(of.value_or(0), k == 0 ? of_first : kSaturated);
    }
    for (const ValueId value : node.yielded) taken[value] = kSaturated;
  }
  return bytes;
}

}  // namespace

uint64_t WorkOf(const Cost& cost) {
  const uint64_t moved = SaturatingAdd(cost.bytes_read, cost.bytes_written);
  return SaturatingAdd(SaturatingAdd(moved, cost.flops),
                       SaturatingMultiply(cost.transcendentals, kBytesOfTranscendental));
}

Cost CostOf(const Program& program, const Node& node) {
  const OpCost& row = InfoOf(node.op).cost;
  Cost cost;
  cost.steps = 1;
  if (row.flops > 0 || row.transcendentals > 0) {
    const uint64_t basis = Basis(program, node);
    cost.flops = SaturatingMultiply(basis, row.flops);
    cost.transcendentals = SaturatingMultiply(basis, row.transcendentals);
  }
  const auto bytes = [&](ValueId value) {
    return BytesOf(program.types[value]).value_or(kSaturated);
  };
  if (node.op == Op::kCopy) {
    cost.bytes_read = cost.bytes_written =
        static_cast<uint64_t>(node.attributes.Int(Attribute::kBytes));
  } else if (node.op == Op::kInput) {
    cost.bytes_read = bytes(node.first_result);
  } else if (node.op == Op::kStore) {
    cost.bytes_written = bytes(node.operands[0]);
  } else if (node.op == Op::kAccumulate) {
    cost.bytes_read = cost.bytes_written = bytes(node.operands[0]);
  } else if (node.op == Op::kDeltaApply) {
    cost.bytes_written = std::min(bytes(node.operands[1]),
                                  static_cast<uint64_t>(node.attributes.Int(Attribute::kBytes)));
  } else if (node.op == Op::kSend) {
    cost.bytes_sent = bytes(node.operands[0]);
  } else if (node.op == Op::kRecv) {
    cost.bytes_received = bytes(node.first_result);
  }
  return cost;
}

Cost CostOf(const Program& program) {
  Cost total;
  const std::vector<uint64_t> times = TimesOf(program);
  const std::vector<uint64_t> taken = BytesTaken(program, times);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    Cost cost = CostOf(program, node);
    if (node.op == Op::kInput) {
      total.bytes_read = SaturatingAdd(total.bytes_read, taken[i]);
      cost.bytes_read = 0;
    }
    for (const auto member :
         {&Cost::flops, &Cost::transcendentals, &Cost::bytes_read, &Cost::bytes_written,
          &Cost::bytes_sent, &Cost::bytes_received, &Cost::steps}) {
      total.*member = SaturatingAdd(total.*member, SaturatingMultiply(cost.*member, times[i]));
    }
  }
  return total;
}

}  // namespace ferry::compute
