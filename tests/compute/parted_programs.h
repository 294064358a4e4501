// SPDX-License-Identifier: Apache-2.0
// Programs that send many of their values, and whose transfers are in parts. Pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/program/program.h"
#include "compute/program/verify.h"

namespace ferry::compute::testing {

inline bool IsTransfer(const Node& node) { return node.op == Op::kSend || node.op == Op::kRecv; }
// The type of what `node`, a transfer, sends or receives.
inline const TensorType& Travels(const Program& program, const Node& node) {
  return program.types[node.op == Op::kSend ? node.operands[0] : node.first_result];
}

// The program, which also sends each result, of one dimension or more, of each op that is in no
// body and not in `not_these`.
inline Program WithSends(Program program, const std::set<size_t>& not_these) {
  const size_t ops = program.nodes.size();
  for (size_t i = 0; i < ops; i += 1 + program.nodes[i].body) {
    for (uint32_t j = 0; j < program.nodes[i].results; ++j) {
      Node send;
      send.op = Op::kSend;
      send.operands = {program.Result(static_cast<OpIndex>(i), j)};
      if (program.types[send.operands[0]].dims.empty() || not_these.count(i) != 0) continue;
      send.attributes = {{Attribute::kDevice, int64_t{77}},
                         {Attribute::kKey, absl::StrCat(i, ".", j)}};
      program.Append(std::move(send), {});
    }
  }
  return program;
}

// The ops with a result that Verify does not let a program send, since nobody has written it.
inline std::set<size_t> UnsentOf(const Program& program) {
  std::set<size_t> unsent;
  const Program sends = WithSends(program, {});
  const std::vector<OpIndex> definitions = DefinitionsOf(sends);
  for (const Problem& problem : Verify(sends)) {
    unsent.insert(definitions[sends.nodes[static_cast<size_t>(problem.op)].operands[0]]);
  }
  return unsent;
}

// The program with 2 to 4 parts, by the seed, for each transfer that may have as many.
inline Program InParts(Program program, uint64_t seed) {
  const std::vector<bool> ordered = OrderedOps(program);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    Node& node = program.nodes[i];
    if (!IsTransfer(node) || ordered[i]) continue;
    const std::vector<int64_t>& dims = Travels(program, node).dims;
    const auto parts = static_cast<int64_t>(2 + seed % 3);
    if (!dims.empty() && dims[0] >= parts) node.attributes.Set(Attribute::kParts, parts);
  }
  return program;
}

}  // namespace ferry::compute::testing
