// SPDX-License-Identifier: Apache-2.0
#include "compute/program/cost.h"

#include <utility>
#include <vector>

namespace ferry::compute {
namespace {

constexpr uint64_t kSaturated = std::numeric_limits<uint64_t>::max();

uint64_t Times(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return product > kSaturated ? kSaturated : static_cast<uint64_t>(product);
}

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
      return Times(ElementsOf(*result).value_or(kSaturated), static_cast<uint64_t>(length));
    }
  }
  return 0;
}

}  // namespace

uint64_t WorkOf(const Cost& cost) {
  const uint64_t moved = SaturatingAdd(cost.bytes_read, cost.bytes_written);
  return SaturatingAdd(SaturatingAdd(moved, cost.flops),
                       Times(cost.transcendentals, kBytesOfTranscendental));
}

Cost CostOf(const Program& program, const Node& node) {
  const OpCost& row = InfoOf(node.op).cost;
  Cost cost;
  cost.steps = 1;
  if (row.flops > 0 || row.transcendentals > 0) {
    const uint64_t basis = Basis(program, node);
    cost.flops = Times(basis, row.flops);
    cost.transcendentals = Times(basis, row.transcendentals);
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
  } else if (node.op == Op::kSend) {
    cost.bytes_sent = bytes(node.operands[0]);
  } else if (node.op == Op::kRecv) {
    cost.bytes_received = bytes(node.first_result);
  }
  return cost;
}

Cost CostOf(const Program& program) {
  Cost total;
  std::vector<std::pair<size_t, uint64_t>> open;  // the end of a body, and how often it runs
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    while (!open.empty() && open.back().first <= i) open.pop_back();
    const Node& node = program.nodes[i];
    const uint64_t times = open.empty() ? 1 : open.back().second;
    const Cost cost = CostOf(program, node);
    for (const auto member :
         {&Cost::flops, &Cost::transcendentals, &Cost::bytes_read, &Cost::bytes_written,
          &Cost::bytes_sent, &Cost::bytes_received, &Cost::steps}) {
      total.*member = SaturatingAdd(total.*member, Times(cost.*member, times));
    }
    if (node.op == Op::kRepeat) {
      const auto trips = static_cast<uint64_t>(node.attributes.Int(Attribute::kTrips));
      open.push_back({i + 1 + node.body, Times(times, trips)});
    }
  }
  return total;
}

}  // namespace ferry::compute
